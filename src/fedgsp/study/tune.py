"""Tuning: the same method over a grid of hyper-parameters, evaluated on the validation part.

Equal learning rates are not fair: methods need different ones. So every comparison shows a method with the paper's
value and with the best of its own grid. Test data has no part in the choice: the runs here do not even look at it
(`evaluate_on = "validation"`), and the table has no test figure.

A plain grid by default: the grids that published comparisons use have a handful of points on one or two axes, all of which one
wants to see; a unit is a run directory, so that a stopped sweep goes on where it was and a finished unit is never run again,
also when the grid grows; and the outcome does not depend on the order in which units finished. For more axes, and for ranges,
Optuna chooses the points (`study/search.py`); its units are the same folders.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError
from fedgsp.core.state import Yields
from fedgsp.core.tables import frame, html_table, text_table
from fedgsp.prepare import Once
from fedgsp.report.notebook import Plot
from fedgsp.report.tune_plot import tuning_figure
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import RunConfig
from fedgsp.run.files import write_whole
from fedgsp.run.metrics import evaluations, final, final_rounds
from fedgsp.study.grid import Axis, Grid, Point, parse_grid, points, shown
from fedgsp.study.grid import point as made_point
from fedgsp.study.history import History
from fedgsp.study.units import run_unit

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.run.callbacks import Callback
    from fedgsp.study.driver import Driver

SCHEMA = 2
RunPoint = Callable[[Point, RunConfig], History | str]
"""Gives the journal of a point's run with that configuration, or a text where it diverged."""


@dataclass(frozen=True)
class PointResult:
    """What came of one grid point: figures on the validation part, the mean over its seeds; None where one diverged.

    `pruned` is the round after which a driver stopped it, since others were better by then; it has no score then either. `runs`
    is the number of its seeds.
    """

    point: Point
    score: float | None
    spread: float
    loss: float | None
    note: str
    pruned: int = 0
    runs: int = 1

    @property
    def fate(self) -> str:
        """What stands in place of a score."""
        return "" if self.score is not None else f"stopped after round {self.pruned}" if self.pruned else "diverged"


@dataclass(frozen=True, repr=False)
class Tuning:
    """A finished sweep: outcomes in the order of the grid, and the best of them.

    Args:
        axes: What was varied, with its values.
        outcomes: The points of the grid with their scores.
        score: Name of the score.
        seeds: Seeds of each point.
        yields: What the method yields: one model, several, none or personalised ones.
        rounds: Rounds whose evaluations are averaged.
        driver: Who chose the points: the grid, or a search with its settings.
    """

    axes: tuple[Axis, ...]
    outcomes: tuple[PointResult, ...]
    score: str
    seeds: tuple[int, ...]
    yields: Yields = "one"
    rounds: tuple[int, ...] = ()
    """The rounds whose evaluations are averaged: the final figure of `run/metrics.py`, on validation samples."""
    driver: Mapping[str, Any] = field(default_factory=lambda: {"name": "grid"})
    """Who chose the points, and how."""

    @property
    def best(self) -> PointResult:
        """The highest validation score (the lowest loss for tasks without one), of the points with the most seeds."""
        known = [outcome for outcome in self.outcomes if outcome.score is not None]
        whole = [outcome for outcome in known if outcome.runs == max(one.runs for one in known)]
        if not whole:
            if any(outcome.pruned for outcome in self.outcomes):
                raise InputError("every point was stopped or diverged; try other values, or a search without `prune=`.")
            raise InputError("every point of the grid diverged; try smaller learning rates.")
        return max(whole, key=lambda outcome: (outcome.score or 0.0, -self.outcomes.index(outcome)))

    @property
    def advice(self) -> tuple[str, ...]:
        """Axes whose best value lies at an end of the grid, so that a better one may lie beyond."""
        found = []
        for axis in self.axes:
            if axis.within is not None:
                continue
            numbers = sorted(v for v in axis.values if isinstance(v, int | float) and not isinstance(v, bool))
            value = self.best.point.values[axis.name]
            if len(numbers) > 1 and value in (numbers[0], numbers[-1]):
                which = "smallest" if value == numbers[0] else "largest"
                found.append(f"the best {axis.name} is the {which} tried ({shown(value)}): widen the grid there.")
        return tuple(found)

    @property
    def method(self) -> Method:
        """The method with the best values in place."""
        return self.best.point.method

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dict for every grid point: its values, and its figures on validation samples."""
        kept = ("score", "spread", "loss", "note")
        return [{**o.point.values, **{name: getattr(o, name) for name in kept}} for o in self.outcomes]

    def to_pandas(self) -> Any:
        """The outcomes as a pandas DataFrame."""
        return frame("pandas", self.rows)

    def to_polars(self) -> Any:
        """The outcomes as a polars DataFrame."""
        return frame("polars", self.rows)

    def plot(self) -> Plot:
        """The validation score over the first axis."""
        rows = [(o.point.values, o.score, o.spread) for o in self.outcomes]
        return Plot(tuning_figure(self.score, rows, joined=self.driver["name"] == "grid"))

    def _table(self) -> tuple[list[str], list[list[str]]]:
        names = [axis.name for axis in self.axes]
        rows = []
        for one in self.outcomes:
            figures = (one.fate, "", "") if one.score is None else (f"{abs(one.score):.4f}", f"{one.spread:.4f}", "")
            mark = "best" if one.score is not None and one is self.best else figures[2]
            rows.append([*(shown(one.point.values[name]) for name in names), *figures[:2], mark])
        return [*names, f"validation {self.score}", "over seeds", ""], rows

    def __repr__(self) -> str:
        heads, rows = self._table()
        return "\n".join([f"Tuning of {self.method.name}: best {self.best.point.label}", *text_table(heads, rows, most=6)])

    def _repr_html_(self) -> str:
        heads, rows = self._table()
        return html_table(f"Tuning of {self.method.name}", heads, rows, " ".join(self.advice))

    def as_dict(self) -> dict[str, Any]:
        """For tune.json: validation figures only."""
        return {
            "schema": SCHEMA,
            "evaluated_on": "validation",
            "yields": self.yields,
            "score": self.score,
            "seeds": list(self.seeds),
            "final_rounds": list(self.rounds),
            "driver": dict(self.driver),
            "grid": {axis.name: list(axis.values) if axis.within is None else asdict(axis.within) for axis in self.axes},
            "outcomes": [_plain(outcome) for outcome in self.outcomes],
            "best": _plain(self.best),
            "advice": list(self.advice),
        }


def tune(
    config: RunConfig,
    grid: Grid,
    out: Path,
    *,
    seeds: Sequence[int] = (0,),
    builder: RunBuilder = RunBuilder(),  # noqa: B008 - frozen
    callbacks: Callable[[str], Sequence[Callback]] = lambda unit: (),
    driver: Driver | None = None,
) -> Tuning:
    """Run every point of a grid with every seed, in folders below `out`; what is finished there is only read.

    Args:
        config: What is tuned. It is evaluated on the validation part, whatever it says.
        grid: NAME=VALUE,VALUE,... texts, such as `lr=0.003,0.01,0.03`.
        out: Folder of the sweep; `tune.json` is written there.
        seeds: Every point is run with each.
        builder: Data, model and the like that are given in Python.
        callbacks: Gives the callbacks of a run, by its name.
        driver: Chooses the points, in place of all of the grid.

    Returns:
        The figures of every point, and the best.

    Raises:
        InputError: The grid makes no sense, no client has a validation sample, or every point diverged.
    """
    config = config.on_validation()
    builder = replace(builder, once=builder.once or Once())
    axes = parse_grid(grid, config.method)
    if not seeds:
        raise InputError("tuning needs at least one seed.")
    if driver is None:
        first, *others = points(_listed(axes), config.method)
        for one in others:
            one.method.check()
    else:
        driver.check()
        first = made_point([(axis, axis.values[0]) for axis in axes], config.method)
    built = builder.build(replace(config, method=first.method))  # refuses what makes no sense before anything starts
    if built.data.validation.sizes[built.evaluated].sum() == 0:
        raise InputError("no client has a validation sample to choose by; keep a larger share with `validation=`.")

    def run(point: Point, unit: RunConfig, *watching: Callback) -> History | str:
        seed = unit.run.seed
        maker, told = replace(builder, method=unit.method), callbacks(f"{point.label} seed {seed}")
        return run_unit(unit, out / point.label / f"seed-{seed}", maker, [*told, *watching])

    score = built.worker_setup.task.score
    if driver is None:
        tuning = evaluate_grid(config, grid, run, seeds=seeds, score=score)
    else:
        tuning = driver.search(config, axes, run, lambda one, seed: out / one.label / f"seed-{seed}", seeds=seeds, score=score)
    write_whole(out / "tune.json", json.dumps(tuning.as_dict(), indent=2, allow_nan=False).encode() + b"\n")
    return tuning


def _listed(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    for axis in axes:
        if axis.within is not None:
            raise InputError(f"a grid has values for '{axis.name}', not a range; `driver='optuna'` searches ranges.")
    return axes


def evaluate_grid(
    config: RunConfig, grid: Grid, run: RunPoint, *, seeds: Sequence[int] = (0,), score: str | None = "accuracy"
) -> Tuning:
    """The figures of every point of a grid, whose runs `run` gives.

    Args:
        config: What is tuned, evaluated on the validation part.
        grid: NAME=VALUE,VALUE,... texts.
        run: Gives the journal of a point's run, or a text where it diverged.
        seeds: Every point is run with each.
        score: The metric that decides. None: the loss.
    """
    axes = parse_grid(grid, config.method)
    outcomes, rounds = [], set()
    for point in points(axes, config.method):
        histories, note = [], ""
        for seed in seeds:
            found = run(point, replace(config, method=point.method, run=replace(config.run, seed=seed)))
            histories.append([] if isinstance(found, str) else found)
            note = note or (found if isinstance(found, str) else "")
        rounds |= {round_ for history in histories for round_ in final_rounds(history)}
        outcomes.append(result_of(point, histories, score, note))
    return Tuning(axes, tuple(outcomes), score or "loss", tuple(seeds), config.method.yields, tuple(sorted(rounds)))


def result_of(point: Point, histories: Sequence[History], score: str | None, note: str) -> PointResult:
    """The mean over the seeds of a point; None where one of them diverged."""
    figures = []
    for history in histories:
        if not evaluations(history):
            return PointResult(point, None, 0.0, None, note or "nothing to evaluate on")
        loss = final(history, "loss")
        figures.append((final(history, score) if score else -loss, loss))
    scores = [value for value, _ in figures]
    spread = stdev(scores) if len(scores) > 1 else 0.0
    return PointResult(point, fmean(scores), spread, fmean(loss for _, loss in figures), "", runs=len(figures))


def _plain(outcome: PointResult) -> dict[str, Any]:
    finite = outcome.loss is not None and math.isfinite(outcome.loss)
    return {
        "values": outcome.point.values,
        "score": outcome.score,
        "spread": outcome.spread,
        "loss": outcome.loss if finite else None,
        "note": outcome.note,
        **({"pruned": outcome.pruned} if outcome.pruned else {}),
        **({"seeds": outcome.runs} if outcome.runs > 1 else {}),
    }
