"""How many groups there are in round r: the growth functions f(r) of Section 3.1, which turn sequential into parallel.

Each is evaluated exactly (see `exact`), so that a schedule never depends on how a float happens to be rounded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from math import floor, log, log1p
from typing import Protocol

from fedgsp.core.errors import InputError
from fedgsp.plan.checks import require_real, require_whole
from fedgsp.plan.exact import as_written, certain_floor, to_decimal

MOST_GROUPS = 10**12
"""No formula is followed beyond this: it is more groups than there are clients anywhere, and Exp would not fit in memory."""


class Growth(Protocol):
    """A group number growth function f."""

    def wanted(self, round_: int) -> int | None:
        """What the formula says for `round_` (1 = the first), at most MOST_GROUPS; None means "one group per client"."""
        ...

    def groups(self, round_: int, clients: int) -> int:
        """The number of groups of `clients` clients in `round_`: as wanted, but no more than there are clients."""
        ...


class _Capped(ABC):
    """The paper's cap: f(r) groups, but never more than K, since a group needs a client."""

    @abstractmethod
    def wanted(self, round_: int) -> int | None:
        """f(r), or None for as many as there are clients."""

    def groups(self, round_: int, clients: int) -> int:
        """min(f(r), K), at least 1."""
        _require_round(round_)
        if clients < 1:
            raise ValueError("groups need at least one client")
        wanted = self.wanted(round_)
        return clients if wanted is None else max(1, min(wanted, clients))


def _require_round(round_: int) -> None:
    if round_ < 1:
        raise ValueError(f"rounds are counted from 1, not {round_}")


@dataclass(frozen=True)
class _Growing(_Capped):
    """beta * floor(something that starts at 1 and grows with alpha)."""

    alpha: float
    beta: int

    def __post_init__(self) -> None:
        name = type(self).__name__
        if require_real(name, "alpha", self.alpha) < 0:
            raise InputError(f"{name}: alpha must not be negative, but is {self.alpha!r}; 0 keeps beta groups for ever.")
        require_whole(name, "beta", self.beta, at_least=1)

    def wanted(self, round_: int) -> int:
        """beta times the floor of the formula, at most MOST_GROUPS."""
        _require_round(round_)
        steps = self._steps(as_written(self.alpha), round_)
        return min(int(self.beta) * steps, MOST_GROUPS)

    @abstractmethod
    def _steps(self, alpha: Fraction, round_: int) -> int:
        """The floor of the formula."""


@dataclass(frozen=True)
class Linear(_Growing):
    """f(r) = beta * floor(alpha (r - 1) + 1): smooth growth."""

    def _steps(self, alpha: Fraction, round_: int) -> int:
        return floor(alpha * (round_ - 1) + 1)


@dataclass(frozen=True)
class Log(_Growing):
    """f(r) = beta * floor(alpha ln r + 1): fast first and slow later; with alpha 2 and beta 10 the paper's choice."""

    alpha: float = 2.0
    beta: int = 10

    def _steps(self, alpha: Fraction, round_: int) -> int:
        if round_ == 1 or alpha == 0:
            return 1
        # For a rational alpha > 0 and r >= 2, alpha ln r is never rational (Lindemann), so some precision decides.
        return certain_floor(lambda: to_decimal(alpha) * Decimal(round_).ln() + 1)


@dataclass(frozen=True)
class Exp(_Growing):
    """f(r) = beta * floor((1 + alpha)^(r - 1)): slow first and fast later."""

    def _steps(self, alpha: Fraction, round_: int) -> int:
        base = 1 + alpha
        if round_ == 1 or base == 1:
            return 1
        if base.denominator == 1:
            # A base of 2 or more passes MOST_GROUPS, which is below 2^40, within 40 rounds.
            power: int = base.numerator ** min(round_ - 1, 40)
            return min(power, MOST_GROUPS)
        # The rate is made a little smaller, so that stopping early is never too early; fractions cannot overflow.
        if (round_ - 1) * Fraction(0.999 * log1p(float(alpha))) > log(MOST_GROUPS):
            return MOST_GROUPS
        # A power of a fraction that is not whole is not whole, so some precision decides.
        return certain_floor(lambda: _power(base, round_ - 1))


def _power(base: Fraction, exponent: int) -> Decimal:
    """base^exponent to the current precision: a power multiplies its base's error by the exponent, hence more digits."""
    with localcontext() as context:
        context.prec += exponent.bit_length() // 3 + 2
        return to_decimal(base) ** exponent


@dataclass(frozen=True)
class Constant(_Capped):
    """f(r) = `count` in every round: NaiveGSP, and every method that does not grow."""

    count: int = 10

    def __post_init__(self) -> None:
        require_whole("Constant", "count", self.count, at_least=1)

    def wanted(self, round_: int) -> int:
        """The same in every round."""
        return int(self.count)


@dataclass(frozen=True)
class Singletons(_Capped):
    """f(r) = K: every client a group of its own, which is FedAvg."""

    def wanted(self, round_: int) -> int | None:
        """As many groups as there are clients, however many these are."""
        return None
