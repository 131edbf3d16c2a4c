from __future__ import annotations

import math
import time
from decimal import Context, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgsp.core.errors import InputError
from fedgsp.plan import MOST_GROUPS, Constant, Exp, Growth, Linear, Log, Singletons

ROUNDS = range(1, 501)


@pytest.mark.parametrize("tenths", [1, 2, 3, 7, 9, 15])
def test_linear_is_the_formula_in_whole_numbers(tenths: int) -> None:
    growth = Linear(alpha=tenths / 10, beta=3)
    assert [growth.wanted(r) for r in ROUNDS] == [3 * ((tenths * (r - 1) + 10) // 10) for r in ROUNDS]


def test_linear_golden_values_and_a_float_trap() -> None:
    growth = Linear(0.1, 10)
    assert [growth.wanted(r) for r in (1, 10, 11, 20, 21, 31)] == [10, 10, 20, 20, 30, 40]
    assert math.floor(0.29 * 100 + 1) == 29  # what floats would say
    assert Linear(0.29, 1).wanted(101) == 30


def test_log_golden_values_of_the_paper_setting() -> None:
    growth = Log()
    assert growth == Log(alpha=2, beta=10)
    starts = {1: 10, 2: 20, 3: 30, 5: 40, 8: 50, 13: 60, 21: 70, 34: 80, 55: 90, 91: 100, 149: 110, 245: 120, 404: 130}
    for start, groups in starts.items():
        assert growth.wanted(start) == groups
        assert start == 1 or growth.wanted(start - 1) == groups - 10
    assert growth.wanted(500) == 130


def exactly(kind: type[Linear | Log | Exp], alpha: float, round_: int) -> int:
    """The floor of the formula on the number that a person wrote, to 60 digits."""
    with localcontext(Context(prec=60)):
        written = Decimal(repr(float(alpha)))
        if kind is Linear:
            return math.floor(written * (round_ - 1) + 1)
        if kind is Log:
            return math.floor(written * Decimal(round_).ln() + 1)
        return math.floor((1 + written) ** (round_ - 1))


@pytest.mark.parametrize(
    ("kind", "alphas"),
    [
        (Linear, [0.01, 0.07, 0.1, 0.29, 0.3, 0.57, 0.7, 1.1, 2.9, 3]),
        (Log, [0.05, 0.35, 0.5, 1, 1.25, 2, 2.5, 3.3, 5, 6]),
        (Exp, [0.001, 0.007, 0.01, 0.05, 0.1, 0.15, 0.2, 0.5, 1, 1.5]),
    ],
)
def test_floats_give_the_formulas_own_numbers(kind: type[Linear | Log | Exp], alphas: list[float]) -> None:
    for alpha in alphas:
        expected = [min(7 * exactly(kind, alpha, r), MOST_GROUPS) for r in ROUNDS]
        assert [kind(alpha, 7).wanted(r) for r in ROUNDS] == expected


def test_a_formula_within_rounding_of_a_whole_number_is_that_number() -> None:
    just_below, clearly_below = 1.4426950408889634, 1.44269503  # 1 / ln 2 = 1.44269504088896340736
    assert Log(just_below, 1).wanted(2) == 2
    assert Log(clearly_below, 1).wanted(2) == 1


@pytest.mark.parametrize("tenths", [1, 2, 5, 15])
def test_exp_is_the_formula_in_whole_numbers_up_to_the_limit(tenths: int) -> None:
    growth = Exp(tenths / 10, 1)
    exact = [((10 + tenths) ** (r - 1) // 10 ** (r - 1)) for r in range(1, 400)]
    assert [growth.wanted(r) for r in range(1, 400)] == [min(value, MOST_GROUPS) for value in exact]


def test_exp_golden_values_and_float_traps() -> None:
    assert [Exp(0.1, 10).wanted(r) for r in (1, 2, 8, 9, 12, 13)] == [10, 10, 10, 20, 20, 30]
    assert [Exp(1, 1).wanted(r) for r in (1, 2, 30, 31, 32)] == [1, 2, 2**29, MOST_GROUPS, MOST_GROUPS]
    assert Exp(0, 4).wanted(1000) == 4
    assert Exp(0.414213561, 1).wanted(3) == 1  # the square root of 2 is 1.414213562373095048...
    assert Exp(0.4142135624, 1).wanted(3) == 2


def test_huge_rounds_are_neither_slow_nor_too_large() -> None:
    began = time.process_time()
    assert Exp(0.1, 10).groups(10**18, 368) == 368
    assert Exp(1e-9, 1).wanted(10**9 + 1) == 2  # e = 2.718...
    assert Exp(2e-9, 1).wanted(10**9 + 1) == 7  # e^2 = 7.389...
    assert Exp(1e-300, 1).wanted(5) == 1
    assert Exp(1e300, 1).wanted(10**400) == MOST_GROUPS
    assert Log(2, 10).wanted(10**100) == 4610  # 2 * 230.2585... + 1
    assert Log(1e-300, 10).wanted(500) == 10
    assert Log(1e300, 1).wanted(2) == MOST_GROUPS
    assert Linear(1e300, 5).wanted(10**300) == MOST_GROUPS
    assert time.process_time() - began < 2


def test_constant_and_singletons() -> None:
    assert Constant() == Constant(10)
    assert [Constant(7).groups(r, 368) for r in (1, 2, 500)] == [7, 7, 7]
    assert [Singletons().groups(r, 368) for r in (1, 2, 500)] == [368, 368, 368]
    assert Constant(7).wanted(3) == 7
    assert Singletons().wanted(3) is None


def test_no_more_groups_than_clients() -> None:
    assert Constant(10).groups(1, 10) == 10
    assert Constant(11).groups(1, 10) == 10
    assert Log().groups(1, 1) == 1
    assert (Log().wanted(404), Log().groups(404, 130), Log().groups(404, 129)) == (130, 130, 129)


@given(
    st.sampled_from([Linear(0.3, 2), Log(2, 10), Log(0.7, 1), Exp(0.05, 3), Constant(5), Singletons()]),
    st.integers(1, 2000),
    st.integers(1, 600),
)
def test_growth_never_falls_and_stays_between_one_and_all(growth: Growth, round_: int, clients: int) -> None:
    now, later = growth.groups(round_, clients), growth.groups(round_ + 1, clients)
    assert 1 <= now <= later <= clients
    wanted = growth.wanted(round_)
    assert now == (clients if wanted is None else min(wanted, clients))


@pytest.mark.parametrize("kind", [Linear, Log, Exp])
@pytest.mark.parametrize("alpha", [-0.1, math.nan, math.inf, "2", None, True])
def test_a_bad_alpha_is_refused(kind: type[Linear | Log | Exp], alpha: float) -> None:
    with pytest.raises(InputError, match=rf"^{kind.__name__}: alpha .*\.$"):
        kind(alpha, 10)


@pytest.mark.parametrize("count", [0, -1, 2.5, 10.0, "10", None, True])
def test_a_bad_number_of_groups_is_refused(count: int) -> None:
    with pytest.raises(InputError, match=r"^Log: beta must be a whole number of at least 1, not .*\.$"):
        Log(2, count)
    with pytest.raises(InputError, match=r"^Constant: count must be a whole number of at least 1, not .*\.$"):
        Constant(count)


@pytest.mark.parametrize("growth", [Linear(1, 1), Log(), Exp(1, 1), Constant(), Singletons()])
def test_rounds_begin_at_one_and_somebody_must_be_there(growth: Growth) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        growth.groups(0, 10)
    with pytest.raises(ValueError, match="at least one client"):
        growth.groups(1, 0)


def test_a_formula_is_not_asked_before_round_one() -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        Log().wanted(0)
