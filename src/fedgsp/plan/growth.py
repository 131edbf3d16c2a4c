"""How many groups there are in round r: the growth functions f(r) of Section 3.1, which turn sequential into parallel.

Formulas are rounded to nine digits before their floor is taken: 0.29 * 100 + 1 is 29.999999999999996 in floats, and the paper's
formula says 30.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import floor, log
from typing import ClassVar

from fedgsp.core.errors import InputError
from fedgsp.core.params import require_real, require_whole
from fedgsp.core.part import Part

MOST_GROUPS = 10**9
"""No formula is followed beyond this: it is more groups than there are clients anywhere."""


class Growth(Part):
    """The base of all growth functions: how many groups f(r) there are in round r."""

    @abstractmethod
    def wanted(self, round_: int) -> int | None:
        """The formula's own number of groups.

        Args:
            round_: The round, 1 = the first.

        Returns:
            f(r), at most `MOST_GROUPS`; None means "one group per client".
        """

    def groups(self, round_: int, clients: int) -> int:
        """The number of groups that are formed: as wanted, but no more than there are clients.

        Args:
            round_: The round, 1 = the first.
            clients: How many clients there are.

        Returns:
            min(f(r), clients), at least 1: a group needs a client.
        """
        _require_round(round_)
        if clients < 1:
            raise ValueError("groups need at least one client")
        wanted = self.wanted(round_)
        return clients if wanted is None else max(1, min(wanted, clients))


def _require_round(round_: int) -> None:
    if round_ < 1:
        raise ValueError(f"rounds are counted from 1, not {round_}")


def floor_of(value: float) -> int:
    """The floor of a formula that was computed in floats: what is within rounding of a whole number counts as that number."""
    return floor(round(value, 9))


@dataclass(frozen=True)
class _Growing(Growth):
    """beta * floor(something that starts at 1 and grows with alpha)."""

    alpha: float
    beta: int

    def __post_init__(self) -> None:
        name = type(self).__name__
        if require_real(name, "alpha", self.alpha) < 0:
            raise InputError(f"{name}: alpha must not be negative, but is {self.alpha!r}; 0 keeps beta groups for ever.")
        require_whole(name, "beta", self.beta, at_least=1)

    def wanted(self, round_: int) -> int:
        """beta times the floor of the formula, at most MOST_GROUPS; see `Growth.wanted`."""
        _require_round(round_)
        try:
            return int(min(self.beta * floor_of(self._formula(float(self.alpha), round_)), MOST_GROUPS))
        except OverflowError:  # beyond what a float can be
            return MOST_GROUPS

    @abstractmethod
    def _formula(self, alpha: float, round_: int) -> float: ...


@dataclass(frozen=True)
class Linear(_Growing):
    """f(r) = beta * floor(alpha (r - 1) + 1): smooth growth.

    Args:
        alpha: How fast the number grows; 0 keeps `beta` groups for ever.
        beta: The number of groups in round 1, and the step by which it grows.

    Raises:
        InputError: If `alpha` is negative or not finite, or `beta` is not a whole number of at least 1.

    Example:
        >>> [Linear(alpha=0.1, beta=10).groups(r, clients=368) for r in (1, 11, 21)]
        [10, 20, 30]
    """

    kind: ClassVar[str] = "linear"

    def _formula(self, alpha: float, round_: int) -> float:
        return alpha * (round_ - 1) + 1


@dataclass(frozen=True)
class Log(_Growing):
    """f(r) = beta * floor(alpha ln r + 1): fast first and slow later; the defaults are the paper's choice.

    Args:
        alpha: How fast the number grows; 0 keeps `beta` groups for ever.
        beta: The number of groups in round 1, and the step by which it grows.

    Raises:
        InputError: If `alpha` is negative or not finite, or `beta` is not a whole number of at least 1.

    Example:
        >>> [Log().groups(r, clients=368) for r in (1, 2, 3, 5, 8, 500)]
        [10, 20, 30, 40, 50, 130]
    """

    kind: ClassVar[str] = "log"

    alpha: float = 2.0
    beta: int = 10

    def _formula(self, alpha: float, round_: int) -> float:
        return alpha * log(round_) + 1


@dataclass(frozen=True)
class Exp(_Growing):
    """f(r) = beta * floor((1 + alpha)^(r - 1)): slow first and fast later.

    Args:
        alpha: How fast the number grows; 0 keeps `beta` groups for ever.
        beta: The number of groups in round 1, by which all later ones are multiples.

    Raises:
        InputError: If `alpha` is negative or not finite, or `beta` is not a whole number of at least 1.

    Example:
        >>> [Exp(alpha=0.1, beta=10).groups(r, clients=368) for r in (1, 9, 13, 100)]
        [10, 20, 30, 368]
    """

    kind: ClassVar[str] = "exp"

    def _formula(self, alpha: float, round_: int) -> float:
        power: float = (1 + alpha) ** (round_ - 1)
        return power


@dataclass(frozen=True)
class Constant(Growth):
    """f(r) = `count` in every round: NaiveGSP, and every method that does not grow.

    Args:
        count: The number of groups.

    Raises:
        InputError: If `count` is not a whole number of at least 1.
    """

    kind: ClassVar[str] = "constant"

    count: int = 10

    def __post_init__(self) -> None:
        require_whole("Constant", "count", self.count, at_least=1)

    def wanted(self, round_: int) -> int:
        """The same in every round."""
        return int(self.count)


@dataclass(frozen=True)
class Singletons(Growth):
    """f(r) = K: every client a group of its own, which is FedAvg."""

    kind: ClassVar[str] = "singletons"

    def wanted(self, round_: int) -> int | None:
        """As many groups as there are clients, however many these are."""
        return None
