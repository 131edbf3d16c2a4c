"""Tuning whose best value is not at an edge: a grid, then values beyond its edges until the best lies inside.

Every point of the grid is tried with the first seed. Then the best and its neighbours on every axis are tried with all seeds,
and so on from the best of these, until it has no neighbour that was not tried. A neighbour beyond the edge is a new value of
its axis, as far from the last as the axis' own values are from each other. So the best is at an edge only if the limit says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from fedgsp.run.metrics import final_rounds
from fedgsp.study.grid import Axis, Grid, parse_grid, point
from fedgsp.study.tune import PointResult, RunPoint, Tuning, result_of

if TYPE_CHECKING:
    from fedgsp.run.config import RunConfig
    from fedgsp.study.history import History

Values = tuple[Any, ...]


def climb(
    config: RunConfig,
    grid: Grid,
    run: RunPoint,
    *,
    seeds: Sequence[int] = (0,),
    score: str | None = "accuracy",
    limit: int = 3,
) -> Tuning:
    """The best of a grid that is widened until the best is not at its edge.

    Args:
        config: What is tuned, evaluated on the validation part.
        grid: NAME=VALUE,VALUE,... texts.
        run: Gives the journal of a point's run, or a text where it diverged.
        seeds: The first is that of every point; the best and its neighbours have all of them.
        score: The metric that decides. None: the loss.
        limit: How many values an axis gets at most beyond those of the grid.
    """
    axes = parse_grid(grid, config.method)
    tried = _Tried(config, axes, run, seeds, score, limit)
    for values in product(*(axis.values for axis in axes)):
        tried.take(values, seeds[:1])
    while (top := tried.best()) is not None:
        missing = [values for values in (top, *tried.neighbours(top)) if not tried.whole(values)]
        if not missing:
            break
        for values in missing:
            tried.take(values, seeds)
    return tried.tuning()


def beyond(ladder: Sequence[float], *, up: bool) -> float | None:
    """The value that goes on behind an end of some that grow by factors; None where there is none.

    Example:
        >>> beyond([0.003, 0.01, 0.03, 0.1], up=True), beyond([0.01, 0.1, 1], up=False)
        (0.3, 0.001)
    """
    steps = list(ladder if up else reversed(ladder))
    if len(steps) < 2 or min(steps) <= 0:
        return None
    found = steps[-2] * steps[-1] / steps[-3] if len(steps) > 2 else steps[-1] * steps[-1] / steps[-2]
    found = round(found) if all(isinstance(value, int) for value in ladder) else float(f"{found:.6g}")
    if found <= 0:
        return None
    return found if (found > steps[-1] if up else found < steps[-1]) else None


class _Tried:
    """The points that were tried, by their values, with the journals of their seeds."""

    def __init__(
        self, config: RunConfig, axes: Sequence[Axis], run: RunPoint, seeds: Sequence[int], score: str | None, limit: int
    ) -> None:  # fmt: skip
        self._config, self._axes, self._run, self._seeds, self._score, self._limit = config, axes, run, seeds, score, limit
        self._ladders = [list(axis.values) for axis in axes]
        self._found: dict[Values, dict[int, History | str]] = {}

    def take(self, values: Values, seeds: Sequence[int]) -> None:
        """Run a point with those of some seeds that it lacks."""
        chosen = point(list(zip(self._axes, values, strict=True)), self._config.method)
        by_seed = self._found.setdefault(values, {})
        for seed in seeds:
            if seed not in by_seed:
                run = replace(self._config.run, seed=seed)
                by_seed[seed] = self._run(chosen, replace(self._config, method=chosen.method, run=run))

    def whole(self, values: Values) -> bool:
        """Whether a point was tried with every seed."""
        return len(self._found.get(values, ())) == len(self._seeds)

    def best(self) -> Values | None:
        """The best of the points with all seeds, if there are such; None if all diverged."""
        scores = {values: self._result(values).score for values in self._found}
        sure = {values: score for values, score in scores.items() if score is not None and self.whole(values)}
        known = sure or {values: score for values, score in scores.items() if score is not None}
        return max(known, key=lambda values: known[values]) if known else None

    def neighbours(self, top: Values) -> list[Values]:
        """The next values up and down on every axis of numbers; a new one at an edge, up to the limit."""
        found = []
        for at, ladder in enumerate(self._ladders):
            if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in ladder):
                continue
            for up in (False, True):
                ladder.sort()
                if top[at] == ladder[-1 if up else 0]:
                    new = beyond(ladder, up=up) if len(ladder) < len(self._axes[at].values) + self._limit else None
                    ladder += [] if new is None else [new]
                ladder.sort()
                where = ladder.index(top[at]) + (1 if up else -1)
                if 0 <= where < len(ladder):
                    found.append((*top[:at], ladder[where], *top[at + 1 :]))
        return found

    def tuning(self) -> Tuning:
        """All that was tried."""
        axes = tuple(replace(axis, values=tuple(ladder)) for axis, ladder in zip(self._axes, self._ladders, strict=True))
        histories = [h for by_seed in self._found.values() for h in by_seed.values() if not isinstance(h, str)]
        rounds = sorted({round_ for history in histories for round_ in final_rounds(history)})
        outcomes = tuple(self._result(values) for values in self._found)
        told = {"name": "climb", "limit": self._limit}
        return Tuning(
            axes, outcomes, self._score or "loss", tuple(self._seeds), self._config.method.yields, tuple(rounds), told
        )  # fmt: skip

    def _result(self, values: Values) -> PointResult:
        chosen = point(list(zip(self._axes, values, strict=True)), self._config.method)
        found = list(self._found[values].values())
        note = next((one for one in found if isinstance(one, str)), "")
        return result_of(chosen, [[] if isinstance(one, str) else one for one in found], self._score, note)
