"""Groupings of others, written plainly, to compare with: the authors' package, hierarchical ABA, descent by best swaps."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedgsp.plan import NOBODY, ClusterShape, deal

Wholes = NDArray[np.int64]
Reals = NDArray[np.float64]


def by_k_means_constrained(counts: NDArray[np.number], groups: int, seed: int, tau: int = 10) -> Wholes:
    """ICG as the authors ran it: clusters by the package k-means-constrained, dealt at random."""
    rng = np.random.default_rng(seed)
    shape = ClusterShape.of(len(counts), groups)
    sampled = rng.choice(len(counts), shape.sampled, replace=False)
    labels = np.full(len(counts), NOBODY, dtype=np.int64)
    labels[sampled] = deal(
        constrained(np.asarray(counts[sampled], dtype=np.float64), shape, "k-means++", tau, seed), groups, rng
    )
    return labels


def constrained(points: Reals, shape: ClusterShape, start: Reals | str, tau: int, seed: int) -> Wholes:
    """Equal-size clusters by k-means-constrained, from given centroids or its own start."""
    from k_means_constrained import KMeansConstrained

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = KMeansConstrained(
            shape.clusters, size_min=shape.size, size_max=shape.size, init=start, n_init=1, max_iter=tau, random_state=seed
        )
        return np.asarray(model.fit(points).labels_, dtype=np.int64)


def by_hierarchical_aba(counts: NDArray[np.number], groups: int) -> Wholes:
    """Assignment-based anticlustering on raw counts, in levels of at most 128 groups."""
    return _levels(np.asarray(counts, dtype=np.float64), _factors(groups))


def _factors(groups: int) -> tuple[int, ...]:
    if groups <= 128:
        return (groups,)
    inner = next(size for size in range(128, 1, -1) if groups % size == 0)
    return (*_factors(groups // inner), inner)


def _levels(points: Reals, levels: tuple[int, ...]) -> Wholes:
    labels = _aba(points, levels[0])
    if len(levels) == 1:
        return labels
    found, below = np.empty(len(points), dtype=np.int64), int(np.prod(levels[1:]))
    for group in range(levels[0]):
        own = np.flatnonzero(labels == group)
        found[own] = group * below + _levels(points[own], levels[1:])
    return found


def _aba(points: Reals, groups: int) -> Wholes:
    """Farthest first, in batches of one per group, each assigned so as to be as far as can be from the groups' centroids."""
    off = points - points.mean(axis=0)
    order = np.argsort(-(off**2).sum(axis=1), kind="stable")
    labels = np.empty(len(points), dtype=np.int64)
    sums, sizes = np.zeros((groups, points.shape[1])), np.zeros((groups, 1))
    for first in range(0, len(points), groups):
        batch = order[first : first + groups]
        centroids = sums / np.maximum(sizes, 1)
        rows, chosen = linear_sum_assignment(off[batch] @ centroids.T - (centroids**2).sum(axis=1) / 2)
        labels[batch[rows]] = chosen
        sums[chosen] += off[batch[rows]]
        sizes[chosen] += 1
    return labels


def by_best_swaps(counts: NDArray[np.number], groups: int, seed: int) -> Wholes:
    """The plain reference: from random groups, the best of all swaps (by squared distances of sums), until none helps."""
    rng = np.random.default_rng(seed)
    points = np.asarray(counts, dtype=np.float64) - np.asarray(counts, dtype=np.float64).mean(axis=0)
    labels = rng.permutation(np.arange(len(points)) % groups)
    gram = points @ points.T
    squares, places = gram.diagonal(), np.arange(len(points))
    sums = np.zeros((groups, points.shape[1]))
    np.add.at(sums, labels, points)
    while True:
        pull = points @ sums.T  # (K, M)
        own = pull[places, labels]
        across = pull[:, labels]  # of row i with the group of j
        change = across + across.T - own[:, None] - own[None] + squares[:, None] + squares[None] - 2 * gram
        change[labels[:, None] == labels[None]] = 0
        i, j = divmod(int(change.argmin()), len(points))
        if change[i, j] > -1e-6:
            return labels
        sums[labels[i]] += points[j] - points[i]
        sums[labels[j]] += points[i] - points[j]
        labels[i], labels[j] = labels[j], labels[i]
