"""Sums that are the same in every version of Python."""

from __future__ import annotations

from fedgsp.core.adding import added


def test_each_is_added_to_those_before() -> None:
    # 0.1 ten times, by hand: rounding to the nearest double after each step. Python 3.12's `sum` says 1.0.
    assert added([0.1] * 10) == 0.9999999999999999
    assert added([1e16, 1.0, -1e16]) == 0.0


def test_whole_numbers_stay_whole_and_none_are_zero() -> None:
    assert repr(added(iter([2, 3]))) == "5"
    assert added([]) == 0
