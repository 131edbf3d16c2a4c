from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.plan import Balanced, Random, group_sums, objective_z
from fedgsp.plan.exchange import balance, thresholds
from fedgsp.plan.loops import _code

from .conftest import skewed

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
    if _code() is None:
        pytest.skip("there is no C compiler")
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


Counts = NDArray[np.int64]


def most_of_a_site(labels: Counts, sites: Counts) -> int:
    return max(int(np.bincount(labels[sites == site]).max()) for site in np.unique(sites))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.data())
def test_no_two_clients_of_a_site_meet(clients: int, data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, clients))
    sites = np.repeat(np.arange(clients), data.draw(st.integers(1, groups)))[:clients]
    sites = np.random.default_rng(clients).permutation(sites)
    labels = Balanced(n_groups=groups, random_state=0, effort=0.05).fit(skewed(clients, 4), sites=sites).labels_
    assert most_of_a_site(labels, sites) == 1
    sizes = np.bincount(labels, minlength=groups)
    assert sizes.max() - sizes.min() <= 1


def test_groups_within_constraints_are_still_balanced(counts_60: Counts) -> None:
    sites = np.arange(60) % 12  # 5 clients each
    seconds = counts_60.sum(axis=1) / 100
    even = seconds.sum() / 8
    fitted = Balanced(n_groups=8, random_state=0, longest_chain=1.1 * even).fit(counts_60, sites=sites, seconds=seconds)
    assert most_of_a_site(fitted.labels_, sites) == 1
    assert np.bincount(fitted.labels_, weights=seconds).max() <= 1.1 * even
    chance = objective_z(group_sums(counts_60, Random(n_groups=8, random_state=0).fit(counts_60).labels_), "cpd").mean
    assert objective_z(group_sums(counts_60, fitted.labels_), "cpd").mean < 0.3 * chance


def test_slow_clients_are_spread_until_no_chain_is_too_long() -> None:
    seconds = np.array([10.0] * 4 + [1.0] * 13)
    for seed in range(10):
        labels = Balanced(n_groups=4, random_state=seed, longest_chain=14).fit(skewed(17, 3), seconds=seconds).labels_
        assert np.bincount(labels, weights=seconds).max() <= 14
        assert sorted(np.bincount(labels).tolist()) == [4, 4, 4, 5]


def test_sites_may_have_names_and_seconds_alone_change_nothing() -> None:
    counts = skewed(12, 3)
    names = [f"clinic {k // 3}" for k in range(12)]
    labels = Balanced(n_groups=4, random_state=0).fit(counts, sites=names).labels_
    assert most_of_a_site(labels, np.arange(12) // 3) == 1
    free = Balanced(n_groups=4, random_state=0).fit(counts, seconds=np.ones(12)).labels_
    assert np.bincount(free).tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("fit", "sentence"),
    [
        (
            lambda: Balanced(n_groups=2).fit(np.ones((4, 2)), sites=["a", "a", "a", "b"]),
            r"Balanced: site a has 3 clients, more than there are groups \(2\), so two of them would meet\.",
        ),
        (
            lambda: Balanced(n_groups=2, longest_chain=3.0, random_state=0).fit(np.ones((4, 2)), seconds=[2, 2, 2, 2]),
            r"Balanced: found no 2 groups whose chains all take at most 3 seconds, the longest takes 4; "
            r"allow more time or form more groups\.",
        ),
        (
            lambda: Balanced(n_groups=2, longest_chain=3.0).fit(np.ones((4, 2))),
            r"Balanced: longest_chain needs to know how long clients take: fit\(counts, seconds=\.\.\.\)\.",
        ),
        (
            lambda: Balanced(n_groups=2).fit(np.ones((4, 2)), sites=[1, 2]),
            r"Balanced: sites must have one entry for each of the 4 clients, but has shape \(2,\)\.",
        ),
        (
            lambda: Balanced(n_groups=2).fit(np.ones((4, 2)), seconds=[1, 2, -1, 0]),
            r"Balanced: seconds must be finite numbers of at least 0\.",
        ),
        (
            lambda: Balanced(n_groups=2).fit(np.ones((5000, 1)), sites=np.arange(5000)),
            r"Balanced: constraints are for at most 4096 clients, not 5000; group them in parts\.",
        ),
    ],
)
def test_what_cannot_be_kept_is_said_in_one_sentence(fit: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}$"):
        fit()
