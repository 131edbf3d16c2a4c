"""ICG for many clients: clusters made in halves, beside the exact ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.plan import ICG, halves, icg, transport
from fedgsp.plan.halves import assigned_across, clusters_by_halves, mended
from fedgsp.plan.icg import equal_size_clusters

Reals = NDArray[np.float64]


def writers(clients: int, seed: int = 0) -> Reals:
    """Counts of skewed clients without any structure: the hardest to cut apart."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(20, 0.5), size=clients)
    sizes = rng.integers(20, 200, clients)
    return np.stack([rng.multinomial(int(n), p) for n, p in zip(sizes, shares, strict=True)]).astype(np.float64)


def half_squares(points: Reals, labels: NDArray[np.int64], clusters: int) -> float:
    own = points[np.argsort(labels, kind="stable")].reshape(clusters, len(points) // clusters, -1)
    return 0.5 * float(((own - own.mean(axis=1, keepdims=True)) ** 2).sum())


def in_halves(points: Reals, clusters: int, costs: int, seed: int = 0) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return clusters_by_halves(points, clusters, rng, 10, costs, lambda part, many: equal_size_clusters(part, many, rng).labels)


@pytest.mark.parametrize(("clients", "clusters", "costs"), [(240, 12, 500), (231, 21, 300), (300, 3, 10), (64, 32, 32)])
def test_all_clusters_have_the_same_size(clients: int, clusters: int, costs: int) -> None:
    points = writers(clients)
    labels = in_halves(points, clusters, costs)
    assert np.bincount(labels).tolist() == [clients // clusters] * clusters
    assert np.bincount(mended(points, labels, clusters)).tolist() == [clients // clusters] * clusters


def test_two_halves_are_the_exact_clusters_of_two() -> None:
    """With two clusters the assignment is a sort: what k-means with exact assignments ends with does not get better by one."""
    points = writers(200)
    labels = in_halves(points, 2, 10)
    assert mended(points, labels, 2).tolist() == labels.tolist()


def test_mending_never_makes_it_worse_and_mostly_better() -> None:
    for seed in range(3):
        points = writers(400, seed)
        cut = in_halves(points, 20, 500, seed)
        assert half_squares(points, mended(points, cut, 20), 20) < half_squares(points, cut, 20)


def dense(clients: int, seed: int) -> Reals:
    return np.random.default_rng(seed).poisson(3.0, (clients, 10)).astype(np.float64)


def of_two_classes(clients: int, seed: int) -> Reals:
    rng, counts = np.random.default_rng(seed), np.zeros((clients, 10))
    np.add.at(counts, (np.arange(clients)[:, None], rng.integers(0, 10, (clients, 2))), rng.integers(20, 200, (clients, 2)))
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("population", [writers, dense, of_two_classes])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_clusters_cost_two_per_cent_more_at_most(population: Callable[[int, int], Reals], seed: int) -> None:
    points = population(5000, seed)
    exactly, halved = (ICG(exact_up_to=n).clusters(points, 500, np.random.default_rng(seed)) for n in (5000, 4096))
    assert halved.tolist() != exactly.tolist()
    assert half_squares(points, halved, 500) < 1.02 * half_squares(points, exactly, 500)


def test_steps_across_the_cuts_keep_the_sizes_and_bring_points_nearer() -> None:
    points, rng = writers(400), np.random.default_rng(1)
    cut = in_halves(points, 20, 500)

    def assigned(some: Reals, sums: Reals) -> NDArray[np.int64]:
        return transport.assign_equally((sums**2).sum(axis=1) - 2 * 20 * (some @ sums.T)).labels

    across = assigned_across(points, cut, 20, rng, 5, 500, assigned)
    assert np.bincount(across).tolist() == [20] * 20
    assert half_squares(points, across, 20) < half_squares(points, cut, 20)


def test_few_clients_or_few_costs_are_assigned_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    points = writers(400)
    exactly = equal_size_clusters(points, 20, np.random.default_rng(0)).labels.tolist()

    def found(exact_up_to: int, costs: int) -> list[int]:
        monkeypatch.setattr(icg, "FEW_COSTS", costs)
        return list(ICG(exact_up_to=exact_up_to).clusters(points, 20, np.random.default_rng(0)))

    assert found(400, 100) == found(399, 8000) == exactly
    assert found(399, 7999) != exactly


def test_twins_and_empty_clients_are_no_trouble() -> None:
    points = np.repeat([[0.0, 0.0], [3.0, 1.0]], 200, axis=0)
    labels = mended(points, in_halves(points, 10, 250), 10)
    assert np.bincount(labels).tolist() == [40] * 10
    assert half_squares(points, labels, 10) == 0


def test_the_switch_over_is_part_of_the_configuration_and_checked() -> None:
    assert "exact_up_to" in str(ICG(exact_up_to=10))
    with pytest.raises(InputError, match="exact_up_to"):
        ICG(exact_up_to=0)


@pytest.mark.parametrize(("clients", "clusters"), [(300, 15), (260, 2)])
def test_the_clusters_are_the_same_without_a_compiler(clients: int, clusters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With clusters of 20 points, which are also swapped one by one, and of 130, which are not."""
    monkeypatch.setattr(icg, "FEW_COSTS", clients)
    monkeypatch.setattr(icg, "PART_COSTS", 5 * clients)

    def found() -> list[list[int]]:
        grouper = ICG(exact_up_to=10)
        return [grouper.clusters(dense(clients, s), clusters, np.random.default_rng(s)).tolist() for s in range(3)]

    by_machine_code = found()
    monkeypatch.setattr(transport, "level", lambda *_: False)
    monkeypatch.setattr(halves, "mend", lambda *_: None)
    assert found() == by_machine_code
