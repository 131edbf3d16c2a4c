"""What `Balanced` balances: a vector per client whose sum over a group is zero when the group is like everybody.

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

import numpy as np
from numpy.typing import NDArray

from fedgsp.plan.groupers import Counts

Reals = NDArray[np.float64]
BLOCK = 65536
"""Rows transformed at a time, so that a million clients need no second copy."""


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
