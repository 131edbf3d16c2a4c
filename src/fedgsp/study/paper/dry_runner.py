"""A runner that trains nothing: it counts what a study will want, for `fedgsp study --estimate` and for the progress lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedgsp.study.paper.runner import PaperRunner, Tuned, facts_of
from fedgsp.study.records import Trace
from fedgsp.study.units import DIVERGED, UNIT, finished_history, is_done, key_of

if TYPE_CHECKING:
    from fedgsp.run.config import RunConfig
    from fedgsp.study.history import History
    from fedgsp.study.paper.dealing import Dealing
    from fedgsp.study.tune import Tuning

NOT_RUN = "not run"


@dataclass(frozen=True)
class PlannedUnit:
    """A unit that a study will want: its steps, whether it is finished already, and a step's seconds."""

    name: str
    rounds: int
    steps: int
    step_seconds: float
    done: bool

    @property
    def seconds(self) -> float:
        """Of one core, if it is not finished."""
        return 0.0 if self.done else self.steps * self.step_seconds


class DryRunner(PaperRunner):
    """Counts in place of training: `planned` has every unit that a study asked for, once.

    Args:
        arguments: As for `PaperRunner`.
        timed: Whether a step of every unfinished run's model is measured.
        options: As for `PaperRunner`.
    """

    def __init__(self, *arguments: Any, timed: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.planned: dict[str, PlannedUnit] = {}
        self._timed = timed

    def trace(self, name: str, config: RunConfig) -> Trace:
        """Count a run; what is stored is given, since a choice may hang on it."""
        key, rounds = key_of(config, self.facts.fingerprint), config.run.rounds
        known = self.planned.get(key)
        if known is None or known.rounds < rounds:
            done = self._finished(name, config)
            seconds = self.step_seconds(config) if self._timed and not done else 0.0
            label = f"{name}, {config.model.name}, seed {config.run.seed}"
            self.planned[key] = PlannedUnit(label, rounds, self.steps(config), seconds, done)
        return self._stored(config) or Trace(name, [], {}, {}, NOT_RUN)

    def chosen(self, found: Tuning, config: RunConfig) -> Tuned:
        """What a grid will choose is only known if all its points are finished."""
        if all(outcome.note != NOT_RUN for outcome in found.outcomes):
            return super().chosen(found, config)
        other = config.method.local.lr * (1 + 1e-9)  # stands for the one that will be chosen: a unit of its own
        return Tuned(replace(config.method, local=replace(config.method.local, lr=other)), "?")

    def dealing_facts(self, dealing: Dealing) -> dict[str, Any]:
        """As far as they decide what is run."""
        super().dealing_facts(dealing)
        return facts_of(self._hands(dealing), skew=False)

    def computed(self, name: str, key: Mapping[str, Any], work: Callable[[], Any]) -> Any:
        """Count a piece of computing, which takes seconds at most."""
        unit = self.computing_unit(name, key)
        done = (self.store is not None and unit in self.store.units) or (self.out / "units" / unit / UNIT).exists()
        self.planned[unit] = PlannedUnit(name, 0, 0, 0.0, done)
        return {}

    def _history(self, name: str, config: RunConfig) -> History | str:
        self.trace(name, config)
        stored, directory = self._stored(config), self.folder(name, config)
        if stored is not None:
            return stored.diverged or stored.history
        if not is_done(directory, config.run.rounds):
            return NOT_RUN
        return finished_history(directory, config.run.rounds) or (directory / DIVERGED).read_text()

    def _finished(self, name: str, config: RunConfig) -> bool:
        stored = self.store is not None and self.store.has(key_of(config, self.facts.fingerprint), config.run.rounds)
        return stored or is_done(self.folder(name, config), config.run.rounds)
