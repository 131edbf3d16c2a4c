from __future__ import annotations

import numpy as np
import pytest

from fedgsp.plan.cells import deal_cells_anew, deal_farthest_first
from fedgsp.plan.vectors import balance_vectors

from .conftest import skewed


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
