"""`FederatedData`: flat arrays and, for every client, which rows are its training, validation and test samples.

Nothing is copied per client and rows are gathered when a batch is made, so the arrays may be memory-mapped files far larger
than memory. Images stay uint8 on disk and in memory; they become floats in [0, 1] only inside a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Purpose, generator

Rows = NDArray[np.int64]
PARTS = ("train", "validation", "test")
"""What a client's samples are divided into."""
REGRESSION_BINS = 10
"""Quantile bins that stand in for classes when targets are real numbers."""


@dataclass(frozen=True, eq=False)
class Part:
    """One part (train, validation or test) of every client: client k owns `rows[offsets[k]:offsets[k + 1]]`."""

    rows: Rows
    offsets: Rows

    @classmethod
    def of(cls, rows_of_clients: Sequence[Rows]) -> Part:
        """A part from a list of row numbers per client."""
        offsets = np.zeros(len(rows_of_clients) + 1, dtype=np.int64)
        np.cumsum([len(rows) for rows in rows_of_clients], out=offsets[1:])
        rows = np.concatenate(rows_of_clients) if rows_of_clients else np.empty(0)
        return cls(rows.astype(np.int64), offsets)

    @classmethod
    def empty(cls, clients: int) -> Part:
        """A part in which no client has a sample."""
        return cls(np.empty(0, dtype=np.int64), np.zeros(clients + 1, dtype=np.int64))

    def __getitem__(self, client: int) -> Rows:
        return self.rows[self.offsets[client] : self.offsets[client + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Rows]:
        return (self[client] for client in range(len(self)))

    @property
    def sizes(self) -> Rows:
        """(K,) samples per client."""
        return np.diff(self.offsets)

    def take(self, clients: Sequence[int] | Rows) -> Part:
        """The same part for some of the clients, in the order given."""
        return Part.of([self[int(client)] for client in clients])


@dataclass(frozen=True, eq=False)
class FederatedData:
    """A federation's data.

    `features` (N, ...) and `labels` (N, ...) are flat over all clients; `train`, `validation` and `test` say which rows are
    whose. `classes` is 0 for regression. `divisor` is what features are divided by in a batch (255 for uint8 images).
    `source` is the text it was loaded from, where there is one; `memo` a folder that remembers its fingerprint.
    """

    features: NDArray[Any]
    labels: NDArray[Any]
    clients: tuple[str, ...]
    train: Part
    test: Part
    validation: Part
    classes: int
    divisor: float = 1.0
    source: str | None = None
    memo: Path | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample's features."""
        return tuple(self.features.shape[1:])

    @property
    def samples(self) -> int:
        """Samples of all parts of all clients."""
        return len(self.train.rows) + len(self.validation.rows) + len(self.test.rows)

    @cached_property
    def sizes(self) -> Rows:
        """(K,) samples of all parts of each client: what LEAF weighs a client's accuracy by (SPECS 0.10)."""
        return self.train.sizes + self.validation.sizes + self.test.sizes

    def profiles(self, clients: Rows | None = None) -> Profiles:
        """Class counts of the training samples of some clients (default: all); for regression counts of quantile bins."""
        chosen = np.arange(len(self)) if clients is None else clients
        counts = self._counts[chosen]
        return Profiles(chosen.astype(np.int64), counts, self.train.sizes[chosen])

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        labels = np.asarray(self.labels[self.train.rows])
        if self.classes:
            codes, bins = labels.astype(np.int64), self.classes
        else:
            scalar = labels.reshape(len(labels), -1)[:, 0]
            edges = np.quantile(scalar, np.linspace(0, 1, REGRESSION_BINS + 1)[1:-1]) if len(scalar) else np.empty(0)
            codes, bins = np.searchsorted(edges, scalar, side="right"), REGRESSION_BINS
        owner = np.repeat(np.arange(len(self)), self.train.sizes)
        return np.bincount(owner * bins + codes, minlength=len(self) * bins).reshape(len(self), bins)

    def select(self, clients: Sequence[int] | Rows) -> FederatedData:
        """The federation of some of the clients, in the order given."""
        return replace(
            self,
            clients=tuple(self.clients[int(k)] for k in clients),
            train=self.train.take(clients),
            validation=self.validation.take(clients),
            test=self.test.take(clients),
            source=None,
        )

    def subset(self, count: int, data_seed: int) -> FederatedData:
        """A random `count` of the clients, kept in their order."""
        drawn = generator(data_seed, Purpose.SUBSET).permutation(len(self))[:count]
        return self.select(np.sort(drawn))

    def with_validation(self, fraction: float, data_seed: int) -> FederatedData:
        """Carve a validation part out of every client's training samples, for tuning; at least one sample stays in train."""
        train, validation = [], []
        for client, rows in enumerate(self.train):
            take = min(round(fraction * len(rows)), max(0, len(rows) - 1))
            order = generator(data_seed, Purpose.SPLIT, client).permutation(len(rows))
            keep = np.sort(order[take:])
            train.append(rows[keep])
            validation.append(rows[np.sort(order[:take])])
        return replace(self, train=Part.of(train), validation=Part.of(validation), source=None)

    def holdout(self, count: int, data_seed: int) -> tuple[Rows, Rows]:
        """(clients that train, clients held out), both sorted: the held-out ones never train and are only evaluated."""
        order = generator(data_seed, Purpose.HOLDOUT).permutation(len(self))
        return np.sort(order[count:]), np.sort(order[:count])

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of what every client holds, part by part: the same for the same samples however they are stored."""
        if self.memo is None:
            return self._hash_samples()
        key = hashlib.sha256("\0".join((self._kind, *self.clients)).encode())
        for part in (self.train, self.validation, self.test):
            key.update(part.rows.tobytes() + part.offsets.tobytes())
        remembered = self.memo / f"fingerprint-{key.hexdigest()[:24]}"
        known = remembered.read_text() if remembered.exists() else ""
        if len(known) == 64:
            return known
        value = self._hash_samples()
        scratch = remembered.with_suffix(f".{hash(value) & 0xFFFFFF:x}.tmp")
        try:
            scratch.write_text(value)
            scratch.replace(remembered)
        except OSError:  # a read-only cache only costs time
            scratch.unlink(missing_ok=True)
        return value

    @property
    def _kind(self) -> str:
        """What the samples are, apart from their values."""
        shapes = f"{self.features.dtype}{self.sample_shape}|{self.labels.dtype}{self.labels.shape[1:]}"
        return f"{shapes}|{self.classes}|{self.divisor}"

    def _hash_samples(self) -> str:
        sha = hashlib.sha256(f"fedgsp-data-1|{self._kind}\n".encode())
        for client, name in enumerate(self.clients):
            for part in (self.train, self.validation, self.test):
                rows = part[client]
                sha.update(f"{name}|{len(rows)}\n".encode())
                sha.update(np.ascontiguousarray(self.features[rows]).data)
                sha.update(np.ascontiguousarray(self.labels[rows]).data)
        return sha.hexdigest()
