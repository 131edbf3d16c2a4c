"""`study fleets`: time and traffic to a target on every named fleet, each method tuned; who is on the Pareto front where.

The runs are those of `study table`, tuned, and our own methods by their presets: what a method took until the target, hop by
hop, is costed on each fleet. A second table has every method that yields one model, from the shorter runs of `study rivals`. A
method is on a fleet's front if no other is both sooner and cheaper there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.cost import FLEETS
from fedgsp.methods import METHODS, named
from fedgsp.report.study_figures import Curve, LinePlot, Picture
from fedgsp.study.findings import Findings
from fedgsp.study.paper.rows import OURS, RIVALS
from fedgsp.study.tables import Column, Table, bytes_, number
from fedgsp.study.targets import Reached, as_fact, reached, scaled

if TYPE_CHECKING:
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Arm, Trace

TITLE = "Time and traffic to a target on every fleet"
FRONT = "on the front of"
RunsOf = dict[str, list["Trace"]]


@dataclass(frozen=True)
class FleetRuns:
    """Runs of the table's methods and of ours; and the shorter ones of every method."""

    main: RunsOf
    every: RunsOf


def gather(runner: PaperRunner, *, every: bool = True) -> FleetRuns:
    """The tuned runs of the table's methods, or of those that are asked for, and ours; then those of every method."""
    preset = runner.preset
    main = _runs(runner, runner.methods or ("fedavg", *RIVALS, "fedgsp", *OURS), preset.table, wider=True)
    others = [name for name, row in METHODS.items() if row.make().yields == "one"]
    return FleetRuns(main, _runs(runner, others, preset.rivals) if every and not runner.methods else {})


def _runs(runner: PaperRunner, names: Sequence[str], arm: Arm, *, wider: bool = False) -> RunsOf:
    found: RunsOf = {}
    for name in names:
        if name in OURS:
            method = named(name)
            method = replace(method, local=replace(method.local, batch_size=runner.preset.batch_size))
            short = replace(arm, rounds=min(arm.rounds, runner.preset.ours.rounds))
            found[name] = runner.traces(name, method, short)
        else:
            found[name] = runner.traces(f"{name} tuned", runner.tuned(name, arm, wider=wider).method, arm)
    return found


def show(runner: PaperRunner, found: FleetRuns) -> Findings:
    """A row a method, and a picture with a panel a fleet; then every method after fewer rounds."""
    arm, short = runner.preset.table, runner.preset.rivals
    facts: dict[str, Any] = {"model": arm.model, "rounds": arm.rounds, "seeds": len(runner.seeds(arm))}
    tables, pictures = [], []
    for name, runs, part in (("fleets", found.main, arm), ("fleets-every", found.every, short)):
        target = scaled(list(runs.get("fedavg", ())), runner.preset.target)
        told = {"target": target}
        if runs and target is not None:
            table, points, told = _table(name, runs, part, target)
            tables.append(table)
            pictures += [_picture(points, target, arm.model)] if name == "fleets" else []
        facts |= told if name == "fleets" else {"every": told}
    notes = [] if facts["target"] is not None else ["FedAvg diverged, so there is no target."]
    return Findings("fleets", TITLE, tables, pictures, facts, notes)


Points = dict[str, dict[str, float]]


def _table(name: str, runs: RunsOf, arm: Arm, target: float) -> tuple[Table, Points, dict[str, Any]]:
    taken = {name: [reached(trace, target) for trace in several] for name, several in runs.items()}
    points = {name: point for name, several in taken.items() if (point := _point(several)) is not None}
    fronts = {fleet: front({name: (point[fleet], point["bytes"]) for name, point in points.items()}) for fleet in FLEETS}
    facts = {"target": target, "reached": {name: as_fact(several) for name, several in taken.items()}, "front": fronts}
    rows = []
    for method, several in taken.items():
        there = f"{sum(one is not None for one in several)} of {len(several)}"
        on = ", ".join(fleet for fleet, names in fronts.items() if method in names)
        point = points.get(method)
        cells = [None] * (2 + len(FLEETS)) if point is None else [point[key] for key in ("rounds", "bytes", *FLEETS)]
        rows.append((method, there, *cells, on or None))
    whom = "U" if name == "fleets" else "Every method with one model, fewer rounds: u"
    table = Table(
        name, f"{whom}ntil {100 * target:.0f} % is first reached ({arm.model}, {arm.rounds} rounds at most, tuned)",
        (Column("method"), Column("seeds that got there"), Column("rounds", number(1)), Column("bytes", bytes_),
         *(Column(f"s on {fleet}", number(1)) for fleet in FLEETS), Column(FRONT)), rows,
        "Means over seeds; - where a seed did not get there. On a fleet's front: no other method is both sooner there and "
        "cheaper in bytes. The target is the whole per cent that tuned FedAvg has at its end. Ours have their presets "
        "and fewer rounds. data-sharing, hybrid-fl, faug and fedmeta-uga send raw samples away.",
        kept=name == "fleets",
    )  # fmt: skip
    return table, points, facts


def _picture(points: Points, target: float, model: str) -> Picture:
    panels = [
        LinePlot(
            fleet, "MB", "seconds", [Curve(name, [p["bytes"] / 1e6], [p[fleet]]) for name, p in points.items()], log_x=True
        )
        for fleet in FLEETS
    ]
    caption = (
        f"Seconds and traffic to {100 * target:.0f} % on each fleet ({model}, tuned, means over seeds): lower left is best."
    )
    half = len(panels) // 2
    return Picture("fleets", caption, [panels[:half], panels[half:]])


def front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Who is not beaten by another in both coordinates.

    Args:
        points: Name -> (seconds, bytes).

    Returns:
        The names, in the order given.

    Example:
        >>> front({"soon": (1, 9), "cheap": (9, 1), "beaten": (2, 9), "same": (1, 9)})
        ['soon', 'cheap', 'same']
    """
    return [
        name
        for name, (time, size) in points.items()
        if not any(t <= time and s <= size and (t, s) != (time, size) for t, s in points.values())
    ]


def _point(several: Sequence[Reached | None]) -> dict[str, float] | None:
    """Mean rounds, bytes and seconds by fleet; None unless every seed got there."""
    there = [one for one in several if one is not None]
    if not there or len(there) < len(several):
        return None
    mean = {what: fmean(float(getattr(one, what)) for one in there) for what in ("rounds", "bytes")}
    return {**mean, **{fleet: fmean(one.seconds[fleet] for one in there) for fleet in FLEETS}}
