from __future__ import annotations

import time
from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.plan import ICG, Balanced, Random, balanced_within, group_sums, objective_z, summarise_pairs
from fedgsp.plan.cells import balance_vectors

from .conftest import skewed

Counts = NDArray[np.int64]


def squares(counts: Counts, labels: Counts, groups: int) -> float:
    """What Balanced makes small."""
    vectors = balance_vectors(counts, -(-len(counts) // groups), 0.5)[:-1]
    return float((group_sums(vectors, labels, groups) ** 2).sum())


def rand_index(first: Counts, second: Counts) -> float:
    """The adjusted Rand index: 1 for the same groups, 0 in the mean for unrelated ones."""

    def pairs(values: NDArray[np.int64]) -> float:
        return float((values * (values - 1) / 2).sum())

    table = np.zeros((first.max() + 1, second.max() + 1), dtype=np.int64)
    np.add.at(table, (first, second), 1)
    both, one, other = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = one * other / (len(first) * (len(first) - 1) / 2)
    return (both - chance) / ((one + other) / 2 - chance)


def test_the_rand_index_of_known_groupings() -> None:
    a = np.array([0, 0, 1, 1])
    assert rand_index(a, 1 - a) == 1
    assert rand_index(a, np.array([0, 1, 0, 1])) == pytest.approx(-0.5)


@pytest.mark.parametrize(("groups", "share"), [(10, 0.10), (20, 0.20), (50, 0.28)])
def test_real_writers_are_grouped_far_better_than_by_icg(femnist_counts: Counts, groups: int, share: float) -> None:
    """Medians over seeds: CPD a tenth to a quarter of ICG's, mean, maximum and z lower too; never the same groups twice."""
    found: dict[type, list[list[float]]] = {}
    labels = []
    for kind in (ICG, Balanced):
        for seed in range(7):
            own = kind(n_groups=groups, random_state=seed).fit(femnist_counts).labels_
            sums = group_sums(femnist_counts, own)
            cpd = summarise_pairs(sums)
            found.setdefault(kind, []).append([cpd.median, cpd.mean, cpd.maximum, objective_z(sums).mean])
            labels += [own] if kind is Balanced else []
    icg, ours = (np.median(found[kind], axis=0) for kind in (ICG, Balanced))
    assert ours[0] <= share * icg[0]
    assert (ours < icg).all()
    assert all(own.min() == 0 for own in labels)
    assert np.median([rand_index(a, b) for a, b in combinations(labels, 2)]) < 0.05


def every_grouping(clients: int, groups: int) -> Counts:
    slots = np.sort(np.arange(clients) % groups)
    return np.array(sorted(set(permutations(slots.tolist()))))


@pytest.mark.parametrize(("clients", "groups"), [(8, 2), (8, 3), (9, 3), (7, 3)])
def test_the_optimum_of_brute_force_is_found(clients: int, groups: int) -> None:
    """Every labelling with sizes equal to within one is tried; few clients always get the optimum."""
    labellings = every_grouping(clients, groups)
    one_hot = (labellings[:, :, None] == np.arange(groups)).astype(np.float64)
    for seed in range(5):
        counts = skewed(clients, 4, seed)
        vectors = balance_vectors(counts, -(-clients // groups), 0.5)[:-1]
        best = (np.einsum("nkg,kf->ngf", one_hot, vectors) ** 2).sum(axis=(1, 2)).min()
        found = Balanced(n_groups=groups, random_state=seed).fit(counts).labels_
        assert squares(counts, found, groups) == best


def test_more_effort_is_better_and_none_is_still_good(counts_60: Counts) -> None:
    means = [
        np.mean(
            [squares(counts_60, Balanced(effort=e, n_groups=9, random_state=s).fit(counts_60).labels_, 9) for s in range(8)]
        )
        for e in (0, 0.05, 1, 5)
    ]
    chance = np.mean([squares(counts_60, Random(n_groups=9, random_state=s).fit(counts_60).labels_, 9) for s in range(8)])
    assert means[3] < means[2] < means[1] < means[0] < 0.5 * chance


def test_equal_sample_numbers_can_matter_more_or_not_at_all(counts_60: Counts) -> None:
    spreads = [
        np.mean([group_sums(counts_60, own.fit(counts_60).labels_).sum(axis=1).std() for own in (grouper,)])
        for grouper in (Balanced(size_weight=w, n_groups=10, random_state=0) for w in (0, 0.5, 20))
    ]
    assert spreads[2] < spreads[1] < spreads[0]


def test_many_clients_take_the_other_way_and_are_balanced_too() -> None:
    counts = skewed(5003, 6)
    labels = Balanced(n_groups=150, random_state=0).fit(counts).labels_
    sizes = np.bincount(labels, minlength=150)
    assert (sizes.min(), sizes.max()) == (33, 34)
    assert np.array_equal(labels, Balanced(n_groups=150, random_state=0).fit(counts).labels_)
    chance = squares(counts, Random(n_groups=150, random_state=0).fit(counts).labels_, 150)
    assert squares(counts, labels, 150) < 0.01 * chance
    two = Balanced(n_groups=2, random_state=0, effort=0.1).fit(counts).labels_
    assert abs(np.bincount(two)[0] - 2501.5) < 1


@pytest.mark.slow
def test_a_hundred_thousand_clients_in_memory_and_time_that_grow_with_them() -> None:
    import time

    took = []
    for clients in (12_500, 50_000):
        counts = skewed(clients, 20)
        began = time.process_time()
        labels = Balanced(n_groups=clients // 100, random_state=0).fit(counts).labels_
        took.append(time.process_time() - began)
        assert np.bincount(labels).tolist() == [100] * (clients // 100)
    assert took[1] < 8 * took[0]


def test_wrong_settings_are_refused_at_once() -> None:
    with pytest.raises(InputError, match=r"^Balanced: effort must not be negative, but is -1\.$"):
        Balanced(effort=-1)
    with pytest.raises(InputError, match=r"^Balanced: heat must be a finite number, not nan\.$"):
        Balanced(heat=float("nan"))
    with pytest.raises(InputError, match=r"^Balanced: longest_chain is in seconds and above 0, not 0\.$"):
        Balanced(longest_chain=0)


def test_more_time_gives_better_groups_and_little_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """By this process's own clock, so that what others do on the machine does not count."""
    monkeypatch.setattr("fedgsp.plan.balanced.time", SimpleNamespace(monotonic=time.process_time))
    counts = skewed(120, 8)
    found = []
    for seconds in (0.0, 0.6):
        began = time.process_time()
        labels = balanced_within(counts, 11, seconds, 3, Balanced())
        assert time.process_time() - began < seconds + 2
        sizes = np.bincount(labels)
        assert sizes.max() - sizes.min() <= 1
        found.append(objective_z(group_sums(counts, labels), "cpd").mean)
    assert found[1] < found[0]
