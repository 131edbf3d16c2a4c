"""What studies speak of: a series of runs, the data they are on, and the figures of one that is finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedgsp.data import FederatedData
    from fedgsp.study.history import History


@dataclass(frozen=True)
class Arm:
    """One series of runs that differ in their seed only.

    Args:
        model: Name of the model.
        rounds: Rounds of every run.
        seeds: How many seeds.
        first_seed: The first of them; the others follow it.
        only: The methods that it is about, of those that its study has; none: all. Such a series is a longer one that stands
            beside another of the same model.
    """

    model: str
    rounds: int
    seeds: int
    first_seed: int = 0
    only: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The model; with the rounds where there is another series of it."""
        return f"{self.model}, {self.rounds} rounds" if self.only else self.model

    def named(self, method: str) -> str:
        """What a run of it is called: with the rounds where there is another series of the method."""
        return f"{method}, {self.rounds} rounds" if self.only else method

    def has(self, method: str) -> bool:
        """Whether a method is in it."""
        return not self.only or method in self.only


@dataclass(frozen=True)
class DataFacts:
    """What pages say of the data, so that they can be made without it."""

    source: str
    fingerprint: str
    clients: int
    samples: int

    @classmethod
    def of(cls, data: FederatedData, source: str) -> DataFacts:
        """Read off the data."""
        return cls(source, data.fingerprint, len(data), data.samples)


@dataclass(frozen=True)
class Trace:
    """The figures of a finished run.

    Args:
        unit: Its name.
        history: A line for every round.
        seconds: Fleet -> seconds until the end of each round.
        computing: Fleet -> seconds of the longest chains' computing until then.
        diverged: Why there is no figure, where training ran away.
    """

    unit: str
    history: History = field(repr=False)
    seconds: Mapping[str, list[float]] = field(repr=False)
    computing: Mapping[str, list[float]] = field(repr=False)
    diverged: str = ""
