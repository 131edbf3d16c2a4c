"""Equal-size clusters of very many clients: halves of halves, the exact clusters within them, and then pairs made better.

The exact assignment of ICG weighs every client against every cluster, which is too much work for many of both. Here a
population is split in two by k-means with two clusters of given sizes. With two clusters the exact assignment is no more than a
sort: only the order of the clients along the line between the centroids matters. Parts that are small enough get their clusters
by the exact assignment. What was cut apart is brought together afterwards. First the clusters themselves are cut into parts
along other lines, and the points of each part are assigned to its clusters exactly, some times. Then a cluster and a neighbour
are split anew if that is better, and swap points that both gain by.

Clients are ordered by whole numbers (the way from one centroid to the other is rounded to 20 bits), which are exact in float64,
and of equals the one with the lower number comes first: so the clusters depend on no library. Neighbours are split by machine
code where there is a compiler (`loops.mend`), which takes the same decisions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedgsp.plan.kmeans_start import plus_plus_start
from fedgsp.plan.loops import mend

if TYPE_CHECKING:
    from collections.abc import Callable

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]

WAY_BITS = 20
SWEEPS = 2
"""So often at most every cluster is looked at afterwards,"""
NEIGHBOURS = 8
"""together with so many that are nearest,"""
WORTH_MENDING = 8
"""if clusters have so many points. Of smaller ones a part has hundreds, and few of them lie at its edge."""
WORTH_SWAPPING = 64
"""Points of clusters up to which two also swap single points: one of more changes next to nothing (in loops.c, too)."""
TRIED = 16
"""Candidates of each for a swap (in loops.c, too)."""
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


def assigned_across(
    points: Reals, labels: Wholes, clusters: int, rng: np.random.Generator, tau: int, costs: int,
    assigned: Callable[[Reals, Reals], Wholes],
) -> Wholes:  # fmt: skip
    """Labels after `tau` steps of k-means, in each of which the clusters are cut into parts along other lines.

    Args:
        points: (n, F), whole numbers.
        labels: (n,) of equal-size clusters.
        clusters: How many.
        rng: Where the lines come from.
        tau: How many steps.
        costs: Parts of so many points times clusters, or fewer, are not cut any more.
        assigned: The labels of some points in equal-size clusters with these sums (L, F) of their points before.
    """
    size, labels = len(points) // clusters, labels.copy()
    for _ in range(tau):
        members = np.argsort(labels, kind="stable").reshape(clusters, -1)
        sums, parts = points[members].sum(axis=1), [np.arange(clusters)]
        while parts:
            part = parts.pop()
            if len(part) ** 2 * size > costs and len(part) > 1:
                near, far = _halves(sums[part], len(part) // 2, rng, tau)
                parts += [part[far], part[near]]
            elif len(part) > 1:
                rows = np.sort(members[part], axis=None)
                labels[rows] = part[assigned(points[rows], sums[part])]
    return labels


def mended(points: Reals, labels: Wholes, clusters: int) -> Wholes:
    """Clusters of which pairs of neighbours were split anew wherever that brings points nearer to their centroids.

    The sum of squared distances never grows: for fixed sizes it is least where the squares of the clusters' sums are largest.
    """
    points = np.ascontiguousarray(points)
    members = np.argsort(labels, kind="stable").reshape(clusters, -1)
    if members.shape[1] < WORTH_MENDING:
        return labels
    sums = points[members].sum(axis=1)
    for _ in range(SWEEPS):
        near = _neighbours(sums)
        changes = mend(points, members, sums, near, 2.0**WAY_BITS)
        if (_mend_with_numpy(points, members, sums, near) if changes is None else changes) == 0:
            break
    found = np.empty(len(points), dtype=np.int64)
    found[members] = np.arange(clusters)[:, None]
    return found


def _mend_with_numpy(points: Reals, members: Wholes, sums: Reals, neighbours: Wholes) -> int:
    """As `loops.mend`."""
    size, changes = members.shape[1], 0
    for cluster, others in enumerate(neighbours):
        for other in others:
            both = np.sort(np.concatenate([members[cluster], members[other]]))
            own = points[both]
            order = _along(own, sums[cluster] - sums[other])
            new, whole = own[order[:size]].sum(axis=0), sums[cluster] + sums[other]
            if _squares(new, whole - new) > _squares(sums[cluster], sums[other]):
                members[cluster], members[other] = both[order[:size]], both[order[size:]]
                sums[cluster], sums[other] = new, whole - new
                changes += 1
            if size <= WORTH_SWAPPING:
                changes += _swap_with_numpy(points, members, sums, cluster, int(other))
    return changes


def _swap_with_numpy(points: Reals, members: Wholes, sums: Reals, one: int, other: int) -> int:
    """Swap single points of two clusters, the two that bring most, until none brings anything; the number of swaps.

    Swapping x of one for y of the other changes half the squares of both sums by |x|^2 - x d + |y|^2 + y d - 2 x y, where d is
    the difference of the sums. Tried are the points of each with the most of what is its own in that.
    """
    for swaps in range(members.shape[1]):
        way = sums[one] - sums[other]
        leaving, coming = np.sort(members[one]), np.sort(members[other])
        x, y = points[leaving], points[coming]
        gain_x, gain_y = (x**2).sum(axis=1) - x @ way, (y**2).sum(axis=1) + y @ way
        best_x, best_y = (np.argsort(-gain, kind="stable")[:TRIED] for gain in (gain_x, gain_y))
        gains = gain_x[best_x][:, None] + gain_y[best_y] - 2 * (x[best_x] @ y[best_y].T)
        if not gains.max() > 0:
            return swaps
        row, column = divmod(int(gains.argmax()), gains.shape[1])
        out, new = leaving[best_x[row]], coming[best_y[column]]
        members[one][members[one] == out], members[other][members[other] == new] = new, out
        sums[one] += points[new] - points[out]
        sums[other] -= points[new] - points[out]
    return int(members.shape[1])


def _neighbours(sums: Reals) -> Wholes:
    """Of every cluster (L, many) those whose centroids are nearest, the nearest first, of equals the lowest."""
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
    return np.array(found, dtype=np.int64)


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
