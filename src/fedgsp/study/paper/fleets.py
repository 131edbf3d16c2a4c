"""`study fleets`: time and traffic to a target on every named fleet, each method tuned; who is on the Pareto front where.

The runs are those of `study table`, tuned: what a method took until the target, hop by hop, is costed on each fleet. A method
is on a fleet's front if no other is both sooner and cheaper there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.cost import FLEETS
from fedgsp.report.study_figures import Curve, LinePlot, Picture
from fedgsp.study.findings import Findings
from fedgsp.study.paper.table import RIVALS
from fedgsp.study.tables import Column, Table, bytes_, number
from fedgsp.study.targets import Reached, as_fact, reached, scaled

if TYPE_CHECKING:
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.units import Trace

TITLE = "Time and traffic to a target on every fleet"
FRONT = "on the front of"


def gather(runner: PaperRunner) -> dict[str, list[Trace]]:
    """The tuned runs of the table's methods, or of those that are asked for."""
    arm, names = runner.preset.table, runner.methods or ("fedavg", *RIVALS, "fedgsp")
    return {name: runner.traces(f"{name} tuned", runner.tuned(name, arm).method, arm) for name in names}


def show(runner: PaperRunner, found: Mapping[str, Sequence[Trace]]) -> Findings:
    """A row a method, and a picture with a panel a fleet."""
    arm = runner.preset.table
    target = scaled(list(found.get("fedavg", ())), runner.preset.target)
    facts: dict[str, Any] = {"model": arm.model, "rounds": arm.rounds, "seeds": len(runner.seeds(arm)), "target": target}
    if target is None:
        return Findings("fleets", TITLE, [], [], facts, ["FedAvg diverged, so there is no target."])
    taken = {name: [reached(trace, target) for trace in runs] for name, runs in found.items()}
    points = {name: point for name, several in taken.items() if (point := _point(several)) is not None}
    fronts = {fleet: front({name: (point[fleet], point["bytes"]) for name, point in points.items()}) for fleet in FLEETS}
    facts |= {"reached": {name: as_fact(several) for name, several in taken.items()}, "front": fronts}
    rows = []
    for name, several in taken.items():
        there = f"{sum(one is not None for one in several)} of {len(several)}"
        on = ", ".join(fleet for fleet, names in fronts.items() if name in names)
        point = points.get(name)
        cells = [None] * (2 + len(FLEETS)) if point is None else [point[key] for key in ("rounds", "bytes", *FLEETS)]
        rows.append((name, there, *cells, on or None))
    table = Table(
        "fleets", f"Until {100 * target:.0f} % is first reached ({arm.model}, {arm.rounds} rounds at most, tuned)",
        (Column("method"), Column("seeds that got there"), Column("rounds", number(1)), Column("bytes", bytes_),
         *(Column(f"s on {fleet}", number(1)) for fleet in FLEETS), Column(FRONT)), rows,
        "Means over seeds; - where a seed did not get there. On a fleet's front: no other method is both sooner there and "
        "cheaper in bytes. The target is the whole per cent that tuned FedAvg has at its end.",
    )  # fmt: skip
    panels = [
        LinePlot(
            fleet, "MB", "seconds", [Curve(name, [p["bytes"] / 1e6], [p[fleet]]) for name, p in points.items()], log_x=True
        )
        for fleet in FLEETS
    ]
    caption = (
        f"Seconds and traffic to {100 * target:.0f} % on each fleet ({arm.model}, tuned, means over seeds): lower left is best."
    )
    half = len(panels) // 2
    return Findings("fleets", TITLE, [table], [Picture("fleets", caption, [panels[:half], panels[half:]])], facts)


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
