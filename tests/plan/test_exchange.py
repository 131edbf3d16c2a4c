from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedgsp.plan.compiled import compiled
from fedgsp.plan.exchange import balance, thresholds
from fedgsp.plan.loops import exchange

NEVER = 10**12


def squares(vectors: NDArray[np.float64], labels: NDArray[np.int64], groups: int) -> float:
    sums = np.zeros((groups, vectors.shape[1]))
    np.add.at(sums, labels, vectors)
    return float((sums**2).sum())


def problem(seed: int, clients: int, groups: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Vectors with zero rows for the empty places at the end, and labels with at most one of these in a group."""
    rng = np.random.default_rng(seed)
    empty = -clients % groups
    vectors = np.concatenate([rng.integers(-9, 10, (clients, 3)), np.zeros((empty, 3))]).astype(np.float64)
    real = np.arange(groups * (-(-clients // groups))) % groups
    return vectors, real[: clients + empty].astype(np.int64)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 25), st.data())
def test_compiled_and_plain_code_take_the_same_steps(seed: int, clients: int, data: st.DataObject) -> None:
    if compiled(exchange) is None:
        pytest.skip("Numba is not installed")
    groups = data.draw(st.integers(1, clients))
    vectors, labels = problem(seed, clients, groups)
    rng = np.random.default_rng(seed)
    visits, limits = rng.integers(0, clients, 60), thresholds(vectors, 60, data.draw(st.sampled_from([0.0, 0.5])))
    plain, fast = labels.copy(), labels.copy()
    swaps = [balance(vectors, own, groups, clients, visits, limits, compile_from=at) for own, at in ((plain, NEVER), (fast, 0))]
    assert np.array_equal(plain, fast)
    assert swaps[0] == swaps[1]


@pytest.mark.parametrize(("clients", "groups"), [(12, 3), (13, 3), (14, 5), (9, 9), (9, 1)])
def test_sizes_stay_and_without_heat_the_sum_only_falls(clients: int, groups: int) -> None:
    for seed in range(10):
        vectors, labels = problem(seed, clients, groups)
        before = squares(vectors, labels, groups)
        for visit in np.random.default_rng(seed).integers(0, clients, 40):
            balance(vectors, labels, groups, clients, np.array([visit]), np.zeros(1))
            after = squares(vectors, labels, groups)
            assert after <= before
            before = after
        sizes = np.bincount(labels[:clients], minlength=groups)
        assert sizes.max() - sizes.min() <= 1
        assert np.bincount(labels[clients:], minlength=groups).max(initial=0) <= 1


def test_the_best_partner_is_the_best_of_all_swaps() -> None:
    for seed in range(20):
        vectors, labels = problem(seed, 10, 4)
        outcomes = [squares(vectors, labels, 4)]
        for other in range(12):
            swapped = labels.copy()
            swapped[[3, other]] = swapped[[other, 3]]
            if np.bincount(swapped[10:], minlength=4).max() <= 1:
                outcomes.append(squares(vectors, swapped, 4))
        balance(vectors, labels, 4, 10, np.array([3]), np.zeros(1))
        assert squares(vectors, labels, 4) == min(outcomes)


def test_thresholds_fall_to_zero() -> None:
    limits = thresholds(np.array([[3.0, 4.0], [0.0, 5.0]]), 4, 2.0)
    assert limits.tolist() == pytest.approx([(2 * 0.75) ** 2 * 25, 25, (2 * 0.25) ** 2 * 25, 0])
    assert (np.diff(limits) < 0).all()
    assert len(thresholds(np.zeros((0, 2)), 0, 1.0)) == 0
