"""`Balanced`: groups that are as like each other as can be had, with nobody left out. Ours.

ICG makes the paper's objective z small in the mean, by dealing like clients at random; `Balanced` makes it small outright.
That is the anticlustering problem (Papenberg and Klau 2021), NP-hard like the paper's, and well served by local search.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.params import GIVEN_BY_RUN, require_real
from fedgsp.plan.cells import LARGEST_CELL, balance_vectors, deal_cells_anew, deal_farthest_first
from fedgsp.plan.divergence import group_sums
from fedgsp.plan.estimator import as_table, generator_of
from fedgsp.plan.exchange import Limits, balance, checked_limits, thresholds
from fedgsp.plan.groupers import Counts, EvenGroups, checked_counts, require_enough_clients

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]

MOST_EXCHANGED = 4096
"""Clients up to which pairs are exchanged: there is a matrix of clients times clients, 128 MiB at this size."""

VISITS, FEWEST_VISITS, MOST_VISITS = 25, 4_000, 25_000
"""How often each client is visited to be exchanged, and bounds for all visits: many clients get a brief search, and fewer than
160 several of them, of which the best counts."""

SWEEPS, MOST_COLUMNS = 6, 20_000
"""Sweeps over all clients, and the most columns (a client of each group) dealt anew: enough for millions in few groups."""

JITTER, SLIGHT_JITTER = 0.5, 0.02
"""How much chance there is in the order of the start. It costs quality, for which only long searches make up; with many clients
groups differ enough from round to round without it."""


@dataclass(frozen=True)
class Balanced(EvenGroups):
    """Minimises sum_m ||sum of u over group m||^2 directly, u as in `cells`; sizes equal to within one, everybody in a group.

    Up to 4,096 clients: a start by assignment, then 25 times the number of clients (but between 4,000 and 25,000 times) one
    of them is swapped with its best partner, at first also for the worse. Beyond: the same start, then 6 sweeps in which cells
    of like clients are dealt anew, in time and memory linear in the number of clients. Budgets count steps, never seconds, so
    the groups are a function of counts, number of groups and generator, the same on every machine.

    Args:
        effort: Multiplies these numbers: 4 is slower and better, 0 leaves it at the start.
        size_weight: The weight of equal sample numbers against equal distributions.
        heat: How much worse a swap may be at first, in units of a client's own length.
        longest_chain: For `fit` only: the most seconds that a group's chain may take.
        n_groups: For `fit` only: how many groups.
        random_state: For `fit` only: the seed.

    Raises:
        InputError: If a parameter cannot be used.

    Example:
        >>> groups = Balanced(n_groups=2, random_state=0).fit([[9, 0], [0, 9], [8, 0], [0, 8]])
        >>> np.bincount(groups.labels_).tolist()
        [2, 2]
    """

    kind: ClassVar[str] = "balanced"

    effort: float = 1.0
    size_weight: float = 0.5
    heat: float = 0.35
    longest_chain: float | None = field(default=None, metadata=GIVEN_BY_RUN)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("effort", "size_weight", "heat"):
            if require_real("Balanced", name, getattr(self, name)) < 0:
                raise InputError(f"Balanced: {name} must not be negative, but is {getattr(self, name)!r}.")
        if self.longest_chain is not None and require_real("Balanced", "longest_chain", self.longest_chain) <= 0:
            raise InputError(f"Balanced: longest_chain is in seconds and above 0, not {self.longest_chain!r}.")

    def assign(self, counts: Counts, n_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Labels (K,) of groups as like each other as the budget allows."""
        clients = len(counts)
        require_enough_clients(clients, n_groups)
        if n_groups in (1, clients):
            return rng.permutation(np.arange(clients, dtype=np.int64) % n_groups)
        length = -(-clients // n_groups)
        vectors = balance_vectors(counts, length, self.size_weight)
        if clients <= MOST_EXCHANGED:
            jitter = JITTER if VISITS * clients <= MOST_VISITS else SLIGHT_JITTER
            return self._exchanged(vectors, n_groups, rng, lambda: _start(vectors, n_groups, rng, jitter), None)
        places, sums = deal_farthest_first(vectors, n_groups, rng, SLIGHT_JITTER if n_groups <= LARGEST_CELL else 0.0)
        deal_cells_anew(vectors, places, sums, int(self.effort * min(SWEEPS * length, MOST_COLUMNS)), rng)
        labels = np.empty(clients + 1, dtype=np.int64)
        labels[places] = np.arange(n_groups)[:, None]
        return labels[:clients]

    def fit(self, X: ArrayLike, y: object = None, *, sites: ArrayLike | None = None, seconds: ArrayLike | None = None) -> Self:
        """Group clients outside a run, within constraints if there are any.

        Args:
            X: (K, F) one non-negative vector per client, usually class counts.
            y: Ignored; scikit-learn's tools pass it.
            sites: (K,) where each client is: no group gets two clients of a site.
            seconds: (K,) what each client takes in a chain: no group's sum exceeds `longest_chain`.

        Returns:
            Itself, with the groups in `labels_` (K,).

        Raises:
            InputError: If the counts cannot be used, or the constraints cannot be kept.
        """
        if self.longest_chain is not None and seconds is None:
            raise InputError("Balanced: longest_chain needs to know how long clients take: fit(counts, seconds=...).")
        if sites is None and seconds is None:
            return super().fit(X)
        vectors = checked_counts("Balanced", as_table("Balanced", X))
        n_groups = self.groups_for(len(vectors))
        if len(vectors) > MOST_EXCHANGED:
            raise InputError(
                f"Balanced: constraints are for at most {MOST_EXCHANGED} clients, not {len(vectors)}; group them in parts."
            )
        rng = generator_of(self.random_state)
        limits = checked_limits(len(vectors), n_groups, sites, seconds, self.longest_chain)
        grid = balance_vectors(vectors, -(-len(vectors) // n_groups), self.size_weight)
        return self.found(self._exchanged(grid, n_groups, rng, lambda: limits.start(rng), limits), X)

    def _exchanged(
        self, vectors: Reals, n_groups: int, rng: np.random.Generator, start: Callable[[], Wholes], limits: Limits | None
    ) -> Wholes:  # fmt: skip
        """Labels (K,): from `start`, which gives labels with empty places at their end, by exchange; the best of some tries."""
        clients = len(vectors) - 1
        steps = int(self.effort * min(VISITS * clients, MOST_VISITS))
        heat = self.heat * min(1.0, sqrt(MOST_VISITS / (VISITS * clients)))  # a brief search cannot undo much
        best, least = np.empty(0, dtype=np.int64), np.inf
        for _ in range(max(1, FEWEST_VISITS // (VISITS * clients))):
            labels = start()
            filled = np.concatenate([vectors[:clients], np.zeros((len(labels) - clients, vectors.shape[1]))])
            visits = np.concatenate([np.empty(0, np.int64), *(rng.permutation(clients) for _ in range(-(-steps // clients)))])
            balance(filled, labels, n_groups, clients, visits[:steps], thresholds(filled, steps, heat), limits)
            squares = float((group_sums(filled, labels, n_groups) ** 2).sum())
            if squares < least:
                best, least = labels[:clients], squares
        return best


def _start(vectors: Reals, n_groups: int, rng: np.random.Generator, jitter: float) -> Wholes:
    """Labels by assignment, followed by those of the empty places, at most one in a group."""
    clients = len(vectors) - 1
    places, _ = deal_farthest_first(vectors, n_groups, rng, jitter, LARGEST_CELL)
    labels = np.empty(clients + 1, dtype=np.int64)
    labels[places] = np.arange(n_groups)[:, None]
    return np.concatenate([labels[:clients], np.flatnonzero(places[:, -1] == clients)])


def balanced_within(
    counts: Counts, n_groups: int, seconds: float, random_state: int | None, grouper: Balanced
) -> NDArray[np.int64]:
    """`Balanced` for as long as there is time, outside training (where budgets count steps).

    The first search, of a tenth of the usual budget, is always made, however short the time.

    Args:
        counts: (K, F) one non-negative vector per client.
        n_groups: How many groups to form.
        seconds: How long it may take.
        random_state: The seed; None for chance.
        grouper: The parameters of the search.

    Returns:
        Labels (K,) of the best of ever longer searches.
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
