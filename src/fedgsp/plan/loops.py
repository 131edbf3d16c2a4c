"""The two inner loops of grouping, written out element by element for a compiler (see `compiled`): slow if merely interpreted.

Each has a twin in NumPy (`transport`, `exchange`) that takes the same decisions in the same order on the same float64 numbers,
ties included, and so gives the same bits; tests hold them to that. Both are kept in one file and call nothing outside it,
because a compiled function that is kept on disk is only renewed when its own file changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


def level(cost: Reals, labels: Wholes, prices: Reals, size: int) -> None:
    """Move points along cheapest paths, changing `labels` (n,) and `prices` (L,), until each cluster has `size` of them.

    See `transport`. At the start every point must be where cost + price is least for it.
    """
    points, clusters = cost.shape
    # The points of a cluster are a linked list; -1 ends it.
    head = np.full(clusters, -1, dtype=np.int64)
    after = np.full(points, -1, dtype=np.int64)
    before = np.full(points, -1, dtype=np.int64)
    load = np.zeros(clusters, dtype=np.int64)
    extra = np.full((clusters, clusters), np.inf)  # what the cheapest move from one cluster to another costs on top
    mover = np.full((clusters, clusters), -1, dtype=np.int64)  # and which point it moves: of equally cheap ones the first
    for point in range(points):
        own = labels[point]
        load[own] += 1
        after[point] = head[own]
        if head[own] >= 0:
            before[head[own]] = point
        head[own] = point
        for other in range(clusters):
            price = cost[point, other] - cost[point, own]
            if price < extra[own, other]:
                extra[own, other] = price
                mover[own, other] = point
    distance = np.empty(clusters)
    settled = np.empty(clusters, dtype=np.bool_)
    parent = np.empty(clusters, dtype=np.int64)
    while True:
        overfull = False
        for cluster in range(clusters):
            parent[cluster] = -1
            settled[cluster] = False
            if load[cluster] > size:
                distance[cluster] = 0.0
                overfull = True
            else:
                distance[cluster] = np.inf
        if not overfull:
            return
        # Dijkstra from all overfull clusters to the nearest one with room
        while True:
            nearest = -1
            reached = np.inf
            for cluster in range(clusters):
                if not settled[cluster] and (nearest < 0 or distance[cluster] < reached):
                    nearest = cluster
                    reached = distance[cluster]
            if load[nearest] < size:
                break
            settled[nearest] = True
            for other in range(clusters):
                length = extra[nearest, other] + (prices[other] - prices[nearest])
                through = reached + max(length, 0.0)
                if through < distance[other]:
                    distance[other] = through
                    parent[other] = nearest
        for cluster in range(clusters):
            prices[cluster] = prices[cluster] + (reached - min(distance[cluster], reached))
        load[nearest] += 1
        target = nearest
        while parent[target] >= 0:
            source = parent[target]
            point = mover[source, target]
            if before[point] >= 0:
                after[before[point]] = after[point]
            else:
                head[source] = after[point]
            if after[point] >= 0:
                before[after[point]] = before[point]
            before[point] = -1
            after[point] = head[target]
            if head[target] >= 0:
                before[head[target]] = point
            head[target] = point
            labels[point] = target
            for other in range(clusters):
                if mover[source, other] == point:  # the source must find another cheapest one
                    best = np.inf
                    found = -1
                    member = head[source]
                    while member >= 0:
                        price = cost[member, other] - cost[member, source]
                        if price < best or (price == best and member < found):
                            best = price
                            found = member
                        member = after[member]
                    extra[source, other] = best
                    mover[source, other] = found
                price = cost[point, other] - cost[point, target]
                if price < extra[target, other] or (price == extra[target, other] and point < mover[target, other]):
                    extra[target, other] = price
                    mover[target, other] = point
            target = source
        load[target] -= 1


def exchange(gram: Reals, pull: Reals, labels: Wholes, visits: Wholes, limits: Reals, clients: int) -> int:
    """Visit clients and swap each with its best partner, changing `labels` (P,) and `pull` (M, P); see `exchange`.

    `gram` (P, P) are the products of vectors, `pull` those with the groups' sums; places from `clients` on are empty. Returns
    the number of swaps.
    """
    places = len(labels)
    has_empty = np.zeros(len(pull), dtype=np.bool_)
    for place in range(clients, places):
        has_empty[labels[place]] = True
    squares = np.empty(places)
    leaving = np.empty(places)  # what is gained or lost when each leaves its group
    for place in range(places):
        squares[place] = gram[place, place]
        leaving[place] = squares[place] - pull[labels[place], place]
    swaps = 0
    for step in range(len(visits)):
        client = visits[step]
        home = labels[client]
        best = np.inf
        other = -1
        for place in range(clients if has_empty[home] else places):
            away = labels[place]
            if away == home:
                continue
            change = pull[home, place] + leaving[place] + pull[away, client] - 2 * gram[client, place]
            if change < best:
                best = change
                other = place
        if other < 0 or not best + (squares[client] - pull[home, client]) < limits[step]:
            continue
        away = labels[other]
        for place in range(places):
            difference = gram[other, place] - gram[client, place]
            pull[home, place] += difference
            pull[away, place] -= difference
        labels[client] = away
        labels[other] = home
        for place in range(places):
            leaving[place] = squares[place] - pull[labels[place], place]
        if other >= clients:
            has_empty[home] = True
            has_empty[away] = False
        swaps += 1
    return swaps
