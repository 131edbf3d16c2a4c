"""Adding numbers one after the other, the same way in every version of Python."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import reduce
from typing import TypeVar

Number = TypeVar("Number", int, float)


def added(values: Iterable[Number]) -> Number:
    """The sum, each number added to that of those before it.

    From Python 3.12 on `sum` carries the rounding errors of floats along, so its last bits depend on the version. Figures that
    are recorded or compared must not.

    Args:
        values: Floats, or whole numbers, whose sum stays whole.

    Returns:
        Their sum; 0 of none.
    """
    return reduce(operator.add, values, 0)
