"""Equal-size clusters of very many clients: halves of halves, the exact clusters within them, and then pairs made better.

The exact assignment of ICG weighs every client against every cluster, which is too much work for many of both. Here a
population is split in two by k-means with two clusters of given sizes. With two clusters the exact assignment is no more than a
sort: only the order of the clients along the line between the centroids matters. Parts that are small enough get their clusters
by the exact assignment. What was cut apart is mended afterwards: a cluster and a neighbour are split anew if that is better.

Clients are ordered by whole numbers (the way from one centroid to the other is rounded to 20 bits), which are exact in float64,
and of equals the one with the lower number comes first: so the clusters depend on no library, and there is no machine code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedgsp.plan.kmeans_start import plus_plus_start

if TYPE_CHECKING:
    from collections.abc import Callable

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]

WAY_BITS = 20
SWEEPS = 2
"""So often every cluster is looked at afterwards,"""
NEIGHBOURS = 8
"""together with so many that are nearest,"""
WORTH_MENDING = 8
"""if clusters have so many points. Of smaller ones a part has hundreds, and few of them lie at its edge."""
BLOCK = 2**20
"""Distances between clusters that are in memory at a time."""


def clusters_by_halves(
    points: Reals, clusters: int, rng: np.random.Generator, tau: int, costs: int, exactly: Callable[[Reals, int], Wholes]
) -> Wholes:
    """Labels (n,) of equal-size clusters.

    Args:
        points: (n, F), whole numbers.
        clusters: How many; must divide n.
        rng: Where the halves' starts come from.
        tau: At most so many iterations for two halves.
        costs: Parts of so many points times clusters, or fewer, are not halved any more.
        exactly: The labels of the points of such a part in so many clusters.
    """
    size = len(points) // clusters
    labels = np.empty(len(points), dtype=np.int64)
    parts = [(np.arange(len(points)), 0, clusters)]
    while parts:
        rows, first, many = parts.pop()
        if many == 1:
            labels[rows] = first
        elif len(rows) * many <= costs:
            labels[rows] = first + exactly(points[rows], many)
        else:
            one = many // 2
            near, far = _halves(points[rows], one * size, rng, tau)
            parts += [(rows[far], first + one, many - one), (rows[near], first, one)]
    return labels


def mended(points: Reals, labels: Wholes, clusters: int) -> Wholes:
    """Clusters of which pairs of neighbours were split anew wherever that brings points nearer to their centroids.

    The sum of squared distances never grows: for fixed sizes it is least where the squares of the clusters' sums are largest.
    """
    members = np.argsort(labels, kind="stable").reshape(clusters, -1)
    size, sums = members.shape[1], points[members].sum(axis=1)
    if size < WORTH_MENDING:
        return labels
    for _ in range(SWEEPS):
        changed = False
        for cluster, others in enumerate(_neighbours(sums)):
            for other in others:
                both = np.sort(np.concatenate([members[cluster], members[other]]))
                own = points[both]
                order = _along(own, sums[cluster] - sums[other])
                new, whole = own[order[:size]].sum(axis=0), sums[cluster] + sums[other]
                if _squares(new, whole - new) > _squares(sums[cluster], sums[other]):
                    members[cluster], members[other] = both[order[:size]], both[order[size:]]
                    sums[cluster], sums[other] = new, whole - new
                    changed = True
        if not changed:
            break
    found = np.empty(len(points), dtype=np.int64)
    found[members] = np.arange(clusters)[:, None]
    return found


def _neighbours(sums: Reals) -> list[Wholes]:
    """Of every cluster those whose centroids are nearest, the nearest first, of equals the lowest."""
    clusters, found = len(sums), []
    many, rows = min(NEIGHBOURS, clusters - 1), max(1, BLOCK // clusters)
    squares = (sums**2).sum(axis=1)
    for first in range(0, clusters, rows):
        gaps = squares - 2 * (sums[first : first + rows] @ sums.T)
        own = np.arange(len(gaps))
        gaps[own, first + own] = np.inf
        farthest = np.partition(gaps, many - 1, axis=1)[:, many - 1]
        for row, limit in zip(gaps, farthest, strict=True):
            near = np.flatnonzero(row <= limit)
            found.append(near[np.argsort(row[near], kind="stable")][:many])
    return found


def _halves(points: Reals, first: int, rng: np.random.Generator, tau: int) -> tuple[Wholes, Wholes]:
    """k-means with two clusters, of `first` points and of the others: the numbers of both, in their order."""
    start = plus_plus_start(points, 2, rng)
    way, total = points[start[0]] - points[start[1]], points.sum(axis=0)
    before: Reals | None = None
    for _ in range(tau):
        order = _along(points, way)
        half = points[order[:first]].sum(axis=0)
        if before is not None and np.array_equal(half, before):
            break
        before, way = half, half / first - (total - half) / (len(points) - first)
    return np.sort(order[:first]), np.sort(order[first:])


def _along(points: Reals, way: Reals) -> Wholes:
    """The points' numbers, the farthest along this way first, of equals the lowest."""
    length = np.abs(way).max()
    whole = np.rint(way * (2.0**WAY_BITS / length)) if length else way
    return np.argsort(-(points @ whole), kind="stable")


def _squares(one: Reals, other: Reals) -> float:
    return float((one**2).sum() + (other**2).sum())
