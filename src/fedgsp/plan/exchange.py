"""Balance groups by swapping two clients at a time: the last and finest step of `Balanced`, for up to a few thousand clients.

With T_a the sum of group a's vectors, swapping i of group a with j of group b changes sum_m ||T_m||^2 by

    2 [ (u_j - u_i) . (T_a - T_b) + ||u_j - u_i||^2 ],

which needs only G = U U' (every client with every other) and P = T U' (every group with every client), both kept up to date at
the cost of two rows a swap. So one step looks at *all* partners of one client: the best is taken if it improves the sum, or
makes it worse by less than a threshold that falls to zero ("threshold accepting", Dueck and Scheuer 1990: simulated annealing
without logarithms, so that every comparison is exact).

`Exchange.run` takes the same steps as `loops.exchange`, its compiled twin.
"""

from __future__ import annotations

import sys
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedgsp.plan.compiled import compiled
from fedgsp.plan.loops import exchange

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]

WORTH_COMPILING = 200_000
WORTH_IMPORTING = 20_000_000
"""Swaps to look at (steps times clients) from which compiled code pays, and from which it pays to import a compiler for it."""


class Rules(Protocol):
    """Which swaps are allowed, where not all are."""

    def allowed(self, client: int, labels: Wholes) -> NDArray[np.bool_]:
        """(P,) for every place: whether `client` may swap with who is there."""
        ...

    def swapped(self, client: int, other: int, labels: Wholes) -> None:
        """Told before `client` and `other` change groups."""
        ...


def thresholds(vectors: Reals, steps: int, heat: float) -> Reals:
    """(steps,) how much worse a swap may make half the sum of squares: heat^2 of a client's mean square, falling to zero."""
    mean_square = float((vectors**2).sum()) / max(1, len(vectors))
    return np.asarray((heat * (1.0 - np.arange(1, steps + 1) / steps)) ** 2 * mean_square)


def balance(
    vectors: Reals, labels: Wholes, n_groups: int, clients: int, visits: Wholes, limits: Reals, rules: Rules | None = None,
    *, compile_from: int | None = None,
) -> int:  # fmt: skip
    """Improve `labels` (P,) in place: swap each of `visits` (steps,) with its best partner if within `limits` (steps,).

    `vectors` (P, F) are whole numbers (`balance_vectors`); rows from `clients` on are zero and stand for empty places, at most
    one in a group, so that sizes stay equal to within one. Returns the number of swaps.
    """
    gram = vectors @ vectors.T
    sums = np.zeros((n_groups, vectors.shape[1]))
    np.add.at(sums, labels, vectors)
    pull = sums @ vectors.T
    if compile_from is None:
        compile_from = WORTH_COMPILING if "numba" in sys.modules else WORTH_IMPORTING
    fast = compiled(exchange) if rules is None and len(visits) * len(labels) >= compile_from else None
    if fast is not None:
        return int(fast(gram, pull, labels, visits, limits, clients))
    return _exchange_with_numpy(gram, pull, labels, visits, limits, clients, rules)


def _exchange_with_numpy(
    gram: Reals, pull: Reals, labels: Wholes, visits: Wholes, limits: Reals, clients: int, rules: Rules | None = None
) -> int:
    """As `loops.exchange`, with rules."""
    places = np.arange(len(labels))
    squares = gram.diagonal()
    has_empty = np.zeros(len(pull), dtype=np.bool_)
    has_empty[labels[clients:]] = True
    leaving = squares - pull[labels, places]  # what is gained or lost when each leaves its group
    swaps = 0
    for client, limit in zip(visits.tolist(), limits.tolist(), strict=True):
        home = labels[client]
        change = pull[home] + leaving
        change += pull[:, client].take(labels)
        change -= 2 * gram[client]
        change[labels == home] = np.inf
        if has_empty[home]:
            change[clients:] = np.inf
        if rules is not None:
            change[~rules.allowed(client, labels)] = np.inf
        other = int(change.argmin())
        if not change[other] + (squares[client] - pull[home, client]) < limit:
            continue
        if rules is not None:
            rules.swapped(client, other, labels)
        away = labels[other]
        difference = gram[other] - gram[client]
        pull[home] += difference
        pull[away] -= difference
        labels[client], labels[other] = away, home
        if other >= clients:
            has_empty[home], has_empty[away] = True, False
        leaving = squares - pull[labels, places]
        swaps += 1
    return swaps
