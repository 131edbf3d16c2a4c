from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import get_args

import numpy as np
import pytest

from fedgsp.plan import cpd, distributions, emd, js, kl, objective_z, pairwise_kl, summarise_pairs
from fedgsp.plan.divergence import ZDistance

from .conftest import skewed

COUNTS = skewed(30, 5)


@pytest.mark.parametrize("distance", get_args(ZDistance))
def test_all_pairs_are_summarised_exactly(distance: ZDistance) -> None:
    found = summarise_pairs(COUNTS, distance)
    assert found.exact
    assert (found.pairs, found.mean_error, found.unseen_above) == (435, 0, 0)
    assert found.median_low == found.median == found.median_high
    assert found.mean == pytest.approx(objective_z(COUNTS, distance).mean)
    p = distributions(COUNTS)
    measures: dict[str, Callable[[int, int], float]] = {
        "cpd": lambda i, j: cpd(p[i], p[j]),
        "emd": lambda i, j: float(emd(p[i], p[j])),
        "js": lambda i, j: float(js(p[i], p[j])),
        "l1": lambda i, j: float(np.abs(COUNTS[i] - COUNTS[j]).sum()),
        "euclid": lambda i, j: float(np.sqrt(((COUNTS[i] - COUNTS[j]) ** 2).sum())),
        "squared": lambda i, j: float(((COUNTS[i] - COUNTS[j]) ** 2).sum()),
    }
    values = [measures[distance](i, j) for i, j in combinations(range(30), 2)]
    assert found.median == pytest.approx(np.median(values))
    assert found.maximum == pytest.approx(max(values))


@pytest.mark.parametrize("distance", get_args(ZDistance))
def test_a_sample_is_within_the_error_it_states(distance: ZDistance) -> None:
    """95 % confidence: of 100 samples a few may be off, hardly ever more than a dozen."""
    exact = summarise_pairs(COUNTS, distance)
    tries = [summarise_pairs(COUNTS, distance, most_pairs=200, random_state=seed) for seed in range(100)]
    assert not any(found.exact for found in tries)
    assert sum(abs(found.mean - exact.mean) > found.mean_error for found in tries) < 13
    assert sum(not found.median_low <= exact.median <= found.median_high for found in tries) < 13
    assert all(found.maximum <= exact.maximum * (1 + 1e-12) for found in tries)
    assert tries[0].unseen_above == pytest.approx(3 / 200, rel=0.01)


def test_clients_without_samples_and_single_groups() -> None:
    assert summarise_pairs(np.array([[1, 2], [0, 0], [2, 1]])).pairs == 1
    assert summarise_pairs(np.array([[1, 2], [0, 0], [2, 1]]), "euclid").pairs == 3
    assert summarise_pairs(np.array([[1, 2]])) == summarise_pairs(np.zeros((4, 2)))


def test_kl_of_all_pairs_is_kl_of_each() -> None:
    p = distributions(np.array([[1, 2, 3], [3, 2, 1], [0, 1, 1], [0, 5, 4]]))
    matrix = pairwise_kl(p)
    assert matrix == pytest.approx(np.array([[float(kl(a, b)) for b in p] for a in p]), abs=1e-12)
    assert np.isinf(matrix[0, 2])
    assert np.isfinite(matrix[2, 0])
