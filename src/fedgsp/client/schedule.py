"""Schedules by round: factors that the local learning rate is multiplied with, and local epochs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from fedgsp.core.errors import InputError
from fedgsp.core.params import require_real, require_whole
from fedgsp.core.part import Part

Value = TypeVar("Value", int, float)


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
    """Multiply by `rate` every `every` rounds, never below `floor` of the first.

    Args:
        rate: What the learning rate is multiplied by.
        every: After how many rounds.
        floor: The least share of the first learning rate.
    """

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
    """From 1 down to `floor` along half a cosine over `rounds` rounds, `floor` afterwards.

    Args:
        rounds: How many rounds the half cosine lasts.
        floor: The share of the learning rate that is left at the end.
    """

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
    """Grow in equal parts over the first `rounds` rounds, then go on as another schedule does from its first round.

    Args:
        rounds: How many rounds the learning rate grows for.
        schedule: What comes afterwards, from its first round on.
    """

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


@dataclass(frozen=True)
class Piecewise(LearningRateSchedule):
    """Another factor from certain rounds on.

    Args:
        factors: (round, factor) in order of rounds: from that round on, that factor. Before the first it is 1.

    Raises:
        InputError: If the rounds do not increase, or a factor is not positive.

    Example:
        >>> [Piecewise(((3, 0.5), (5, 0.1))).factor(r) for r in (1, 2, 3, 4, 5, 99)]
        [1.0, 1.0, 0.5, 0.5, 0.1, 0.1]
    """

    kind: ClassVar[str] = "piecewise"

    factors: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        check_pieces("a piecewise schedule", "factors", self.factors)
        if not all(require_real("a piecewise schedule", "factors", factor) > 0 for _, factor in self.factors):
            raise InputError(f"a piecewise schedule needs positive factors, not {self.factors}.")

    def factor(self, round_: int) -> float:
        """That of the last piece that has begun."""
        return piece_at(self.factors, round_, 1.0)


def check_pieces(where: str, name: str, pieces: Sequence[tuple[int, float]]) -> None:
    """Raise an InputError unless they are pairs of a round, counted from 1 and increasing, and a value."""
    if not all(isinstance(piece, tuple) and len(piece) == 2 for piece in pieces):
        raise InputError(f"{where}: {name} must be pairs (from round, value), not {pieces!r}.")
    rounds = [round_ for round_, _ in pieces]
    for round_ in rounds:
        require_whole(where, f"a round of {name}", round_, at_least=1)
    if rounds != sorted(set(rounds)):
        raise InputError(f"{where}: the rounds of {name} must increase, not {rounds}.")


def piece_at(pieces: Sequence[tuple[int, Value]], round_: int, before: Value) -> Value:
    """The value of the last piece that has begun in a round; `before` any has."""
    return next((value for begin, value in reversed(pieces) if begin <= round_), before)
