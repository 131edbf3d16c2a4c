"""Floors that are right: formulas are evaluated on the numbers a person wrote, not on their binary neighbours.

0.7 * 90 is 62.99999999999999 in floats, and a floor of that trains 62 groups where the paper's formula says 63. A float is
therefore taken as the shortest decimal that denotes it (what was written in the config), as an exact fraction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction


def as_written(value: float) -> Fraction:
    """The number as a person wrote it: 0.1 is one tenth."""
    return Fraction(value) if isinstance(value, int) else Fraction(repr(float(value)))


def certain_floor(formula: Callable[[], Decimal]) -> int:
    """The floor of an irrational (or at least never whole) number, evaluated with ever more digits until it is certain.

    `formula` computes in the current decimal context; its relative error may be up to 10^(5 - precision).
    """
    digits = 40
    while True:
        with localcontext(Context(prec=digits)):
            value = formula()
        with localcontext(Context(prec=2 * digits)):
            error = abs(value).scaleb(5 - digits)
            low, high = math.floor(value - error), math.floor(value + error)
        if low == high:
            return low
        digits *= 2


def to_decimal(value: Fraction) -> Decimal:
    """The fraction rounded to the current decimal context."""
    return Decimal(value.numerator) / Decimal(value.denominator)
