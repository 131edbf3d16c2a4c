from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgsp.plan.vectors import balance_vectors, directions

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
