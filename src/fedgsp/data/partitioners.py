"""Central data, dealt to clients: the ways that papers make a federation out of a data set that has no owners.

A partitioner is a frozen dataclass with `assign(labels, rng)`, which says for every sample which client gets it. Every sample
goes to exactly one client, and no client is empty; where that cannot be, a sentence says why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError

Owner = NDArray[np.int64]


class Partitioner(Protocol):
    """Anything that deals samples to clients."""

    @property
    def clients(self) -> int:
        """How many clients there will be."""

    def assign(self, labels: NDArray[Any], rng: np.random.Generator) -> Owner:
        """Say who gets which sample.

        Args:
            labels: (N,) the samples' labels.
            rng: Where chance comes from.

        Returns:
            (N,) the client of every sample, 0..clients-1; nobody's is empty.

        Raises:
            InputError: If the samples cannot be dealt in this way.
        """


@dataclass(frozen=True)
class IID:
    """Every client a random share of equal size (give or take one).

    Args:
        clients: How many clients there will be.

    Example:
        >>> owner = IID(clients=4).assign(np.zeros(10, dtype=np.int64), np.random.default_rng(0))
        >>> np.bincount(owner).tolist()
        [3, 3, 2, 2]
    """

    clients: int

    def assign(self, labels: NDArray[Any], rng: np.random.Generator) -> Owner:
        """See `Partitioner`."""
        _enough(len(labels), self.clients, 1)
        owner = np.empty(len(labels), dtype=np.int64)
        owner[rng.permutation(len(labels))] = np.arange(len(labels)) % self.clients
        return owner


@dataclass(frozen=True)
class Dirichlet:
    """Label skew: each class is shared out among the clients in proportions drawn from Dirichlet(alpha).

    Clients that end up below `min_size` are topped up with random samples of the largest ones, after ten draws have not avoided
    it; so a draw always ends, unlike the usual redraw-until-it-fits.

    Args:
        clients: How many clients there will be.
        alpha: Small: few classes a client; large: nearly i.i.d.
        min_size: The fewest samples that a client may get.

    Example:
        >>> owner = Dirichlet(clients=5, alpha=0.1).assign(np.arange(200) % 10, np.random.default_rng(0))
        >>> int(np.bincount(owner, minlength=5).sum())
        200
    """

    clients: int
    alpha: float = 0.5
    min_size: int = 1

    def assign(self, labels: NDArray[Any], rng: np.random.Generator) -> Owner:
        """See `Partitioner`."""
        _positive("alpha", self.alpha)
        _enough(len(labels), self.clients, self.min_size)
        codes = _classes(labels, "dirichlet")
        owner = np.empty(len(labels), dtype=np.int64)
        for _ in range(10):
            for code in np.unique(codes):
                rows = rng.permutation(np.flatnonzero(codes == code))
                cuts = np.cumsum(_dirichlet(rng, self.alpha, self.clients))[:-1]
                owner[rows] = np.searchsorted(np.floor(cuts * len(rows)), np.arange(len(rows)), side="right")
            if np.bincount(owner, minlength=self.clients).min() >= max(1, self.min_size):
                return owner
        return _topped_up(owner, self.clients, max(1, self.min_size), rng)


@dataclass(frozen=True)
class Shards:
    """Every client exactly `per_client` classes: classes are cut into shards, as many as their size deserves, and dealt.

    Args:
        clients: How many clients there will be.
        per_client: How many classes each has.

    Example:
        >>> labels = np.arange(400) % 10
        >>> owner = Shards(clients=20, per_client=2).assign(labels, np.random.default_rng(0))
        >>> {len(set(labels[owner == k].tolist())) for k in range(20)}
        {2}
    """

    clients: int
    per_client: int = 2

    def assign(self, labels: NDArray[Any], rng: np.random.Generator) -> Owner:
        """See `Partitioner`."""
        _enough(len(labels), self.clients, self.per_client)
        found, codes, sizes = np.unique(_classes(labels, "shards"), return_inverse=True, return_counts=True)
        if not 1 <= self.per_client <= len(found):
            raise InputError(f"per_client must be from 1 to the {len(found)} classes there are, not {self.per_client}.")
        holders = _shares(self.clients * self.per_client, sizes, np.minimum(sizes, self.clients))
        order = rng.permutation(len(found))
        # Consecutive shards go to consecutive clients: a class has at most `clients` shards, so nobody gets one twice.
        dealt = np.arange(holders.sum()) % self.clients
        names = rng.permutation(self.clients)
        owner, begin = np.empty(len(labels), dtype=np.int64), 0
        for code in order:
            mine = names[dealt[begin : begin + holders[code]]]
            begin += holders[code]
            rows = rng.permutation(np.flatnonzero(codes == code))
            owner[rows] = mine[np.arange(len(rows)) % len(mine)]
        return owner


@dataclass(frozen=True)
class Quantity:
    """Size skew: clients' sizes drawn from Dirichlet(alpha), labels i.i.d.

    Args:
        clients: How many clients there will be.
        alpha: Small: very unequal sizes; large: nearly equal ones.
        min_size: The fewest samples that a client may get.

    Example:
        >>> owner = Quantity(clients=5, alpha=0.5, min_size=3).assign(np.zeros(100, dtype=np.int64), np.random.default_rng(0))
        >>> bool(np.bincount(owner, minlength=5).min() >= 3)
        True
    """

    clients: int
    alpha: float = 0.5
    min_size: int = 1

    def assign(self, labels: NDArray[Any], rng: np.random.Generator) -> Owner:
        """See `Partitioner`."""
        _positive("alpha", self.alpha)
        least = max(1, self.min_size)
        _enough(len(labels), self.clients, self.min_size)
        spare = len(labels) - least * self.clients
        cuts = np.floor(np.cumsum(_dirichlet(rng, self.alpha, self.clients))[:-1] * spare).astype(np.int64)
        sizes = least + np.diff(np.concatenate([[0], cuts, [spare]]))
        owner = np.empty(len(labels), dtype=np.int64)
        owner[rng.permutation(len(labels))] = np.repeat(np.arange(self.clients), sizes)
        return owner


@dataclass(frozen=True)
class FeatureShift:
    """Feature skew (Li et al. 2022): labels i.i.d., and client k's features get noise of variance `noise` k / clients.

    Bytes are taken as parts of 255 first, so noise is in units of the brightest pixel; features become float32.

    Args:
        clients: How many clients there will be.
        noise: The variance that the last client's noise would nearly have; the first client has none.

    Example:
        >>> how, x = FeatureShift(clients=2, noise=8.0), np.zeros((4000, 3), np.float32)
        >>> owner = how.assign(np.zeros(4000), np.random.default_rng(0))
        >>> moved = how.shifted(x, owner, np.random.default_rng(0))
        >>> [round(float(moved[owner == k].std())) for k in range(2)]
        [0, 2]
    """

    clients: int
    noise: float = 0.1

    def assign(self, labels: NDArray[Any], rng: np.random.Generator) -> Owner:
        """See `Partitioner`."""
        _positive("noise", self.noise)
        return IID(self.clients).assign(labels, rng)

    def shifted(self, features: NDArray[Any], owner: Owner, rng: np.random.Generator) -> NDArray[np.float32]:
        """The features with each client's noise.

        Args:
            features: (N, ...) numbers.
            owner: (N,) whose each sample is.
            rng: Where chance comes from.

        Returns:
            (N, ...) features of their own.

        Raises:
            InputError: If samples are tokens.
        """
        if features.dtype.kind in "iu" and features.dtype.itemsize > 1:
            raise InputError("noise cannot be added to tokens: the partition 'feature_shift' needs numbers that mean sizes.")
        made = np.asarray(features, dtype=np.float32) / np.float32(255 if features.dtype == np.uint8 else 1)
        deviation = np.sqrt(self.noise * owner / self.clients).astype(np.float32)
        drawn = rng.standard_normal(made.shape, dtype=np.float32)
        return np.asarray(made + drawn * deviation.reshape(-1, *[1] * (made.ndim - 1)), dtype=np.float32)


PARTITIONERS = {"iid": IID, "dirichlet": Dirichlet, "shards": Shards, "quantity": Quantity, "feature_shift": FeatureShift}
"""By the names of the source syntax (`partition=dirichlet,alpha=0.3,clients=50`)."""


def _dirichlet(rng: np.random.Generator, alpha: float, count: int) -> NDArray[np.float64]:
    """Proportions; for a tiny alpha every gamma draw may underflow to 0, and then one client has it all."""
    drawn = rng.gamma(alpha, size=count)
    total = drawn.sum()
    if not (math.isfinite(total) and total > 0):
        drawn = np.zeros(count)
        drawn[rng.integers(count)] = total = 1.0
    return np.asarray(drawn / total)


def _shares(total: int, weights: NDArray[Any], most: NDArray[Any]) -> NDArray[np.int64]:
    """Whole shares that sum to `total`: at least one each, at most `most`, otherwise as proportional as can be."""
    if total < len(weights):
        raise InputError(
            f"{total} shards cannot hold {len(weights)} classes: raise clients or per_client so that their product is at "
            f"least {len(weights)}."
        )
    if total > most.sum():
        raise InputError(f"{total} shards are more than the samples can fill: lower clients or per_client.")
    shares = np.ones(len(weights), dtype=np.int64)
    while (left := total - int(shares.sum())) > 0:
        room = most - shares
        ideal = weights * (room > 0)
        extra = np.minimum(np.floor(ideal / ideal.sum() * left).astype(np.int64), room)
        if extra.sum() == 0:
            hungriest = np.argsort(-np.where(room > 0, weights / shares, -1.0), kind="stable")[:left]
            extra[hungriest] = room[hungriest] > 0
        shares += extra
    return shares


def _topped_up(owner: Owner, clients: int, least: int, rng: np.random.Generator) -> Owner:
    sizes = np.bincount(owner, minlength=clients)
    for small in np.flatnonzero(sizes < least):
        while sizes[small] < least:
            large = int(np.argmax(sizes))
            take = min(least - int(sizes[small]), max(1, (int(sizes[large]) - least) // 2))
            owner[rng.choice(np.flatnonzero(owner == large), take, replace=False)] = small
            sizes[large] -= take
            sizes[small] += take
    return owner


def _classes(labels: NDArray[Any], name: str) -> NDArray[np.int64]:
    if labels.ndim != 1 or labels.dtype.kind not in "biu":
        raise InputError(f"the partition '{name}' needs class labels; for real-valued targets use iid or quantity.")
    return labels.astype(np.int64)


def _enough(samples: int, clients: int, least: int) -> None:
    if clients < 1:
        raise InputError(f"a partition needs at least one client, not {clients}.")
    if least < 0:
        raise InputError(f"min_size cannot be negative: {least}.")
    if samples < clients * max(1, least):
        raise InputError(f"{samples} samples are too few for {clients} clients of at least {max(1, least)}.")


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a positive number, not {value}.")
