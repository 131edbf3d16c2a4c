"""The second and third table of `study table`: the same methods over as many rounds as the paper has, and how they were tuned.

Which methods the longer series has is said by the preset; a row that is not there was cut for time, and the page names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.run.metrics import final
from fedgsp.study.grid import shown
from fedgsp.study.grids import grid_of
from fedgsp.study.noise import Estimate
from fedgsp.study.paper.rows import GRID, LONG, OURS, PAPER_TARGET
from fedgsp.study.tables import Column, Table, bytes_, number, percent
from fedgsp.study.targets import as_fact, mean_or_none, reached, window_of

if TYPE_CHECKING:
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Arm, Trace
    from fedgsp.study.tune import Tuning

COSTS = ("rounds", "serial_steps", "bytes")


@dataclass(frozen=True)
class LongRuns:
    """The runs of the longer series, and what was chosen for each method."""

    arm: Arm
    runs: dict[str, list[Trace]]
    chosen: dict[str, str]


def gather_long(runner: PaperRunner) -> LongRuns | None:
    """The preset's longer series, tuned; None if it has none, or if methods were asked for."""
    arm = runner.preset.table_long
    if arm is None or runner.methods:
        return None
    found = LongRuns(arm, {}, {})
    for name in arm.only:
        method = runner.method(name)
        best = runner.best_of(name, method, GRID if name in OURS else grid_of(method), arm, wider=True)
        found.chosen[name] = best.label
        found.runs[name] = runner.traces(arm.named(f"{name} tuned"), best.method, arm)
    return found


def long_facts(found: LongRuns, seeds: int) -> dict[str, Any]:
    """For whoever draws conclusions."""
    ends = {
        metric: {name: [final(t.history, metric) for t in runs if not t.diverged] for name, runs in found.runs.items()}
        for metric in ("accuracy", "loss")
    }
    return {
        "model": found.arm.model, "rounds": found.arm.rounds, "seeds": seeds, "target": PAPER_TARGET, "cut": _cut(found),
        "chosen": found.chosen, "long_by_seed": ends["accuracy"], "loss": ends["loss"],
        "reached": {name: as_fact([reached(trace, PAPER_TARGET) for trace in runs]) for name, runs in found.runs.items()},
    }  # fmt: skip


def long_table(found: LongRuns, seeds: int, paper: Mapping[str, tuple[float, float, int | None]]) -> Table:
    """A row a method, the most accurate first, with the paper's figures."""
    rows = []
    for name, runs in found.runs.items():
        if any(trace.diverged for trace in runs):
            rows.append((0.0, (name, found.chosen[name].replace(",", ", "), "diverged", *[None] * 7)))
            continue
        taken = [reached(trace, PAPER_TARGET) for trace in runs]
        ends = [final(trace.history, "accuracy") for trace in runs]
        losses = [final(trace.history, "loss") for trace in runs]
        costs = [mean_or_none(taken, what) for what in COSTS]
        cells = (Estimate.of(ends), Estimate.of(losses), *costs, *paper.get(name, (None, None, None)))
        rows.append((fmean(ends), (name, found.chosen[name].replace(",", ", "), *cells)))
    cut, goal = _cut(found), f"{100 * PAPER_TARGET:.0f} %"
    return Table(
        "table-long", f"After {found.arm.rounds} rounds, {found.arm.model}, tuned, {seeds} seed(s); to {goal}",
        (Column("method"), Column("chosen"), Column("accuracy %", percent), Column("loss", number(3)),
         Column("rounds", number()), Column("serial steps", number()), Column("bytes", bytes_),
         Column("paper: accuracy %", percent), Column("paper: loss", number(3)), Column("paper: rounds", number())),
        [cells for _, cells in sorted(rows, key=lambda row: -row[0])],
        f"Accuracy and loss: {window_of(found.runs.values())}. Tuned as below, for {found.arm.model} and far fewer rounds."
        + (" One seed, so noise is not ruled out." if seeds == 1 else "")
        + (f" Cut for time: {', '.join(cut)}." if cut else ""), kept=False,
    )  # fmt: skip


def _cut(found: LongRuns) -> list[str]:
    return [name for name in LONG if not found.arm.has(name)]


def tuning_table(tunings: Mapping[str, Tuning], rounds: int, beyond: int) -> Table:
    """What was tried for each method, and where the best lies."""
    rows = [(name, _tried(one), len(one.outcomes), sum(o.runs for o in one.outcomes), one.best.point.label.replace(",", ", "),
             one.best.score, _where(one)) for name, one in tunings.items()]  # fmt: skip
    seeds = max((len(one.seeds) for one in tunings.values()), default=1)
    more = "" if seeds == 1 else f"; the best and its neighbours with {seeds} seeds, of which the mean decides"
    return Table(
        "tuning", f"Tuning: {rounds} rounds on validation samples",
        (Column("method"), Column("values tried"), Column("points"), Column("runs"), Column("best"),
         Column("validation accuracy %", percent), Column("the best lies")), rows,
        f"The same kind of budget for all, ours among them: every point of the method's grid with seed 0{more}. Where the best "
        f"was at an edge, points beyond it were tried, up to {beyond} new values an axis. The form of ours came out of "
        f"some hundred earlier validation runs, which rivals did not have. Test samples had no part in any of it.",
        kept=False,
    )  # fmt: skip


def _tried(one: Tuning) -> str:
    return "; ".join(f"{axis.name} {', '.join(map(shown, axis.values))}" for axis in one.axes)


def _where(one: Tuning) -> str:
    best = one.best.point.values
    edges = [axis.name for axis in one.axes if _ends(axis.values, best[axis.name])]
    return f"at an edge: {', '.join(edges)}" if edges else "inside"


def _ends(values: Sequence[Any], value: Any) -> bool:
    return len(values) > 1 and value in (min(values), max(values))
