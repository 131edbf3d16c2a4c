"""`FederatedData`: flat arrays and, for every client, which rows are its training, validation and test samples.

Nothing is copied per client and rows are gathered when a batch is made, so the arrays may be memory-mapped files far larger
than memory. Images stay uint8 on disk and in memory; they become floats in [0, 1] only inside a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.drawing import drawn
from fedgsp.core.errors import InputError
from fedgsp.core.files import replace_whole
from fedgsp.core.profiles import IGNORED, Profiles
from fedgsp.core.seeds import Purpose, generator

if TYPE_CHECKING:
    from fedgsp.data.augmentation import Augmentation

Rows = NDArray[np.int64]
SPLITS = ("train", "validation", "test")
"""What a client's samples are divided into."""
REGRESSION_BINS = 10
"""Quantile bins that stand in for classes when targets are real numbers."""


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """One split (train, validation or test) of every client: client k owns `rows[offsets[k]:offsets[k + 1]]`.

    Args:
        rows: Row numbers into the federation's flat arrays, client by client.
        offsets: (K + 1,) where each client's rows begin.

    Example:
        >>> split = Split.of([np.array([5, 3]), np.array([9])])
        >>> split[0].tolist(), split.sizes.tolist()
        ([5, 3], [2, 1])
    """

    rows: Rows
    offsets: Rows

    @classmethod
    def of(cls, rows_of_clients: Sequence[Rows]) -> Split:
        """A split from a list of row numbers per client."""
        offsets = np.zeros(len(rows_of_clients) + 1, dtype=np.int64)
        np.cumsum([len(rows) for rows in rows_of_clients], out=offsets[1:])
        rows = np.concatenate(rows_of_clients) if rows_of_clients else np.empty(0)
        return cls(rows.astype(np.int64), offsets)

    @classmethod
    def empty(cls, clients: int) -> Split:
        """A split in which no client has a sample."""
        return cls(np.empty(0, dtype=np.int64), np.zeros(clients + 1, dtype=np.int64))

    def __repr__(self) -> str:
        return f"Split({len(self)} clients, {len(self.rows)} samples)"

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

    @property
    def counted(self) -> Rows:
        """(K,) the samples that each client counts for: all it has, but for a deployment's limits (`data.outline`)."""
        return self.sizes

    def take(self, clients: Sequence[int] | Rows) -> Split:
        """The same split for some of the clients, in the order given."""
        return Split.of([self[int(client)] for client in clients])


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData:
    """A federation's data: flat arrays over all clients, and which rows are whose.

    Make one with `fedgsp.load`, `fedgsp.from_arrays` or their like rather than by hand.

    Args:
        features: (N, ...) the samples of all clients; may be a memory-mapped file.
        labels: (N,) classes 0..classes-1, or real-valued targets (N, ...).
        clients: The clients' names.
        train: Which rows each client trains on.
        test: Which rows each client is evaluated on.
        validation: Which rows are kept for tuning; usually none.
        classes: How many classes there are; 0 for regression.
        divisor: What features are divided by in a batch (255 for uint8 images).
        source: The text it was loaded from, where there is one.
        memo: A folder that remembers its fingerprint.
        vocabulary: How many tokens there are, where samples are tokens and this is known beforehand; 0: as the samples say.
        padding: The token that fills short sequences up at their end, if any.
        class_names: What the classes are called, if they have names.
        notes: What was done to labels or features on the way, a sentence each.
        augmentation: What makes training samples anew in every epoch, if anything does (`with_transform`).
        target_bins: Into how many quantile bins targets of a regression are put, to group clients by.

    Example:
        >>> from fedgsp.data.arrays import from_arrays
        >>> data = from_arrays(np.zeros((20, 4), np.float32), np.arange(20) % 2, np.arange(20) // 10)
        >>> len(data), data.classes, data.sample_shape, data.samples
        (2, 2, (4,), 20)
        >>> data.profiles().counts.sum(axis=1).tolist() == data.train.sizes.tolist()
        True
    """

    features: NDArray[Any]
    labels: NDArray[Any]
    clients: tuple[str, ...]
    train: Split
    test: Split
    validation: Split
    classes: int
    divisor: float = 1.0
    source: str | None = None
    memo: Path | None = field(default=None, repr=False)
    vocabulary: int = 0
    padding: int | None = None
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    augmentation: Augmentation | None = None
    target_bins: int = REGRESSION_BINS

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        parts = ", ".join(f"{len(getattr(self, name).rows)} {name}" for name in SPLITS if len(getattr(self, name).rows))
        kind = f"{self.classes} classes" if self.classes else self.target_words
        shape = "x".join(map(str, self.sample_shape)) or "1"
        return (
            f"FederatedData: {len(self)} clients, {self.samples} samples ({parts})\n"
            f"  a sample: {shape} {self.features.dtype}, {kind}; source: {self.source or 'in memory'}"
        )

    def _repr_html_(self) -> str:
        return str(drawn("data_html", self))

    def plot(self) -> Any:
        """Classes and sizes of the clients: a figure that shows itself in a notebook.

        Raises:
            InputError: matplotlib is not installed.
        """
        return drawn("plot_data", self)

    @property
    def target_words(self) -> str:
        """How clients of a regression are grouped: said wherever the data is shown."""
        return f"real-valued targets (clients are grouped by how many lie in each of {self.target_bins} equal parts of all)"

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample's features."""
        return tuple(self.features.shape[1:])

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of one sample's label: () for one class or number."""
        return tuple(self.labels.shape[1:])

    def count_tokens(self) -> int:
        """How many tokens there are: `vocabulary`, or one more than the largest; 0 where samples are none.

        Whole numbers of 16 bits and more are tokens; bytes and real numbers are sizes.
        """
        if self.features.dtype.kind not in "iu" or self.features.dtype.itemsize == 1:
            return 0
        return self.vocabulary or 1 + int(self.features.max(initial=0))

    @property
    def samples(self) -> int:
        """Samples of all splits of all clients."""
        return len(self.train.rows) + len(self.validation.rows) + len(self.test.rows)

    @cached_property
    def sizes(self) -> Rows:
        """(K,) samples of all splits that each client counts for: what LEAF weighs a client's accuracy by."""
        return self.train.counted + self.validation.counted + self.test.counted

    def profiles(self, clients: Rows | None = None) -> Profiles:
        """What a grouper sees: class counts of the training samples; for regression counts of quantile bins.

        Args:
            clients: Client numbers (default: all).

        Returns:
            The clients' numbers, counts (K, F) and numbers of training samples.
        """
        chosen = np.arange(len(self)) if clients is None else clients
        counts = self._counts[chosen]
        return Profiles(chosen.astype(np.int64), counts, self.train.sizes[chosen])

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        if self.classes:
            return self.count_classes(self.train)
        labels = np.asarray(self.labels[self.train.rows])
        bins = self.target_bins
        scalar = labels.reshape(len(labels), -1)[:, 0]
        edges = np.quantile(scalar, np.linspace(0, 1, bins + 1)[1:-1]) if len(scalar) else np.empty(0)
        codes = np.searchsorted(edges, scalar, side="right")
        owner = np.repeat(np.arange(len(self)), self.train.sizes)
        return np.bincount(owner * bins + codes, minlength=len(self) * bins).reshape(len(self), bins)

    def count_classes(self, split: Split) -> NDArray[np.int64]:
        """(K, classes) how often each class is among the labels of a split, at all positions but those that are ignored."""
        labels = np.asarray(self.labels[split.rows]).astype(np.int64)
        owner = np.repeat(np.arange(len(self)), split.sizes)
        if labels.ndim > 1:
            real = labels != IGNORED
            owner, labels = np.broadcast_to(owner.reshape(-1, *[1] * (labels.ndim - 1)), labels.shape)[real], labels[real]
        total = np.bincount(owner * self.classes + labels, minlength=len(self) * self.classes)
        return total.reshape(len(self), self.classes)

    def with_transform(self, transform: str | Callable[[Any], Any]) -> FederatedData:
        """The same samples, of which training sees random variants, other ones in every epoch.

        Args:
            transform: From one sample's tensor to another of the same shape; from a batch, if it has a true attribute
                `batched`. It may draw from torch, NumPy and Python's `random`, which are seeded by the run. A text names
                it: "crop2+flip", or `package.module:callable`.

        Returns:
            A federation that shares the arrays; evaluation sees the samples as they are.
        """
        from fedgsp.data.augmentation import EachSample, named_transform

        chosen = named_transform(transform) if isinstance(transform, str) else transform
        return replace(self, augmentation=EachSample(chosen), source=None)

    def with_target_bins(self, bins: int) -> FederatedData:
        """The same, for a regression whose clients are to be grouped by other than tenths of the targets.

        Groupers see how many of a client's training targets (the first number of each) lie between quantiles of all.

        Args:
            bins: How many parts of equal size all targets are cut into.

        Returns:
            A federation that shares the arrays.

        Raises:
            InputError: If there are classes, or fewer than two parts are wanted.
        """
        if self.classes or bins < 2:
            raise InputError(f"targets of a regression are cut into at least 2 parts, not {bins}; classes are not cut.")
        return replace(self, target_bins=bins, source=None)

    def standardised(self, each_client: bool = False) -> FederatedData:
        """The same samples with features of mean 0 and deviation 1, by the training samples.

        Args:
            each_client: By each client's own mean and deviation; else by the population's, which follow from every client's
                sums of values and of squares, so that no sample need be shown to anybody.

        Returns:
            A federation with features of its own, in float32. A feature that never changes becomes 0.

        Raises:
            InputError: If samples are tokens, which have no mean.
        """
        from fedgsp.data.standardise import standardised

        return standardised(self, each_client)

    def select(self, clients: Sequence[int] | Rows) -> FederatedData:
        """The federation of some of the clients.

        Args:
            clients: Client numbers, in the order wanted.

        Returns:
            A federation that shares the arrays.
        """
        return replace(
            self,
            clients=tuple(self.clients[int(k)] for k in clients),
            train=self.train.take(clients),
            validation=self.validation.take(clients),
            test=self.test.take(clients),
            source=None,
        )

    def subset(self, count: int, data_seed: int) -> FederatedData:
        """A random `count` of the clients, kept in their order.

        Args:
            count: How many clients.
            data_seed: The seed of the draw.

        Returns:
            A federation that shares the arrays.
        """
        drawn = generator(data_seed, Purpose.SUBSET).permutation(len(self))[:count]
        return self.select(np.sort(drawn))

    def dealt(self, sites: int, data_seed: int) -> FederatedData:
        """The clients dealt at random to so many sites, each of which holds all that its clients have.

        Args:
            sites: How many sites; their sizes in clients differ by one at most.
            data_seed: The seed of the draw.

        Returns:
            A federation whose clients are the sites, which shares the arrays.

        Raises:
            InputError: There are fewer clients than sites, or no site.
        """
        if not 1 <= sites <= len(self):
            raise InputError(f"sites must be from 1 to the {len(self)} clients there are, not {sites}.")
        order = generator(data_seed, Purpose.SUBSET).permutation(len(self))
        members = [np.sort(order[site::sites]) for site in range(sites)]

        def together(split: Split) -> Split:
            return Split.of([np.concatenate([split[int(client)] for client in its]) for its in members])

        names = tuple(f"site {site}" for site in range(sites))
        train, validation, test = together(self.train), together(self.validation), together(self.test)
        return replace(self, clients=names, train=train, validation=validation, test=test, source=None)

    def with_validation(self, fraction: float, data_seed: int) -> FederatedData:
        """Carve a validation split out of every client's training samples, for tuning.

        Args:
            fraction: The share of each client's training samples; at least one sample stays in train.
            data_seed: The seed of the draw.

        Returns:
            A federation that shares the arrays.
        """
        train, validation = [], []
        for client, rows in enumerate(self.train):
            take = min(round(fraction * len(rows)), max(0, len(rows) - 1))
            order = generator(data_seed, Purpose.SPLIT, client).permutation(len(rows))
            keep = np.sort(order[take:])
            train.append(rows[keep])
            validation.append(rows[np.sort(order[:take])])
        return replace(self, train=Split.of(train), validation=Split.of(validation), source=None)

    def holdout(self, count: int, data_seed: int) -> tuple[Rows, Rows]:
        """Draw clients that never train and are only evaluated.

        Args:
            count: How many are held out.
            data_seed: The seed of the draw.

        Returns:
            (clients that train, clients held out), both sorted.
        """
        order = generator(data_seed, Purpose.HOLDOUT).permutation(len(self))
        return np.sort(order[count:]), np.sort(order[:count])

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of what every client holds, split by split: the same for the same samples however they are stored."""
        if self.memo is None:
            return self._hash_samples()
        key = hashlib.sha256("\0".join((self._kind, *self.clients)).encode())
        for split in (self.train, self.validation, self.test):
            key.update(split.rows.tobytes() + split.offsets.tobytes())
        remembered = self.memo / f"fingerprint-{key.hexdigest()[:24]}"
        known = remembered.read_text() if remembered.exists() else ""
        if len(known) == 64:
            return known
        value = self._hash_samples()
        with suppress(OSError):  # a read-only cache only costs time
            replace_whole(remembered, value.encode(), sync=False)
        return value

    @property
    def _kind(self) -> str:
        """What the samples are, apart from their values."""
        shapes = f"{self.features.dtype}{self.sample_shape}|{self.labels.dtype}{self.labels.shape[1:]}"
        anew = "" if self.augmentation is None else f"|{self.augmentation.name}"
        bins = "" if self.target_bins == REGRESSION_BINS else f"|{self.target_bins} bins"
        return f"{shapes}|{self.classes}|{self.divisor}{anew}{bins}"

    def _hash_samples(self) -> str:
        sha = hashlib.sha256(f"fedgsp-data-1|{self._kind}\n".encode())
        for client, name in enumerate(self.clients):
            for split in (self.train, self.validation, self.test):
                rows = split[client]
                sha.update(f"{name}|{len(rows)}\n".encode())
                sha.update(np.ascontiguousarray(self.features[rows]).data)
                sha.update(np.ascontiguousarray(self.labels[rows]).data)
        return sha.hexdigest()
