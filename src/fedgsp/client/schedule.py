"""Learning-rate schedules by round: factors that the local learning rate is multiplied with."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fedgsp.core.errors import InputError
from fedgsp.core.part import Part


class LearningRateSchedule(Part):
    """The base of all schedules: a factor of the learning rate for every round."""

    @abstractmethod
    def factor(self, round_: int) -> float:
        """What the learning rate of round `round_` (from 1) is multiplied with."""


@dataclass(frozen=True)
class Steady(LearningRateSchedule):
    """The same learning rate in every round: the paper's choice."""

    kind: ClassVar[str] = "steady"

    def factor(self, round_: int) -> float:
        """Always 1."""
        return 1.0


@dataclass(frozen=True)
class Decay(LearningRateSchedule):
    """Multiply by `rate` every `every` rounds, never below `floor` of the first."""

    kind: ClassVar[str] = "decay"

    rate: float = 0.99
    every: int = 1
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.rate <= 1 and self.every >= 1 and 0 <= self.floor <= 1):
            raise InputError(f"a decay needs 0 < rate <= 1, every >= 1 and 0 <= floor <= 1, not {self}.")

    def factor(self, round_: int) -> float:
        """rate ** floor((r - 1) / every)."""
        return max(self.floor, self.rate ** ((round_ - 1) // self.every))


@dataclass(frozen=True)
class Cosine(LearningRateSchedule):
    """From 1 down to `floor` along half a cosine over `rounds` rounds, `floor` afterwards."""

    kind: ClassVar[str] = "cosine"

    rounds: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (self.rounds >= 1 and 0 <= self.floor <= 1):
            raise InputError(f"a cosine schedule needs rounds >= 1 and 0 <= floor <= 1, not {self}.")

    def factor(self, round_: int) -> float:
        """floor + (1 - floor) (1 + cos(pi (r - 1) / rounds)) / 2."""
        progress = min(1.0, (round_ - 1) / self.rounds)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class Warmup(LearningRateSchedule):
    """Grow in equal parts over the first `rounds` rounds, then go on as another schedule does from its first round."""

    kind: ClassVar[str] = "warmup"

    rounds: int
    schedule: LearningRateSchedule = Steady()

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"a warm-up needs rounds >= 1, not {self.rounds}.")

    def factor(self, round_: int) -> float:
        """r / (rounds + 1) while it warms up, afterwards the factor of `schedule` at round r - rounds."""
        if round_ <= self.rounds:
            return round_ / (self.rounds + 1)
        return self.schedule.factor(round_ - self.rounds)
