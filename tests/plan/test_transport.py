from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedgsp.plan.loops import _code
from fedgsp.plan.transport import WORTH_COMPILING, assign_equally


def total(cost: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    return float(cost[np.arange(len(labels)), labels].sum())


def by_brute_force(cost: NDArray[np.float64]) -> float:
    """The least cost over every way to fill equal clusters."""
    points, clusters = cost.shape
    slots = np.repeat(np.arange(clusters), points // clusters)
    return min(total(cost, np.array(labels)) for labels in set(permutations(slots.tolist())))


def by_replication(cost: NDArray[np.float64]) -> float:
    """The slow plain version: every cluster as often as it has places, then the assignment problem."""
    size = len(cost) // cost.shape[1]
    rows, columns = linear_sum_assignment(np.repeat(cost, size, axis=1))
    return float(cost[rows, columns // size].sum())


@pytest.mark.parametrize(("points", "clusters"), [(6, 2), (6, 3), (4, 4), (8, 2), (5, 1), (1, 1), (9, 3)])
def test_the_optimum_of_brute_force(points: int, clusters: int) -> None:
    for seed in range(4):
        cost = np.random.default_rng(seed).integers(0, 20, (points, clusters)).astype(np.float64)
        found = assign_equally(cost)
        assert np.bincount(found.labels, minlength=clusters).tolist() == [points // clusters] * clusters
        assert total(cost, found.labels) == by_brute_force(cost)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 1000]))
def test_the_optimum_of_the_slow_plain_version_from_any_prices(clusters: int, size: int, seed: int, spread: int) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.integers(-spread, spread + 1, (clusters * size, clusters)).astype(np.float64)
    expected = by_replication(cost)
    for prices in (None, rng.integers(-2 * spread, 2 * spread, clusters).astype(np.float64)):
        found = assign_equally(cost, prices)
        assert (np.bincount(found.labels, minlength=clusters) == size).all()
        assert total(cost, found.labels) == expected
        # the proof of optimality: with its price, everybody's own cluster is the cheapest for it, exactly
        priced = cost + found.prices
        assert (priced[np.arange(len(cost)), found.labels] == priced.min(axis=1)).all()


def test_real_valued_costs_up_to_rounding() -> None:
    cost = np.random.default_rng(0).normal(size=(120, 8))
    assert total(cost, assign_equally(cost).labels) == pytest.approx(by_replication(cost), rel=1e-12)


def test_the_given_prices_are_left_alone() -> None:
    prices = np.zeros(2)
    assert assign_equally(np.array([[0.0, 5.0], [0.0, 9.0]]), prices).labels.tolist() == [1, 0]
    assert prices.tolist() == [0, 0]


def test_unequal_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="7 points cannot be shared equally by 2"):
        assign_equally(np.zeros((7, 2)))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1), st.sampled_from([1, 4, 1000, None]))
def test_compiled_and_plain_code_give_the_same_bits(clusters: int, size: int, seed: int, spread: int | None) -> None:
    """Also where many points are equally cheap to move, so that ties decide."""
    if _code() is None:
        pytest.skip("there is no C compiler")
    rng = np.random.default_rng(seed)
    shape = (clusters * size, clusters)
    cost = rng.normal(size=shape) if spread is None else rng.integers(-spread, spread + 1, shape).astype(np.float64)
    prices = rng.normal(size=clusters) if spread is None else rng.integers(-9, 9, clusters).astype(np.float64)
    plain, fast = (assign_equally(cost, prices, compile_from=size) for size in (10**9, 0))
    assert np.array_equal(plain.labels, fast.labels)
    assert np.array_equal(plain.prices, fast.prices)


def test_large_problems_are_the_same_with_and_without_a_compiler() -> None:
    cost = np.random.default_rng(0).integers(0, 50, (240, 12)).astype(np.float64)
    assert cost.size > WORTH_COMPILING
    assert np.array_equal(assign_equally(cost).labels, assign_equally(cost, compile_from=10**9).labels)


def test_useless_prices_do_not_matter() -> None:
    cost = np.random.default_rng(1).integers(0, 50, (60, 5)).astype(np.float64)
    misled = assign_equally(cost, np.array([1e6, 0.0, 0.0, 0.0, 0.0]))
    assert np.array_equal(misled.labels, assign_equally(cost).labels)


def test_few_clusters_of_many_points_with_ties_are_the_same_with_and_without_a_compiler() -> None:
    """Machine code takes the next cheapest point off a heap there."""
    rng = np.random.default_rng(5)
    for turn in range(12):
        clusters, size, spread = int(rng.integers(2, 17)), int(rng.integers(1, 40)), (2, 5, 10**6)[turn % 3]
        cost = rng.integers(0, spread, (clusters * size, clusters)).astype(np.float64)
        cost[:, 0] -= spread * (turn % 2)  # all want to go to the first
        compiled, plain = (assign_equally(cost, compile_from=at) for at in (0, 10**9))
        assert compiled.labels.tolist() == plain.labels.tolist()
        assert compiled.prices.tolist() == plain.prices.tolist()
