from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.plan import (
    cpd,
    distributions,
    emd,
    group_sums,
    js,
    kl,
    mean_emd,
    mmd_squared,
    objective_z,
    pairwise_cpd,
    pairwise_kl,
    summarise_pairs,
)  # fmt: skip
from fedgsp.plan.divergence import CpdKind, ZDistance

from .conftest import skewed

P, Q = [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]
KINDS: list[CpdKind] = ["label", "point", "entries"]


def random_distributions(rows: int, classes: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), size=rows)


def test_the_oracles_of_the_specification() -> None:
    assert cpd(P, Q) == pytest.approx(0.2370452096, abs=1e-10)
    assert cpd(P, Q) == pytest.approx((1 - 1 / math.e) * 0.375, rel=1e-14)
    assert cpd(P, Q, "point", s=0.1) == pytest.approx(1.9999999856, abs=1e-10)
    assert cpd(P, Q, "entries") == pytest.approx(1.4891911033, abs=1e-10)
    assert mmd_squared([(0, 0), (1, 0)], [(0, 1), (1, 1)]) == pytest.approx(7.1329928250, abs=1e-9)
    assert float(emd([1, 0, 0, 0], [0.25] * 4)) == 1.5


def test_label_cpd_is_the_kernel_matrix_form() -> None:
    """(p - q)^T K (p - q) with the Gaussian kernel on one-hot labels: the literal MMD^2 of two label distributions."""
    p, q = random_distributions(2, 7, seed=0)
    for s in (0.5, 1.0, 3.0):
        kernel = np.exp(-(2.0 - 2.0 * np.eye(7)) / (2 * s**2))
        assert cpd(p, q, "label", s) == pytest.approx((p - q) @ kernel @ (p - q), rel=1e-12)


def test_point_cpd_is_written_out_and_its_bandwidth_is_the_calibrated_one() -> None:
    p, q = random_distributions(2, 7, seed=1)
    assert cpd(p, q, "point", 0.3) == pytest.approx(2 - 2 * math.exp(-((p - q) ** 2).sum() / (2 * 0.09)), rel=1e-12)
    near = 0.99 * p + 0.01 * q
    assert cpd(p, near, "point") == cpd(p, near, "point", s=0.027) != cpd(p, near, "point", s=0.028)


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_condensed_in_scipys_order(kind: CpdKind) -> None:
    rows = random_distributions(5, 4, seed=2)
    expected = [cpd(rows[i], rows[j], kind) for i in range(5) for j in range(i + 1, 5)]
    assert pairwise_cpd(rows, kind) == pytest.approx(expected, rel=1e-12)
    assert len(pairwise_cpd(rows[:1], kind)) == 0


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(0, 10**6), st.sampled_from(KINDS))
def test_cpd_is_symmetric_non_negative_and_zero_for_the_same(classes: int, seed: int, kind: CpdKind) -> None:
    p, q = random_distributions(2, classes, seed)
    assert cpd(p, p, kind) == 0
    assert cpd(p, q, kind) == pytest.approx(cpd(q, p, kind), rel=1e-9, abs=1e-12)
    assert cpd(p, q, kind) >= 0


def test_only_entries_is_blind_to_which_class_is_which() -> None:
    p, shuffled = [0.7, 0.2, 0.1], [0.1, 0.7, 0.2]
    assert cpd(p, shuffled, "entries") == pytest.approx(0, abs=1e-12)
    assert cpd(p, shuffled) > 0.1
    assert cpd(p, shuffled, "point") > 0.1
    assert cpd([0.25] * 4, [0.25] * 4, "entries") == 0


def test_emd_of_zhao() -> None:
    uniform = np.full(10, 0.1)
    assert float(emd(uniform, uniform)) == 0
    assert float(emd(np.eye(10)[0], uniform)) == pytest.approx(1.8)
    assert float(emd((np.eye(10)[0] + np.eye(10)[1]) / 2, uniform)) == pytest.approx(1.6)
    assert float(emd([1, 0], [0, 1])) == 2
    assert emd(np.eye(3), np.full(3, 1 / 3)) == pytest.approx([4 / 3] * 3)


def test_mean_emd_is_weighted_by_samples_and_ignores_who_has_none() -> None:
    counts = np.array([[30, 0], [0, 10], [0, 0]])  # population (.75, .25): EMDs .5 and 1.5
    assert mean_emd(counts) == pytest.approx((30 * 0.5 + 10 * 1.5) / 40)
    assert mean_emd(np.array([[2, 4], [1, 2]])) == pytest.approx(0)


def test_kl_and_js() -> None:
    assert float(kl([0.5, 0.5], [0.25, 0.75])) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert float(kl([1, 0], [0.5, 0.5])) == pytest.approx(math.log(2))
    assert float(kl([0.5, 0.5], [1, 0])) == math.inf
    assert float(js([1, 0], [0, 1])) == pytest.approx(math.log(2))
    assert float(js([1, 0], [0.5, 0.5])) == pytest.approx(0.5 * math.log(4 / 3) + 0.25 * math.log(2 / 3) + 0.25 * math.log(2))
    assert js(np.eye(2), np.eye(2)).tolist() == [0, 0]
    assert kl(np.eye(2), np.full((2, 2), 0.5)) == pytest.approx([math.log(2)] * 2)


def test_group_sums_add_up_members_and_skip_who_is_in_none() -> None:
    counts = np.array([[1, 2], [10, 20], [100, 200], [1000, 2000]])
    assert group_sums(counts, np.array([1, -1, 0, 1])).tolist() == [[100, 200], [1001, 2002]]
    assert group_sums(counts, np.array([0, -1, -1, 0]), n_groups=3).tolist() == [[1001, 2002], [0, 0], [0, 0]]
    assert group_sums(counts, np.full(4, -1)).shape == (0, 2)


SUMS = np.array([[3.0, 1.0], [3.0, 5.0], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("distance", "values"),
    [
        ("euclid", [4, 3, 5]),
        ("squared", [16, 9, 25]),
        ("l1", [4, 3, 7]),
        ("emd", [0.75, 1.5, 0.75]),
        ("cpd", [(1 - 1 / math.e) * 2 * gap**2 for gap in (0.375, 0.75, 0.375)]),
        ("js", [float(js([a, 1 - a], [b, 1 - b])) for a, b in ((0.75, 0.375), (0.75, 0.0), (0.375, 0.0))]),
    ],
)
def test_z_sums_over_pairs_of_groups(distance: ZDistance, values: list[float]) -> None:
    z = objective_z(SUMS, distance)
    assert z.pairs == 3
    assert z.total == pytest.approx(sum(values))
    assert z.mean == pytest.approx(sum(values) / 3)


def test_z_is_euclidean_unless_told_and_zero_for_one_group() -> None:
    assert objective_z(SUMS) == objective_z(SUMS, "euclid")
    one = objective_z(SUMS[:1])
    assert (one.total, one.pairs, one.mean) == (0, 0, 0)
    assert (objective_z(SUMS[:2]).total, objective_z(SUMS[:2]).pairs) == (4, 1)
    assert objective_z(np.ones((4, 3))).total == 0


def test_distributions_are_made_along_the_last_axis() -> None:
    assert distributions([[1, 3], [2, 2]]).tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert distributions([1, 1, 2]).tolist() == [0.25, 0.25, 0.5]
    with pytest.raises(ValueError, match="without samples"):
        distributions([[1, 2], [0, 0]])


def test_bad_inputs_are_refused() -> None:
    with pytest.raises(InputError, match=r"^cpd: kind cannot be 'labels'; did you mean 'label'\?$"):
        cpd(P, Q, "labels")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^objective_z: distance cannot be 'l2'; choose from"):
        objective_z(SUMS, "l2")  # type: ignore[arg-type]
    for measure in (cpd, emd, kl, js):
        with pytest.raises(ValueError, match="sums to one"):
            measure([3, 1], [0.5, 0.5])
        with pytest.raises(ValueError, match="non-negative"):
            measure([0.5, 0.5], [1.5, -0.5])
    with pytest.raises(ValueError, match="takes no s"):
        cpd(P, Q, "entries", s=1.0)
    with pytest.raises(ValueError, match="must be positive"):
        cpd(P, Q, "point", s=0.0)


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
