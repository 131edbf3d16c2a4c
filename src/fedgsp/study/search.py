"""Optuna as the driver of `tune`: it chooses points one after the other, and stops those that others have left behind.

Nothing of the search itself is stored. A trial's values follow from the seed and from what the trials before it gave; their
runs are folders, which are only read once they are finished. So the same call goes through the same trials again, whatever
stopped it, and more trials go on behind the last. A run that is stopped early is whole up to its last round, and tells the
pruner the same figures when it is read again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError, Paused
from fedgsp.core.imports import need
from fedgsp.core.seeds import LARGEST_SEED
from fedgsp.run.callbacks import Callback
from fedgsp.run.metrics import final_rounds
from fedgsp.run.reader import read_history
from fedgsp.study.grid import Axis, Grid, Point, Range, parse_grid, point
from fedgsp.study.tune import PointResult, Tuning, result_of

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.run.config import RunConfig
    from fedgsp.study.history import History

MEDIAN_OF = 4
"""Trials that come to their end before the first may be stopped early."""
WARM_UP = 5
"""The first of so many parts of a run's rounds is never cut short."""
WIDE = 10
"""Where the largest value of a grid is so many times the least, orders of magnitude are alike."""


@dataclass(frozen=True)
class Optuna:
    """Search with Optuna (`pip install 'fedgsp[optuna]'`): the Tree-structured Parzen Estimator, and a median pruner.

    Args:
        trials: How many points are tried; a point that is chosen again is not run again.
        seed: Of the choices. The same seed gives the same trials.
        prune: Stop a trial whose best score so far is below the median of the trials that came to their end.
        sampler: One of `optuna.samplers` in place of the usual one; seed it, so that a stopped search can go on.
        pruner: One of `optuna.pruners` in place of the usual one.

    Example:
        >>> import fedgsp
        >>> space = {"lr": fedgsp.Range(0.001, 1, log=True)}
        >>> found = fedgsp.tune("fedavg", space, driver=fedgsp.Optuna(trials=2), data="glyphs:clients=10", rounds=1, workers=0)
        >>> [0.001 <= row["lr"] <= 1 for row in found.rows]
        [True, True]
    """

    trials: int = 20
    seed: int = 0
    prune: bool = True
    sampler: Any = field(default=None, repr=False)
    pruner: Any = field(default=None, repr=False)

    def check(self) -> None:
        """See `Driver`."""
        need("optuna", "optuna", "searching with `driver='optuna'`")
        if self.trials < 1:
            raise InputError(f"`trials=` must be at least 1, not {self.trials}.")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise InputError(f"the seed of a search is a whole number from 0 to {LARGEST_SEED}, not {self.seed}.")

    def search(
        self,
        config: RunConfig,
        axes: Sequence[Axis],
        run: Callable[..., History | str],
        place: Callable[[Point, int], Path],
        *,
        seeds: Sequence[int],
        score: str | None,
    ) -> Tuning:
        """See `Driver`."""
        outcomes: dict[str, PointResult] = {}
        rounds: set[int] = set()
        with _quiet():
            study = self._study(config.run.rounds)
            for _ in range(self.trials):
                trial = study.ask()
                chosen = point([(axis, _suggested(trial, axis)) for axis in axes], config.method)
                chosen.method.check()
                tried = _Trial(trial, chosen, score, config.run.rounds, self.prune)
                for seed in seeds:
                    unit = replace(config, method=chosen.method, run=replace(config.run, seed=seed))
                    tried.take(unit, run, place(chosen, seed))
                    if tried.over:
                        break
                result, before = tried.result(), outcomes.get(chosen.label)
                outcomes[chosen.label] = result if before is None or before.score is None else before
                rounds |= tried.final_rounds()
                study.tell(trial, result.score, state=None if result.score is not None else _pruned())
        told = {"name": "optuna", "trials": self.trials, "seed": self.seed, "prune": self.prune}
        found, window = tuple(outcomes.values()), tuple(sorted(rounds))
        return Tuning(tuple(axes), found, score or "loss", tuple(seeds), config.method.yields, window, told)

    def _study(self, rounds: int) -> Any:
        import optuna

        sampler = copy.deepcopy(self.sampler) or optuna.samplers.TPESampler(seed=self.seed)
        warm_up = 1 + max(1, rounds // WARM_UP)  # the first step that may be the last
        usual = optuna.pruners.MedianPruner(n_startup_trials=MEDIAN_OF, n_warmup_steps=warm_up)
        pruner = (copy.deepcopy(self.pruner) or usual) if self.prune else optuna.pruners.NopPruner()
        return optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)


class _Trial:
    """A point that is being tried: its runs, and what Optuna is told of them."""

    def __init__(self, trial: Any, chosen: Point, score: str | None, rounds: int, prune: bool) -> None:
        self._trial, self._point, self._score, self._rounds, self._prune = trial, chosen, score, rounds, prune
        self._histories: list[History] = []
        self._note = ""
        self._pruned = 0

    @property
    def over(self) -> bool:
        """Whether it diverged or was stopped: no other seed need be run."""
        return bool(self._note or self._pruned)

    def take(self, unit: RunConfig, run: Callable[..., History | str], directory: Path) -> None:
        """Run it with one seed, or read what was run before."""
        watch = _Watch(self._trial, self._score, len(self._histories), self._rounds, self._prune)
        if (directory / "journal.jsonl").exists():
            watch.see(read_history(directory)[: self._rounds])
        if not watch.pruned:
            found = run(self._point, unit, watch)
            if isinstance(found, str):
                self._note = found
                return
            watch.see(found)
            self._histories.append(found)
        self._pruned = watch.pruned

    def result(self) -> PointResult:
        """The figures, or why there are none."""
        if self._note or self._pruned:
            said = self._note or f"stopped after round {self._pruned}: others were better by then"
            return PointResult(self._point, None, 0.0, None, said, self._pruned)
        return result_of(self._point, self._histories, self._score, "")

    def final_rounds(self) -> set[int]:
        """The rounds that its score is the mean of."""
        return set() if self.over else {round_ for history in self._histories for round_ in final_rounds(history)}


class _Watch(Callback):
    """Tells Optuna each round's figure once, and stops the run when it says so."""

    def __init__(self, trial: Any, score: str | None, runs_before: int, rounds: int, prune: bool) -> None:
        self._trial, self._score, self._before, self._rounds = trial, score, runs_before * rounds, rounds
        self._prune = prune
        self._seen = 0
        self.pruned = 0

    def see(self, history: Sequence[dict[str, Any]]) -> None:
        """Journal lines, each looked at once, up to the one that ends the trial."""
        for entry in history:
            if self.pruned or entry["round"] <= self._seen:
                continue
            self._seen = entry["round"]
            value = entry.get(self._score or "loss")
            if value is None or not self._prune:
                continue
            self._trial.report(value if self._score else -value, self._before + entry["round"])
            if entry["round"] < self._rounds and self._trial.should_prune():  # behind the last nothing is saved
                self.pruned = entry["round"]

    def on_round_end(self, entry: dict[str, Any]) -> None:
        """Stop behind a round that is written down."""
        self.see([entry])
        if self.pruned:
            raise Paused(f"stopped after round {self.pruned}: other points of the search were better by then.")


def searched(grid: Grid, method: Method) -> Grid:
    """What is searched where nobody said: the parts' own grids, as ranges between their ends."""
    found: dict[str, Sequence[Any] | Range] = {}
    for axis in parse_grid(grid, method):
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in axis.values)
        low, high = (min(axis.values), max(axis.values)) if numbers else (0, 0)
        found[axis.name] = Range(low, high, log=low > 0 and high >= WIDE * low) if low < high else axis.values
    return found


def _suggested(trial: Any, axis: Axis) -> Any:
    """A value of an axis; real numbers with four digits, as folders have them."""
    within = axis.within
    if within is None:
        return trial.suggest_categorical(axis.name, list(axis.values))
    if isinstance(within.low, int) and isinstance(within.high, int):
        return trial.suggest_int(axis.name, within.low, within.high, log=within.log)
    drawn = float(f"{trial.suggest_float(axis.name, within.low, within.high, log=within.log):.4g}")
    return min(max(drawn, within.low), within.high)


def _pruned() -> Any:
    from optuna.trial import TrialState

    return TrialState.PRUNED


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna says a line for every study; what there is to say is in the result."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
