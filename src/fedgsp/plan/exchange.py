"""Balance groups by swapping two clients at a time: the last and finest step of `Balanced`, for up to a few thousand clients.

With T_a the sum of group a's vectors, swapping i of group a with j of group b changes sum_m ||T_m||^2 by

    2 [ (u_j - u_i) . (T_a - T_b) + ||u_j - u_i||^2 ],

which needs only G = U U' (every client with every other) and P = T U' (every group with every client), both kept up to date at
the cost of two rows a swap. So one step looks at *all* partners of one client: the best is taken if it improves the sum, or
makes it worse by less than a threshold that falls to zero ("threshold accepting", Dueck and Scheuer 1990: simulated annealing
without logarithms, so that every comparison is exact).

`_exchange_with_numpy` takes the same steps as `loops.exchange`, its twin in machine code.

Groups may have `Limits`: at most one client of a site in each, and no chain that takes longer than so many seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgsp.core.errors import InputError
from fedgsp.plan.loops import exchange

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]

WORTH_COMPILING = 200_000
"""Swaps to look at (steps times clients) from which it pays to load machine code."""


def thresholds(vectors: Reals, steps: int, heat: float) -> Reals:
    """(steps,) how much worse a swap may make half the sum of squares: heat^2 of a client's mean square, falling to zero."""
    mean_square = float((vectors**2).sum()) / max(1, len(vectors))
    return np.asarray((heat * (1.0 - np.arange(1, steps + 1) / steps)) ** 2 * mean_square)


def balance(
    vectors: Reals, labels: Wholes, n_groups: int, clients: int, visits: Wholes, limits: Reals, rules: Limits | None = None,
    *, compile_from: int = WORTH_COMPILING,
) -> int:  # fmt: skip
    """Improve `labels` (P,) in place: swap each of `visits` (steps,) with its best partner if within `limits` (steps,).

    `vectors` (P, F) are whole numbers (`balance_vectors`); rows from `clients` on are zero and stand for empty places, at most
    one in a group, so that sizes stay equal to within one. Returns the number of swaps.
    """
    gram = vectors @ vectors.T
    sums = np.zeros((n_groups, vectors.shape[1]))
    np.add.at(sums, labels, vectors)
    pull = sums @ vectors.T
    if rules is None and len(visits) * len(labels) >= compile_from:
        steps = np.ascontiguousarray(visits, dtype=np.int64)
        swaps = exchange(gram, pull, labels, steps, np.ascontiguousarray(limits), clients)
        if swaps is not None:
            return swaps
    return _exchange_with_numpy(gram, pull, labels, visits, limits, clients, rules)


def _exchange_with_numpy(
    gram: Reals, pull: Reals, labels: Wholes, visits: Wholes, limits: Reals, clients: int, rules: Limits | None = None
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


@dataclass(eq=False)
class Limits:
    """Says which swaps keep the constraints; places from `clients` on are empty.

    `site` (P,) numbers sites, with one number more for empty places; `seconds` (P,) is what a client adds to its chain,
    `longest` the most that a chain may take. A chain that already takes longer may only get shorter.
    """

    clients: int
    n_groups: int
    site: Wholes | None
    seconds: Reals | None
    longest: float

    def start(self, rng: np.random.Generator) -> Wholes:
        """Labels (P,) that keep the constraints, else an InputError.

        Clients of a site stand next to each other and are dealt in turn, so that they meet only if they are more than there are
        groups; then the longest chains swap clients until none takes too long.
        """
        places = self.n_groups * -(-self.clients // self.n_groups)
        order = np.concatenate([rng.permutation(self.clients), np.arange(self.clients, places)])
        if self.site is not None:
            turn = np.append(rng.permutation(self._sites), self._sites)  # sites in random order, empty places last
            order = order[np.argsort(turn[self.site[order]], kind="stable")]
        labels = np.empty(places, dtype=np.int64)
        labels[order] = np.arange(places) % self.n_groups
        self._count(labels)
        if self.seconds is not None:
            self._shorten(labels)
        return labels

    @property
    def _sites(self) -> int:
        return 0 if self.site is None else int(self.site[: self.clients].max()) + 1

    def _count(self, labels: Wholes) -> None:
        if self.site is not None:
            self.present = np.zeros((self.n_groups, self._sites + 1), dtype=np.int64)
            real = slice(0, self.clients)
            np.add.at(self.present, (labels[real], self.site[real]), 1)
        if self.seconds is not None:
            self.load = np.bincount(labels, weights=self.seconds, minlength=self.n_groups)

    def allowed(self, client: int, labels: Wholes) -> NDArray[np.bool_]:
        """(P,) whether `client` may swap with who is in each place."""
        home, fine = labels[client], np.ones(len(labels), dtype=np.bool_)
        if self.site is not None:
            here, there = self.present[home, self.site] == 0, self.present[labels, self.site[client]] == 0
            fine &= (here & there) | (self.site == self.site[client])
        if self.seconds is not None:
            fine &= self._slowest_after(client, labels) <= np.maximum(
                self.longest, np.maximum(self.load[home], self.load[labels])
            )
        return fine

    def swapped(self, client: int, other: int, labels: Wholes) -> None:
        """Keep count before `client` and `other` change groups."""
        home, away = labels[client], labels[other]
        if self.site is not None:
            self.present[home, self.site[client]] -= 1
            self.present[away, self.site[client]] += 1
            if other < self.clients:
                self.present[away, self.site[other]] -= 1
                self.present[home, self.site[other]] += 1
        if self.seconds is not None:
            change = self.seconds[other] - self.seconds[client]
            self.load[home] += change
            self.load[away] -= change

    def _slowest_after(self, client: int, labels: Wholes) -> Reals:
        """(P,) seconds of the slower of the two chains after a swap of `client` with who is in each place."""
        assert self.seconds is not None
        change = self.seconds - self.seconds[client]
        return np.asarray(np.maximum(self.load[labels[client]] + change, self.load[labels] - change))

    def _shorten(self, labels: Wholes) -> None:
        """While a chain takes too long: the swap of one of its clients that makes the slower chain of the two fastest."""
        assert self.seconds is not None
        while self.load.max() > self.longest:
            slow = int(self.load.argmax())
            best, pair = float(self.load[slow]), None
            has_empty = np.bincount(labels[self.clients :], minlength=self.n_groups)
            for client in np.flatnonzero(labels[: self.clients] == slow).tolist():
                after = self._slowest_after(client, labels)
                after[~self.allowed(client, labels) | (labels == slow)] = np.inf
                if has_empty[slow]:
                    after[self.clients :] = np.inf
                other = int(after.argmin())
                if after[other] < best:
                    best, pair = float(after[other]), (client, other)
            if pair is None:
                raise InputError(
                    f"Balanced: found no {self.n_groups} groups whose chains all take at most {self.longest:g} seconds, "
                    f"the longest takes {self.load.max():g}; allow more time or form more groups."
                )
            self.swapped(*pair, labels)
            labels[pair[0]], labels[pair[1]] = labels[pair[1]], labels[pair[0]]


def checked_limits(
    clients: int, n_groups: int, sites: ArrayLike | None, seconds: ArrayLike | None, longest: float | None
) -> Limits:
    """The constraints as they are used, else an InputError that says which cannot be kept."""
    empty = n_groups * -(-clients // n_groups) - clients
    numbered = times = None
    if sites is not None:
        names = _one_per_client("sites", sites, clients)
        found, codes, members = np.unique(names, return_inverse=True, return_counts=True)
        if members.max() > n_groups:
            raise InputError(
                f"Balanced: site {found[members.argmax()]!s} has {members.max()} clients, more than there are groups "
                f"({n_groups}), so two of them would meet."
            )
        numbered = np.concatenate([codes.astype(np.int64), np.full(empty, len(found))])
    if seconds is not None:
        given = _one_per_client("seconds", seconds, clients)
        if given.dtype.kind not in "buif" or not np.isfinite(given).all() or given.min() < 0:
            raise InputError("Balanced: seconds must be finite numbers of at least 0.")
        times = np.concatenate([given.astype(np.float64), np.zeros(empty)])
    return Limits(clients, n_groups, numbered, times, np.inf if longest is None else float(longest))


def _one_per_client(name: str, values: ArrayLike, clients: int) -> NDArray[np.generic]:
    array: NDArray[np.generic] = np.asarray(values)
    if array.shape != (clients,):
        raise InputError(
            f"Balanced: {name} must have one entry for each of the {clients} clients, but has shape {array.shape}."
        )
    return array
