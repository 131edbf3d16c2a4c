from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from fedgsp.plan.exact import as_written, certain_floor


@pytest.mark.parametrize(
    ("value", "fraction"),
    [
        (0.1, Fraction(1, 10)),
        (0.7, Fraction(7, 10)),
        (2, Fraction(2)),
        (1e-300, Fraction(1, 10**300)),
        (np.float64(0.3), Fraction(3, 10)),
    ],
)
def test_a_float_is_the_decimal_a_person_wrote(value: float, fraction: Fraction) -> None:
    assert as_written(value) == fraction


def test_a_floor_is_certain_even_when_forty_digits_do_not_show_it() -> None:
    assert certain_floor(lambda: 3 - Decimal(10) ** -60) == 2
    assert certain_floor(lambda: 3 + Decimal(10) ** -60) == 3
    assert certain_floor(lambda: Decimal(2).sqrt()) == 1
    assert certain_floor(lambda: Decimal(10) ** 100 / 7) == 10**100 // 7
