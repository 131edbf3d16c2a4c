from __future__ import annotations

from itertools import permutations
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgsp.plan import ICG, NOBODY, ClusterShape, Random, deal, equal_size_clusters, group_sums, objective_z
from fedgsp.plan.icg import Distance
from fedgsp.plan.kmeans_start import plus_plus_start

Counts = NDArray[np.int64]


def half_squares(points: Counts, labels: Counts) -> float:
    """Eq. (ccp-objective), written out."""
    clusters = [points[labels == label] for label in np.unique(labels)]
    return sum(0.5 * float(((own - own.mean(axis=0)) ** 2).sum()) for own in clusters)


@pytest.mark.parametrize("distance", ["squared", "euclid"])
@pytest.mark.parametrize(("points", "clusters"), [(6, 2), (6, 3), (8, 2)])
def test_the_assignment_to_the_final_centroids_is_the_cheapest_there_is(points: int, clusters: int, distance: Distance) -> None:
    every_labelling = np.array(sorted(set(permutations(np.repeat(np.arange(clusters), points // clusters).tolist()))))
    for seed in range(8):
        counts = np.random.default_rng(seed).integers(0, 12, (points, 3))
        found = equal_size_clusters(counts, clusters, np.random.default_rng(seed), tau=50, distance=distance)
        assert found.converged
        gaps = counts[:, None] - found.centroids[None]
        cost = (gaps**2).sum(axis=2) if distance == "squared" else np.sqrt((gaps**2).sum(axis=2))
        costs = cost[np.arange(points), every_labelling].sum(axis=1)
        assert cost[np.arange(points), found.labels].sum() == pytest.approx(costs.min(), rel=1e-12)


def test_squared_and_euclid_are_not_the_same_problem(counts_60: Counts) -> None:
    """The authors' program took the distance for its square, with a note that it is equivalent: it is not."""
    found = {
        distance: [
            equal_size_clusters(counts_60, 6, np.random.default_rng(seed), tau=50, distance=distance).objective[-1]
            for seed in range(6)
        ]
        for distance in get_args(Distance)
    }
    assert found["squared"] != found["euclid"]
    assert np.mean(found["squared"]) < np.mean(found["euclid"])


@pytest.mark.parametrize("clusters", [1, 2, 6, 15, 30, 60])
def test_the_objective_never_rises_and_is_what_it_says(counts_60: Counts, clusters: int) -> None:
    for seed in range(5):
        found = equal_size_clusters(counts_60, clusters, np.random.default_rng(seed), tau=100)
        assert found.converged
        assert all(later <= earlier for earlier, later in zip(found.objective, found.objective[1:], strict=False))
        assert found.objective[-1] == pytest.approx(half_squares(counts_60, found.labels), rel=1e-9, abs=1e-6)
        assert np.bincount(found.labels).tolist() == [60 // clusters] * clusters
        for label, centroid in enumerate(found.centroids):
            assert centroid == pytest.approx(counts_60[found.labels == label].mean(axis=0))


def test_iterations_help_and_are_at_most_tau(counts_60: Counts) -> None:
    full = equal_size_clusters(counts_60, 6, np.random.default_rng(0), tau=100)
    assert 3 < len(full.objective) < 100
    assert full.objective[-1] < full.objective[0]
    for tau in (1, 2, 3):
        cut = equal_size_clusters(counts_60, 6, np.random.default_rng(0), tau=tau)
        assert cut.objective == full.objective[:tau]
        assert not cut.converged
    exactly = equal_size_clusters(counts_60, 6, np.random.default_rng(0), tau=len(full.objective))
    assert exactly.converged
    assert np.array_equal(exactly.labels, full.labels)


def test_tau_reaches_the_clustering(counts_60: Counts) -> None:
    brief, thorough = (ICG(tau=tau, n_groups=10, random_state=0).fit(counts_60).labels_ for tau in (1, 10))
    assert not np.array_equal(brief, thorough)


def test_the_distance_reaches_the_clustering(counts_60: Counts) -> None:
    squared, euclid = (
        [ICG(distance=distance, n_groups=10, random_state=seed).fit(counts_60).labels_.tolist() for seed in range(4)]
        for distance in get_args(Distance)
    )
    assert squared != euclid


def test_clear_kinds_of_clients_are_found_and_every_group_has_one_of_each() -> None:
    kinds = np.repeat(np.arange(4), 5)
    counts = 100 * np.eye(4, dtype=np.int64)[kinds] + np.random.default_rng(0).integers(0, 5, (20, 4))
    order = np.random.default_rng(1).permutation(20)
    labels = ICG(n_groups=5, random_state=0).fit(counts[order]).labels_
    for group in range(5):
        assert sorted(kinds[order][labels == group].tolist()) == [0, 1, 2, 3]


def test_the_number_of_clusters_and_their_size() -> None:
    """L = floor(K / f), size = floor(K / L): the paper's K = 364, M = 52 is f = 50 of 368 clients."""
    shape = ClusterShape.of(368, 50)
    assert (shape.clusters, shape.size, shape.sampled) == (7, 52, 364)
    assert ClusterShape.of(5, 5) == ClusterShape(1, 5)
    assert ClusterShape.of(5, 1) == ClusterShape(5, 1)
    assert ClusterShape.of(5, 3) == ClusterShape(1, 5)


def test_a_start_is_drawn_by_squared_distance() -> None:
    points = np.array([[0.0], [1.0], [2.0], [2.0]])
    rng, draws = np.random.default_rng(0), 6000
    starts = np.array([plus_plus_start(points, 2, rng) for _ in range(draws)])
    assert np.abs(np.bincount(starts[:, 0]) / draws - 1 / 4).max() < 5 * np.sqrt(3 / 16 / draws)
    after_first = starts[starts[:, 0] == 0, 1]
    share = np.bincount(after_first, minlength=4) / len(after_first)
    expected = np.array([0, 1, 4, 4]) / 9
    assert (np.abs(share - expected) <= 5 * np.sqrt(expected * (1 - expected) / len(after_first))).all()
    third = np.array([plus_plus_start(points, 3, rng) for _ in range(500)])
    assert all({points[row, 0] for row in start} == {0, 1, 2} for start in third)  # the nearest drawn row counts


class Lowest(np.random.Generator):
    """Every draw is the lowest there is."""

    def random(self, *args: object, **kwargs: object) -> float:  # type: ignore[override]
        return 0.0


def test_a_row_without_distance_is_not_drawn_even_by_a_draw_of_zero() -> None:
    start = plus_plus_start(np.array([[0.0], [0.0], [5.0]]), 2, Lowest(np.random.PCG64(0)))
    assert start.tolist() == [0, 2]


def test_twins_are_never_drawn_twice() -> None:
    for seed in range(20):
        start = plus_plus_start(np.zeros((6, 2)), 6, np.random.default_rng(seed))
        assert sorted(start.tolist()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("counts", [np.full((12, 3), 4), np.zeros((12, 3)), np.repeat([[1, 0], [0, 1]], 6, axis=0)])
def test_twins_and_empty_clients_are_no_trouble(counts: Counts) -> None:
    for n_groups, length in ((1, 12), (3, 4), (5, 2), (6, 2), (12, 1)):
        labels = ICG(n_groups=n_groups, random_state=0).fit(counts).labels_
        assert np.bincount(labels[labels >= 0]).tolist() == [length] * n_groups


def test_everybody_a_group_of_one() -> None:
    labels = ICG(n_groups=9, random_state=0).fit(np.eye(9)).labels_
    assert sorted(labels.tolist()) == list(range(9))
    assert labels.tolist() != list(range(9))


def test_dealing_gives_each_group_one_of_each_cluster() -> None:
    clusters = np.random.default_rng(0).permutation(np.repeat(np.arange(3), 5))
    groups = deal(clusters, 4, np.random.default_rng(1))
    for group in range(4):
        assert sorted(clusters[groups == group].tolist()) == [0, 1, 2]
    assert sorted(clusters[groups == NOBODY].tolist()) == [0, 1, 2]


def test_dealing_is_fair_and_independent_over_clusters() -> None:
    clusters, draws, rng = np.repeat(np.arange(2), 4), 4000, np.random.default_rng(0)
    groups = np.array([deal(clusters, 3, rng) for _ in range(draws)])
    for group in (NOBODY, 0, 1, 2):
        assert np.abs((groups == group).mean(axis=0) - 1 / 4).max() < 5 * np.sqrt(3 / 16 / draws)
    met = (groups[:, :1] == groups[:, 4:]).mean(axis=0)  # the first of one cluster with each of the other
    assert np.abs(met - 1 / 4).max() < 5 * np.sqrt(3 / 16 / draws)


def test_who_is_not_sampled_is_drawn_evenly() -> None:
    counts, draws, rng = np.arange(14).reshape(7, 2), 3000, np.random.default_rng(0)
    left_out = np.array([ICG().assign(counts, 2, rng) == NOBODY for _ in range(draws)])  # 3 clusters of 2, one over
    assert (left_out.sum(axis=1) == 1).all()
    assert np.abs(left_out.mean(axis=0) - 1 / 7).max() < 5 * np.sqrt(6 / 49 / draws)


def test_proposition_2_in_the_mean(counts_60: Counts) -> None:
    """E[C^m] = C_global, and the mean squared error is at most (1 / L^2) sum sigma_l^2 (per draw it is not)."""
    clusters = 6
    found = equal_size_clusters(counts_60, clusters, np.random.default_rng(0))
    rng, draws = np.random.default_rng(1), 3000
    centroids = np.array([counts_60[deal(found.labels, 7, rng) == 2].mean(axis=0) for _ in range(draws)])
    error = centroids - counts_60.mean(axis=0)
    assert (np.abs(error.mean(axis=0)) < 5 * centroids.std(axis=0) / np.sqrt(draws)).all()

    squares = ((counts_60 - found.centroids[found.labels]) ** 2).sum(axis=1)
    largest = sum(squares[found.labels == label].max() for label in range(clusters)) / clusters**2
    expected = sum(squares[found.labels == label].mean() for label in range(clusters)) / clusters**2
    measured = (error**2).sum(axis=1)
    assert measured.mean() <= largest
    assert abs(measured.mean() - expected) < 5 * measured.std() / np.sqrt(draws)


def test_groups_are_more_alike_than_random_ones(counts_60: Counts) -> None:
    means = {
        kind: np.mean(
            [
                objective_z(group_sums(counts_60, kind(n_groups=10, random_state=seed).fit(counts_60).labels_)).mean
                for seed in range(10)
            ]
        )
        for kind in (ICG, Random)
    }
    assert means[ICG] < 0.8 * means[Random]


def test_groups_of_real_writers_are_more_alike_than_random_ones(femnist_counts: Counts) -> None:
    def mean_cpd(grouper: ICG | Random) -> float:
        return objective_z(group_sums(femnist_counts, grouper.fit(femnist_counts).labels_), "cpd").mean

    icg = sum(mean_cpd(ICG(n_groups=10, random_state=seed)) for seed in range(3))
    assert icg < 0.9 * sum(mean_cpd(Random(n_groups=10, random_state=seed)) for seed in range(3))


def test_fractions_work_like_counts(counts_60: Counts) -> None:
    """ICG takes any non-negative vectors; a power of two changes no digit, so no group either."""
    whole, scaled = (ICG(n_groups=7, random_state=0).fit(c).labels_ for c in (counts_60, counts_60 / 1024))
    assert np.array_equal(whole, scaled)


@pytest.mark.parametrize(("clients", "groups"), [(10, 3), (10, 6), (100, 60), (9, 9), (7, 1), (12, 4)])
def test_leftovers_are_dealt_so_that_groups_differ_by_one(clients: int, groups: int) -> None:
    counts = np.random.default_rng(1).integers(0, 9, (clients, 4))
    grouper = ICG(leftovers="deal")
    dealt = grouper.assign(counts, groups, np.random.default_rng(0))
    plain = ICG().assign(counts, groups, np.random.default_rng(0))
    sizes = np.bincount(dealt, minlength=groups)
    assert dealt.min() >= 0
    assert sizes.max() - sizes.min() <= 1
    assert (dealt[plain >= 0] == plain[plain >= 0]).all(), "the others are where they were"
    shape = grouper.shape(clients, groups)
    assert (shape.shortest, shape.longest, shape.grouped) == (sizes.min(), sizes.max(), clients)
