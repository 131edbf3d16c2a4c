"""Balance many clients at once: a start by assignment, then cells of like clients dealt anew. Linear in the number of clients.

*Start* (after Papenberg's and others' "assignment-based anticlustering", ABA): clients sorted by how far they are from the
mean, farthest first, in batches of one client per group; each batch is assigned so that the groups' sums get as near to zero
as they can. The odd ones are so placed while there is still much to come that makes up for them. What the last batches leave
over is what remains, and it is the less the more clients and groups are matched at once; so batches are cut into cells of 64
at first, which is cheap, and into ever larger ones, up to 1,000, towards the end.

*Cells* (ICG's idea with the random deal optimised): in a sweep every group lines its clients up along a random direction; those
of equal rank, one per group, are split by further directions into cells of at most 128 like clients in as many groups, and each
cell is dealt anew to its own groups, by the optimal assignment. Cells of one rank share no group, so they are independent.

Exchanging T_g - u_c + u_j for every group g of a cell costs (T_g - u_c) . u_j up to terms that do not depend on the deal: a
matrix product per cell, and no matrix of clients times clusters anywhere.

*What is balanced*: a vector per client whose sum over a group is zero when the group is like everybody.

With n the client's total, p the population's distribution and F classes, the client's counts v become

    u = (v - n p,  a n / sqrt(F)).

Summed over a group the first part is N_m (p_m - p), how far the group's class distribution is off, weighted by its samples;
the second is the group's number of samples. So sum_m ||sum u||^2 is small when all groups have the population's distribution
(then every CPD is small) *and* equally many samples (then the paper's z is). `a` weighs the second against the first.

The vectors are rounded to whole numbers on a grid of powers of two, fine enough to matter nowhere (13 to 20 bits) and coarse
enough that every product and sum that a search compares is below 2^53: float64 then computes exactly, in any order, and the
groups are the same on every machine and with every matrix library.
"""

from __future__ import annotations

from math import ceil, log2, sqrt
from typing import TYPE_CHECKING

import numpy as np
import scipy  # its parts are imported when they are used
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedgsp.plan.groupers import Counts

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]

BLOCK = 65536
"""Rows transformed at a time, so that a million clients need no second copy."""

LARGEST_CELL = 128
SMALLEST_START_CELL, LARGEST_START_CELL = 64, 1000
"""Clients and groups matched at once; at the start it takes longer, as everything is still to be decided."""


def balance_vectors(counts: Counts, longest: int, alpha: float) -> Reals:
    """(K + 1, F + 1) whole numbers in float64: u of each client, and zeros for the place of nobody.

    `longest` is the number of clients in the largest group, which bounds the sums.
    """
    clients, classes = counts.shape
    population = np.asarray(counts.sum(axis=0, dtype=np.float64))
    total = float(population.sum())
    share = population / total if total else population
    heavy = alpha / sqrt(classes) if classes else 0.0
    vectors = np.zeros((clients + 1, classes + 1))
    largest = 0.0
    for first in range(0, clients, BLOCK):
        block, own = counts[first : first + BLOCK], vectors[first : min(first + BLOCK, clients)]
        sizes = block.sum(axis=1, dtype=np.float64)
        np.subtract(block, sizes[:, None] * share, out=own[:, :classes])
        own[:, classes] = heavy * (sizes - total / clients)
        largest = max(largest, float(np.abs(own).max(initial=0.0)))
    if largest > 0:
        bits = (49 - ceil(log2((classes + 1) * (longest + 1)))) // 2
        np.multiply(vectors, 2.0 ** (bits - ceil(log2(largest))), out=vectors)
        np.rint(vectors, out=vectors)
    return vectors


def directions(vectors: Reals, count: int, rng: np.random.Generator, *, mixed: int = 64) -> Reals:
    """(F + 1, count) whole numbers: random directions along which clients differ much, each a sum of clients with random signs.

    Clients that are near each other along several of these are alike in what matters most.
    """
    clients = len(vectors) - 1
    drawn = rng.integers(0, clients, (count, mixed))
    signs = 2.0 * rng.integers(0, 2, (count, mixed, 1)) - 1.0
    return np.asarray((signs * vectors[drawn]).sum(axis=1).T)


def deal_farthest_first(
    vectors: Reals, n_groups: int, rng: np.random.Generator, jitter: float, largest: int = LARGEST_START_CELL
) -> tuple[Wholes, Reals]:
    """Places (M, L) with a client's row in each, and the groups' sums (M, F); the last row of `vectors` stands for nobody.

    Clients' distances are multiplied by a random factor between 1 - jitter and 1 + jitter, so that no two starts are the same.
    Places without a client are all in the last column, at most one per group. Cells have up to `largest` clients.
    """
    clients = len(vectors) - 1
    length = -(-clients // n_groups)
    far = np.einsum("kf,kf->k", vectors[:clients], vectors[:clients]) * rng.uniform(1 - jitter, 1 + jitter, clients) ** 2
    order = np.concatenate([np.argsort(-far, kind="stable"), np.full(n_groups * length - clients, clients)])
    places = np.empty((n_groups, length), dtype=np.int64)
    sums = np.zeros((n_groups, vectors.shape[1]))
    for column, batch in enumerate(order.reshape(length, n_groups)):
        rows, groups = rng.permutation(batch), rng.permutation(n_groups)
        for part in _parts(n_groups, largest >> int(np.log2((length + 1 - column) / 2))):
            dealt = _dealt(sums[groups[part]], vectors, rows[part])
            places[groups[part], column] = dealt
            sums[groups[part]] += vectors[dealt]
    return places, sums


def _parts(count: int, size: int) -> list[NDArray[np.int64]]:
    """0 .. count - 1 cut into equal cells (C, s) of about `size`, and what is left over as one more."""
    cells = 1 if count <= LARGEST_CELL else max(1, count // max(size, SMALLEST_START_CELL))
    whole = count // cells * cells
    parts = [np.arange(whole).reshape(cells, -1), np.arange(whole, count)[None]]
    return [part for part in parts if part.size]


def _dealt(sums: Reals, vectors: Reals, rows: Wholes) -> Wholes:
    """In each cell the rows (C, s) in the order of the groups that they are best put into; `sums` (C, s, F) without them."""
    costs = np.matmul(sums, vectors[rows].transpose(0, 2, 1))
    best = np.stack([scipy.optimize.linear_sum_assignment(cost)[1] for cost in costs])
    return np.take_along_axis(rows, best, axis=1)


def deal_cells_anew(vectors: Reals, places: Wholes, sums: Reals, columns: int, rng: np.random.Generator) -> None:
    """Improve `places` and `sums` in place: visit `columns` columns, in sweeps over all of them with directions of its own."""
    groups, length = places.shape
    depth = max(0, int(np.ceil(np.log2(groups / LARGEST_CELL))))
    size = groups >> depth
    visited = 0
    while visited < columns:
        along = vectors @ directions(vectors, 1, rng)[:, 0]
        along[-1] = np.inf  # nobody comes last, so that no group has two empty places
        places[:] = np.take_along_axis(places, np.argsort(along[places], axis=1, kind="stable"), axis=1)
        turn = rng.permutation(length)[: columns - visited]
        for column in turn.tolist():
            sample = rng.permutation(groups)[: size << depth]
            cells = _alike(vectors, places[sample, column], directions(vectors, depth, rng))
            own = sample[cells]
            rows = places[own, column]
            without = sums[own] - vectors[rows]
            dealt = _dealt(without, vectors, rows)
            places[own, column] = dealt
            sums[own] = without + vectors[dealt]
        visited += len(turn)


def _alike(vectors: Reals, rows: Wholes, along: Reals) -> Wholes:
    """Split the rows (n,) in half along each direction (F, depth) in turn: cells of positions (2^depth, n / 2^depth)."""
    cells = np.arange(len(rows))[None]
    projected = vectors[rows] @ along
    for turn in range(along.shape[1]):
        order = np.argsort(projected[cells, turn], axis=1, kind="stable")
        cells = np.take_along_axis(cells, order, axis=1).reshape(2 * len(cells), -1)
    return cells
