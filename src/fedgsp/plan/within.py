"""`Balanced` for as long as there is time, outside training (where budgets count steps)."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedgsp.plan.balanced import Balanced
from fedgsp.plan.groupers import Counts
from fedgsp.plan.vectors import balance_vectors


def balanced_within(
    counts: Counts, n_groups: int, seconds: float, random_state: int | None, grouper: Balanced
) -> NDArray[np.int64]:
    """Labels (K,): the best of ever longer searches, until the next would take longer than what is left of `seconds`.

    The first, of a tenth of the usual budget, is always made, however short the time.
    """
    end = time.monotonic() + seconds
    vectors = balance_vectors(counts, -(-len(counts) // n_groups), grouper.size_weight)[:-1]
    best: NDArray[np.int64] | None = None
    least, effort, turn = np.inf, 0.1, 0
    while True:
        began = time.monotonic()
        tried = replace(grouper, effort=effort * grouper.effort)
        rng = np.random.default_rng(None if random_state is None else [random_state, turn])
        labels = tried.assign(counts, n_groups, rng)
        sums = np.zeros((n_groups, vectors.shape[1]))
        np.add.at(sums, labels, vectors)
        squares = float((sums**2).sum())
        if best is None or squares < least:
            best, least = labels, squares
        effort, turn = 2 * effort, turn + 1
        took = time.monotonic() - began
        if time.monotonic() + 2 * took > end:
            return best
