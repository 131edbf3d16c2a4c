from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.plan import Balanced, Random, group_sums, objective_z

from .conftest import skewed

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
