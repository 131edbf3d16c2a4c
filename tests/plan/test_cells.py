from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgsp.plan.cells import balance_vectors, deal_cells_anew, deal_farthest_first, directions

from .conftest import skewed


def test_they_are_the_deviation_from_the_population_and_the_size() -> None:
    counts = skewed(40, 6)
    sizes, share = counts.sum(axis=1), counts.sum(axis=0) / counts.sum()
    vectors = balance_vectors(counts, 10, 0.5)
    assert vectors.shape == (41, 7)
    assert not vectors[-1].any()
    exact = np.hstack([counts - sizes[:, None] * share, (0.5 * (sizes - sizes.mean()) / np.sqrt(6))[:, None]])
    grain = 2.0 ** -np.round(np.log2(np.abs(vectors).max() / np.abs(exact).max()))
    assert np.abs(vectors[:-1] * grain - exact).max() <= grain / 2 * (1 + 1e-9)


@pytest.mark.parametrize(("clients", "classes", "longest"), [(40, 6, 10), (300, 62, 300), (7, 1, 3)])
def test_every_product_a_search_makes_is_exact(clients: int, classes: int, longest: int) -> None:
    """Whole numbers, and the largest sum of products that can come up is below 2^53."""
    vectors = balance_vectors(skewed(clients, classes), longest, 0.5)
    assert np.array_equal(vectors, np.rint(vectors))
    assert np.abs(vectors).max() ** 2 * (classes + 1) * (longest + 1) * 16 <= 2**53
    if classes > 1:
        assert np.abs(vectors).max() > 1000  # and the grid is fine


def test_a_power_of_two_changes_nothing() -> None:
    counts = skewed(30, 5)
    assert np.array_equal(balance_vectors(counts, 5, 0.5), balance_vectors(counts / 1024, 5, 0.5))


@pytest.mark.parametrize("counts", [np.zeros((5, 3)), np.full((5, 3), 4), np.zeros((5, 3), dtype=np.int64)])
def test_clients_that_are_all_alike_have_nothing_to_balance(counts: NDArray[np.float64]) -> None:
    assert not balance_vectors(counts, 2, 0.5).any()


def test_directions_are_sums_of_clients() -> None:
    vectors = balance_vectors(skewed(30, 5), 5, 0.5)
    found = directions(vectors, 3, np.random.default_rng(0))
    assert found.shape == (6, 3)
    assert np.array_equal(found, np.rint(found))
    assert np.abs(found).max() <= 64 * np.abs(vectors).max()


@pytest.mark.parametrize(("clients", "groups"), [(60, 6), (61, 6), (700, 200), (999, 333), (5, 2), (300, 299)])
def test_everybody_has_one_place_and_the_sums_are_kept(clients: int, groups: int) -> None:
    vectors = balance_vectors(skewed(clients, 5), -(-clients // groups), 0.5)
    rng = np.random.default_rng(0)
    places, sums = deal_farthest_first(vectors, groups, rng, 0.5)
    squares = [float((sums**2).sum())]
    for columns in (0, 1, 7):
        deal_cells_anew(vectors, places, sums, columns, rng)
        assert sorted(places[places < clients].tolist()) == list(range(clients))
        assert (places[:, :-1] < clients).all()  # empty places are in the last column only
        assert np.array_equal(sums, vectors[places].sum(axis=1))
        squares.append(float((sums**2).sum()))
    assert squares == sorted(squares, reverse=True)
    assert squares[0] == squares[1]


def test_each_step_helps() -> None:
    vectors = balance_vectors(skewed(3000, 8), 10, 0.5)
    rng = np.random.default_rng(0)
    places, sums = deal_farthest_first(vectors, 300, rng, 0.5)
    started = float((sums**2).sum())
    shuffled = vectors[rng.permutation(3000).reshape(300, 10)].sum(axis=1)
    assert started < 0.1 * (shuffled**2).sum()
    deal_cells_anew(vectors, places, sums, 40, rng)
    assert (sums**2).sum() < 0.7 * started


def test_starts_differ_with_the_generator_alone() -> None:
    vectors = balance_vectors(skewed(60, 5), 10, 0.5)
    first, again, other = (deal_farthest_first(vectors, 6, np.random.default_rng(seed), 0.5)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
