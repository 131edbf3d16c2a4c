"""Tuning: the same method over a grid of hyper-parameters, judged on the validation part.

Equal learning rates are not fair: methods need different ones (SPECS 14.3). So every comparison shows a method with the paper's
value and with the best of its own grid. Test data has no part in the choice: the runs here do not even look at it
(`evaluate_on = "validation"`), and the table has no test figure.

A plain grid, not a sampler such as Optuna: the grids that published comparisons use have a handful of points on one or two
axes, all of which one wants to see; a unit is a run directory, so that a stopped sweep goes on where it was and a finished unit
is never run again, also when the grid grows; and the outcome does not depend on the order in which units finished.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.core.state import Yields
from fedgsp.prepare import Once
from fedgsp.run.config import RunConfig
from fedgsp.run.drive import Objects
from fedgsp.run.files import write_whole
from fedgsp.run.metrics import evaluations, final, final_rounds
from fedgsp.run.observers import Observer
from fedgsp.study.grid import Axis, Point, parse_grid, points, shown
from fedgsp.study.units import run_unit

SCHEMA = 2
VALIDATION = 0.1
"""The share of training samples that is kept for choosing, where the configuration does not say."""


@dataclass(frozen=True)
class Outcome:
    """What came of one grid point: figures on the validation part, the mean over its seeds; None where one diverged."""

    point: Point
    score: float | None
    spread: float
    loss: float | None
    note: str


@dataclass(frozen=True)
class Tuning:
    """A finished sweep: outcomes in the order of the grid, and the best of them."""

    axes: tuple[Axis, ...]
    outcomes: tuple[Outcome, ...]
    score: str
    seeds: tuple[int, ...]
    yields: Yields = "one"
    rounds: tuple[int, ...] = ()
    """The rounds whose evaluations are averaged: the final figure of `run/metrics.py`, on validation samples."""

    @property
    def best(self) -> Outcome:
        """The highest validation score (the lowest loss for tasks without one)."""
        whole = [outcome for outcome in self.outcomes if outcome.score is not None]
        if not whole:
            raise InputError("every point of the grid diverged; try smaller learning rates.")
        return max(whole, key=lambda outcome: (outcome.score or 0.0, -self.outcomes.index(outcome)))

    @property
    def advice(self) -> tuple[str, ...]:
        """Axes whose best value lies at an end of the grid, so that a better one may lie beyond."""
        found = []
        for axis in self.axes:
            numbers = sorted(v for v in axis.values if isinstance(v, int | float) and not isinstance(v, bool))
            value = self.best.point.values[axis.name]
            if len(numbers) > 1 and value in (numbers[0], numbers[-1]):
                which = "smallest" if value == numbers[0] else "largest"
                found.append(f"the best {axis.name} is the {which} tried ({shown(value)}): widen the grid there.")
        return tuple(found)

    def as_dict(self) -> dict[str, Any]:
        """For tune.json: validation figures only."""
        return {
            "schema": SCHEMA,
            "judged_on": "validation",
            "yields": self.yields,
            "score": self.score,
            "seeds": list(self.seeds),
            "final_rounds": list(self.rounds),
            "grid": {axis.name: list(axis.values) for axis in self.axes},
            "outcomes": [_plain(outcome) for outcome in self.outcomes],
            "best": _plain(self.best),
            "advice": list(self.advice),
        }


def tune(
    config: RunConfig,
    grid: Sequence[str],
    out: Path,
    *,
    seeds: Sequence[int] = (0,),
    objects: Objects = Objects(),  # noqa: B008 - frozen
    observers: Callable[[str], Sequence[Observer]] = lambda unit: (),
) -> Tuning:
    """Run every point of the grid with every seed, in folders below `out`; what is there already is used."""
    axes = parse_grid(grid, config.method)
    if not seeds:
        raise InputError("tuning needs at least one seed.")
    judged = _on_validation(config)
    objects = replace(objects, once=objects.once or Once())
    all_points = list(points(axes, config.method))
    first = objects.prepare(replace(judged, method=all_points[0].method))  # refuses what makes no sense before anything starts
    if first.data.validation.sizes[first.judged].sum() == 0:
        raise InputError("no client has a validation sample to choose by; keep a larger share with --validation.")
    for point in all_points[1:]:
        point.method.check()
    outcomes, rounds = [], set()
    for point in all_points:
        journals, note = [], ""
        for seed in seeds:
            unit = replace(judged, method=point.method, run=replace(judged.run, seed=seed))
            found = run_unit(unit, out / point.label / f"seed-{seed}", objects, observers(f"{point.label} seed {seed}"))
            journals.append(found if isinstance(found, list) else [])
            note = note or (found if isinstance(found, str) else "")
        rounds |= {round_ for journal in journals for round_ in final_rounds(journal)}
        outcomes.append(_outcome(point, journals, first.job.task.score, note))
    score = first.job.task.score or "loss"
    tuning = Tuning(axes, tuple(outcomes), score, tuple(seeds), config.method.yields, tuple(sorted(rounds)))
    write_whole(out / "tune.json", json.dumps(tuning.as_dict(), indent=2, allow_nan=False).encode() + b"\n")
    return tuning


def _on_validation(config: RunConfig) -> RunConfig:
    """The same run, judged on a validation part and on nothing else."""
    data = config.data if config.data.validation else replace(config.data, validation=VALIDATION)
    run = replace(config.run, evaluate_on="validation", target_accuracy=None, stop_at_target=False, holdout_clients=0)
    return replace(config, run=run, data=data)


def _outcome(point: Point, journals: list[list[dict[str, Any]]], score: str | None, note: str) -> Outcome:
    figures = []
    for journal in journals:
        if not evaluations(journal):
            return Outcome(point, None, 0.0, None, note or "nothing to evaluate on")
        loss = final(journal, "loss")
        figures.append((final(journal, score) if score else -loss, loss))
    scores = [value for value, _ in figures]
    spread = stdev(scores) if len(scores) > 1 else 0.0
    return Outcome(point, fmean(scores), spread, fmean(loss for _, loss in figures), "")


def _plain(outcome: Outcome) -> dict[str, Any]:
    finite = outcome.loss is not None and math.isfinite(outcome.loss)
    return {
        "values": outcome.point.values,
        "score": outcome.score,
        "spread": outcome.spread,
        "loss": outcome.loss if finite else None,
        "note": outcome.note,
    }
