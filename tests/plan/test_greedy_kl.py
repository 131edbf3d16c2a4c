from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.plan import GreedyKL, Random, distributions, group_sums, kl

from .conftest import skewed


def test_opposites_are_put_together() -> None:
    counts = np.array([[9, 1], [9, 1], [1, 9], [1, 9]])
    for seed in range(10):
        labels = GreedyKL().assign(counts, 2, np.random.default_rng(seed))
        assert group_sums(counts, labels).tolist() == [[10, 10], [10, 10]]


def test_the_greedy_order_by_hand() -> None:
    """Target (.5, .5): the first group opens with the balanced client 2 and takes 0, since 11:9 is nearer than 5:13."""
    counts = np.array([[6, 4], [0, 8], [5, 5]])
    sizes = [2, 1]
    target = np.array([0.5, 0.5])

    def divergence(v: NDArray[np.int64]) -> float:
        return float(kl(distributions(v), target))

    assert min(range(3), key=lambda k: divergence(counts[k])) == 2
    assert min((0, 1), key=lambda k: divergence(counts[2] + counts[k])) == 0
    labels = GreedyKL("uniform").fill(counts, sizes, np.random.default_rng(0))
    assert labels.tolist() == [0, 1, 0]


def test_the_target_is_the_population_or_uniform() -> None:
    counts = np.array([[9, 1], [5, 5]])
    population = np.array([90, 10])
    rng = np.random.default_rng(0)
    assert GreedyKL("global").fill(counts, [1, 1], rng, population).tolist() == [0, 1]
    assert GreedyKL("uniform").fill(counts, [1, 1], rng, population).tolist() == [1, 0]


def test_ties_do_not_favour_low_numbers() -> None:
    counts = np.ones((6, 3), dtype=np.int64)
    first = {int(np.flatnonzero(GreedyKL().assign(counts, 6, np.random.default_rng(seed)) == 0)[0]) for seed in range(40)}
    assert first == set(range(6))


def test_everybody_is_in_a_group_of_even_size() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 20, (23, 5))
    labels = GreedyKL().assign(counts, 4, rng)
    assert sorted(np.bincount(labels).tolist()) == [5, 6, 6, 6]
    shape = GreedyKL().shape(23, 4)
    assert (shape.shortest, shape.longest, shape.grouped) == (5, 6, 23)


def test_a_client_without_samples_is_taken_last_and_counted_nowhere() -> None:
    counts = np.array([[0, 0], [4, 4], [3, 5]])
    assert GreedyKL().fill(counts, [1, 1, 1], np.random.default_rng(0))[0] == 2


def test_groups_are_more_alike_than_random_ones(counts_60: NDArray[np.int64]) -> None:
    def spread(labels: NDArray[np.int64]) -> float:
        groups = distributions(group_sums(counts_60, labels))
        return float(np.abs(groups - distributions(counts_60.sum(axis=0))).sum(axis=1).mean())

    greedy = [spread(GreedyKL().assign(counts_60, 6, np.random.default_rng(s))) for s in range(3)]
    chance = [spread(Random().assign(counts_60, 6, np.random.default_rng(s))) for s in range(3)]
    assert max(greedy) < min(chance)


def test_unknown_target() -> None:
    with pytest.raises(InputError, match="GreedyKL: target cannot be 'local'"):
        GreedyKL("local")  # type: ignore[arg-type]


def test_sizes_must_add_up() -> None:
    for grouper in (GreedyKL(), Random()):
        with pytest.raises(ValueError, match="5 clients in all for 3"):
            grouper.fill(np.ones((3, 2), dtype=np.int64), [2, 3], np.random.default_rng(0))


@pytest.mark.parametrize("target", ["global", "uniform"])
def test_each_client_is_the_best_of_those_left(target: str) -> None:
    """Astraea's loop, written out: no client that came later would have been better at that point."""
    counts = skewed(14, 5)
    goal = distributions(counts.sum(axis=0)) if target == "global" else np.full(5, 0.2)
    labels = GreedyKL(target=target, n_groups=4, random_state=0).fit(counts).labels_  # type: ignore[arg-type]
    left = set(range(14))
    for group in range(4):
        own = np.zeros(5)
        members = set(np.flatnonzero(labels == group).tolist())
        while members:
            scores = {k: float(kl(distributions(own + counts[k]), goal)) for k in left}
            best = min(scores, key=lambda k: scores[k])
            assert best in members
            own += counts[best]
            members.remove(best)
            left.remove(best)


def test_the_first_groups_are_the_best() -> None:
    counts = skewed(60, 6)
    sums = group_sums(counts, GreedyKL(n_groups=6, random_state=0).fit(counts).labels_)
    off = kl(distributions(sums), distributions(counts.sum(axis=0)))
    assert off[0] < off[-1] / 5


def test_twins_are_taken_in_random_order_and_empty_clients_last() -> None:
    counts = np.repeat([[3, 1]], 8, axis=0)
    assert len({tuple(GreedyKL(n_groups=2, random_state=seed).fit(counts).labels_) for seed in range(9)}) > 1
    counts[2] = 0
    assert {int(GreedyKL(n_groups=8, random_state=seed).fit(counts).labels_[2]) for seed in range(9)} == {7}


def test_a_wrong_target_is_refused() -> None:
    with pytest.raises(InputError, match=r"^GreedyKL: target cannot be 'gobal'; did you mean 'global'\?$"):
        GreedyKL(target="gobal")  # type: ignore[arg-type]
