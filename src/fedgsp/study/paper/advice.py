"""`study advice`: would `fedgsp advise` with a pilot have chosen well? Over the runs of `skew` and `fleets`, on every fleet.

A pilot is the first rounds of a run; what the methods are then expected to take is worked out as `advise` does it. The choice
is held against who really was soonest, which the rest of the runs says. Nothing is trained for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Any

from fedgsp.cost import FLEETS
from fedgsp.run.metrics import evaluations, final
from fedgsp.study.advise import CANDIDATES, CLOSE, Estimated, doubts_of, extrapolated
from fedgsp.study.findings import Findings
from fedgsp.study.paper import fleets, skew
from fedgsp.study.paper.dealing import OWN
from fedgsp.study.paper.skew import SkewRuns
from fedgsp.study.tables import Column, Table, number, percent
from fedgsp.study.targets import reached

if TYPE_CHECKING:
    from fedgsp.study.paper.fleets import FleetRuns
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Trace

TITLE = "Would the advice have been good?"
NAMES: Mapping[str, str] = {
    "fedavg": "fedavg", "fedadam": "fedadam", "ICG STP": "fedgsp", "ICG capped": "fedgsp-capped",
    "chains-then-adam": "chains-then-adam", "long-chains-then-adam": "long-chains-then-adam",
}  # fmt: skip
"""Rows of `study skew` that `advise` may choose, by the names that it has for them."""
PILOT = 0.4
"""The share of a run's rounds that stands for the pilot,"""
LONGEST = 8
"""and the most rounds that it has."""
WELL, SAID, BADLY = "within 15 %", "not sure, and said so", "worse, and sure"


@dataclass(frozen=True)
class AdviceRuns:
    """The runs of `study skew`, and those of `study fleets`, in which more methods stand and more seeds."""

    skew: SkewRuns
    fleets: FleetRuns


def gather(runner: PaperRunner) -> AdviceRuns:
    """Those of two other studies."""
    skewed = skew.gather(runner) if runner.preset.advice_skew else SkewRuns({}, {}, {})
    return AdviceRuns(skewed, fleets.gather(runner, every=False))


@dataclass(frozen=True)
class Cell:
    """One data set on one fleet: what was advised, what would have been best, and how it went.

    Args:
        data: How the samples are dealt.
        fleet: The fleet.
        target: The accuracy to reach.
        choice: The method that is first in the advice; none: no estimate at all.
        best: The soonest in hindsight.
        ratio: What the choice took over what the best took; None: it never got there.
        sure: Whether the advice has no doubt.
    """

    data: str
    fleet: str
    target: float
    choice: str
    best: str
    ratio: float | None
    sure: bool

    @property
    def verdict(self) -> str:
        """Good, doubted, or wrong."""
        if self.ratio is not None and self.ratio <= CLOSE:
            return WELL
        return BADLY if self.sure else SAID


def show(runner: PaperRunner, found: AdviceRuns) -> Findings:
    """A row a cell, and how many were well advised."""
    cells = []
    for dealing, runs in found.skew.runs.items():
        cells += _cells(dealing.label, {NAMES[name]: several[0] for name, several in runs.items() if name in NAMES})
    for at, seed in enumerate(runner.seeds(runner.preset.table)):
        known = {candidate.name for candidate in CANDIDATES}
        cells += _cells(
            f"{OWN}, seed {seed}", {name: several[at] for name, several in found.fleets.main.items() if name in known}
        )
    counts = {verdict: sum(cell.verdict == verdict for cell in cells) for verdict in (WELL, SAID, BADLY)}
    facts: dict[str, Any] = {"cells": len(cells), "counts": counts, "pilot": PILOT, "model": runner.preset.skew.model}
    rows = [
        (
            cell.data,
            cell.fleet,
            cell.target,
            cell.choice or None,
            cell.best,
            cell.ratio,
            "yes" if cell.sure else "no",
            cell.verdict,
        )
        for cell in cells
    ]
    table = Table(
        "advice", "What a pilot would have advised",
        (Column("data"), Column("fleet"), Column("target %", percent), Column("advised"), Column("soonest in hindsight"),
         Column("its time over the soonest's", number(2)), Column("sure"), Column("verdict")), rows,
        f"The pilot: the first {100 * PILOT:.0f} % of a run's rounds, {LONGEST} at most, on test samples (`fedgsp advise` "
        f"looks at validation samples). The target is the whole per cent that the weakest of the methods has at its end.",
    )  # fmt: skip
    share = 100 * counts[WELL] / max(1, len(cells))
    sure = [cell for cell in cells if cell.sure]
    right = sum(cell.verdict == WELL for cell in sure)
    note = (
        f"Of {len(cells)} cells (data times fleet) the choice was within 15 % of the soonest in {counts[WELL]} "
        f"({share:.0f} %); in {counts[SAID]} it was not, but the advice had said that it is not sure; in {counts[BADLY]} it "
        f"was not and had no doubt. Where it had no doubt it was right in {right} of {len(sure)}. The candidates are "
        f"{', '.join(NAMES.values())}, on the data's own clients also fedadagrad and fedyogi; one seed a cell."
        + ("" if runner.preset.advice_skew else " Cut for time: data with label skew, and other numbers of clients.")
    )
    return Findings("advice", TITLE, [table], [], facts, [note])


def _cells(data: str, runs: Mapping[str, Trace]) -> list[Cell]:
    """Every fleet on one data set; none where fewer than two methods reach the target."""
    known = {name: trace for name, trace in runs.items() if not trace.diverged}
    if len(known) < 2:
        return []
    target = floor(100 * min(final(trace.history, "accuracy") for trace in known.values())) / 100
    there = {name: one for name, trace in known.items() if (one := reached(trace, target)) is not None}
    if len(there) < 2:
        return []
    cells = []
    for fleet in FLEETS:
        estimates = sorted(
            (told for name, trace in known.items() if (told := _expected(name, trace, target, fleet)) is not None),
            key=lambda one: (one.seconds, one.name),
        )
        best = min(there, key=lambda name: there[name].seconds[fleet])
        choice = estimates[0].name if estimates else ""
        ratio = there[choice].seconds[fleet] / there[best].seconds[fleet] if choice in there else None
        cells.append(Cell(data, fleet, target, choice, best, ratio, bool(estimates) and not doubts_of(estimates)))
    return cells


def _expected(name: str, trace: Trace, target: float, fleet: str) -> Estimated | None:
    """What the pilot says a method will take; None where it says nothing."""
    rounds = max(2, min(LONGEST, round(PILOT * len(trace.history))))
    points = [(entry["round"], figures["accuracy"]) for entry, figures in evaluations(trace.history[:rounds], "accuracy")]
    first = next((r for r, accuracy in points if accuracy >= target), None)
    told = (float(first), 1.0) if first is not None else extrapolated(points, target)
    if isinstance(told, str):
        return None
    line, need = trace.seconds[fleet], told[0]
    whole = min(len(line), max(1, round(need)))
    last = line[-1] - line[-2] if len(line) > 1 else line[-1]
    seconds = line[whole - 1] + max(0.0, need - len(line)) * last
    return Estimated(name, "", round(need), seconds, 0.0, "", told[1])
