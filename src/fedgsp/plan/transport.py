"""The equal-size assignment of clients to clusters, solved exactly: the step that makes k-means "constrained" (Alg. 2, line 3).

It is a transportation problem: n points, L clusters, each cluster takes exactly `size` = n / L points, total cost least. The
paper solves it as a min-cost flow with OR-Tools. Here is the same optimum by successive shortest paths (primal-dual), on the
small graph of the L clusters and not on the graph of the n points.

Every cluster has a price. Each point first goes where cost + price is least; while a cluster is overfull, the cheapest chain of
moves "overfull -> ... -> with room" hands one point on along every arc, and prices are raised so that every point stays where
cost + price is least for it. That invariant is linear-programming optimality, and it holds for any prices to begin with, so
those of the last k-means iteration make a good start. Costs and prices that are whole numbers stay exact in float64.

The loop has two twins with the same bits: `loops.level`, machine code, and `_level_with_numpy`, where there is no compiler.
`benchmarks/assignment.py` measures both beside OR-Tools, POT and SciPy (docs/grouping.md). OR-Tools is not used where there is
no compiler: of equally cheap assignments it may choose another, and groups would depend on what is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedgsp.plan.loops import level

WORTH_COMPILING = 2048
"""Costs (n times L) from which it pays to load machine code: below, NumPy takes a few milliseconds."""


@dataclass(frozen=True)
class Assignment:
    """`labels` (n,) with exactly n / L points in each cluster, and the `prices` (L,) that prove it is the cheapest."""

    labels: NDArray[np.int64]
    prices: NDArray[np.float64]


def assign_equally(
    cost: NDArray[np.float64], prices: NDArray[np.float64] | None = None, *, compile_from: int = WORTH_COMPILING
) -> Assignment:
    """Assign n points to L clusters of exactly n / L points so that the sum of `cost` (n, L) is least (Eq. ccp-objective).

    `prices` (L,) is where the search begins, unless it starts nearer to equal sizes without them: it changes how fast the
    optimum is found, not what it costs. Problems of at least `compile_from` costs use compiled code where there is some.
    """
    points, clusters = cost.shape
    if points % clusters:
        raise ValueError(f"{points} points cannot be shared equally by {clusters} clusters")
    size = points // clusters
    labels, paid = cost.argmin(axis=1).astype(np.int64), np.zeros(clusters)
    if prices is not None:
        warm = (cost + prices).argmin(axis=1).astype(np.int64)
        if _misplaced(warm, clusters, size) <= _misplaced(labels, clusters, size):
            labels, paid = warm, prices.astype(np.float64)  # a copy: the caller's prices are left alone
    whole = np.ascontiguousarray(cost, dtype=np.float64)
    if cost.size < compile_from or not level(whole, labels, paid, size):
        _level_with_numpy(whole, labels, paid, size)
    return Assignment(labels, paid)


def _misplaced(labels: NDArray[np.int64], clusters: int, size: int) -> int:
    return int(np.maximum(np.bincount(labels, minlength=clusters) - size, 0).sum())


class _Moves:
    """The cheapest way to move one point from cluster c to cluster d, for every pair (c, d), kept true while points move.

    Of equally cheap points it is the one with the lowest number, whatever the order in which points came and went.
    """

    def __init__(self, cost: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        clusters = cost.shape[1]
        self.cost, self.labels = cost, labels
        self.extra = np.full((clusters, clusters), np.inf)  # what the cheapest move costs on top (may be negative)
        self.point = np.full((clusters, clusters), -1, dtype=np.int64)  # and which point it moves
        for cluster in range(clusters):
            self._renew(cluster, np.arange(clusters))

    def move(self, source: int, target: int) -> None:
        """Move the cheapest point from `source` to `target`."""
        point = int(self.point[source, target])
        self.labels[point] = target
        self._renew(source, np.flatnonzero(self.point[source] == point))
        extra = self.cost[point] - self.cost[point, target]
        better = (extra < self.extra[target]) | ((extra == self.extra[target]) & (point < self.point[target]))
        self.extra[target, better], self.point[target, better] = extra[better], point

    def _renew(self, cluster: int, targets: NDArray[np.int64]) -> None:
        members = np.flatnonzero(self.labels == cluster)
        if not len(members):
            self.extra[cluster, targets], self.point[cluster, targets] = np.inf, -1
            return
        extra = self.cost[np.ix_(members, targets)] - self.cost[members, cluster][:, None]
        best = extra.argmin(axis=0)
        self.extra[cluster, targets] = extra[best, np.arange(len(targets))]
        self.point[cluster, targets] = members[best]


def _level_with_numpy(cost: NDArray[np.float64], labels: NDArray[np.int64], prices: NDArray[np.float64], size: int) -> None:
    """As `loops.level`: changes `labels` and `prices` until each cluster has `size` points."""
    moves = _Moves(cost, labels)
    load = np.bincount(labels, minlength=len(prices))
    while (load > size).any():
        path, prices[:] = _cheapest_path(moves.extra, prices, load > size, load < size)
        for source, target in reversed(list(pairwise(path))):
            moves.move(source, target)
        load[path[0]] -= 1
        load[path[-1]] += 1


def _cheapest_path(
    extra: NDArray[np.float64], prices: NDArray[np.float64], overfull: NDArray[np.bool_], has_room: NDArray[np.bool_]
) -> tuple[list[int], NDArray[np.float64]]:
    """Dijkstra from all overfull clusters to the nearest one with room, and the prices after it.

    An arc's length is the extra cost of a move plus the difference in price, never negative but for rounding (clipped).
    """
    distance = np.where(overfull, 0.0, np.inf)
    before = np.full(len(prices), -1, dtype=np.int64)
    unsettled = distance.copy()  # the same distances, infinite once a cluster is settled
    while True:
        nearest = int(unsettled.argmin())
        reached = distance[nearest]
        if has_room[nearest]:
            break
        unsettled[nearest] = np.inf
        through = reached + np.maximum(extra[nearest] + (prices - prices[nearest]), 0.0)
        shorter = through < distance
        distance[shorter] = through[shorter]
        unsettled[shorter] = through[shorter]
        before[shorter] = nearest
    path = [nearest]
    while before[path[-1]] >= 0:
        path.append(int(before[path[-1]]))
    return path[::-1], prices + (reached - np.minimum(distance, reached))
