"""From raw arrays to `FederatedData`: every check a person's own data may fail, each with a sentence, and the split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.profiles import IGNORED
from fedgsp.data.class_labels import numbered
from fedgsp.data.federated import FederatedData, Rows, Split
from fedgsp.data.finish import Standardise, Transform, finished

CHECK_ROWS = 65536
LARGEST_CLASS = 1_000_000
"""Nobody has a million classes: such a label is a damaged or misread number, and class counts would exhaust memory."""


def from_arrays(
    features: NDArray[Any],
    labels: NDArray[Any],
    client_index: NDArray[Any],
    clients: Sequence[str] | None = None,
    *,
    classes: int | None = None,
    test_fraction: float = 0.1,
    data_seed: int = 0,
    standardise: Standardise = False,
    transform: Transform | None = None,
    where: str = "the data",
) -> FederatedData:
    """A federation from flat arrays: sample i belongs to client `client_index[i]`.

    Every client's samples are split into train and test as LEAF does (`split_rows`).

    Args:
        features: (N, ...) numbers.
        labels: (N,) classes 0, 1, ..; texts, truth values and numbers that begin elsewhere become classes in sorted order. Real
            numbers make it a regression. (N, positions) whole numbers are a label at every position, -100 for none.
        client_index: (N,) whole numbers, each into `clients`.
        clients: The clients' names (default: their numbers).
        classes: How many classes there are (default: as many as the labels say); 0 for regression.
        test_fraction: The share of each client's samples that is kept for testing.
        data_seed: The seed of that split.
        standardise: True: features of mean 0 and deviation 1 over the training samples of all clients; "client": over each
            client's own.
        transform: What training sees of a sample, other variants in every epoch: a callable, or a name such as "crop2+flip".
        where: What the data is called in errors.

    Returns:
        The federation.

    Raises:
        InputError: If the arrays cannot be a federation; the sentence says which sample or client is wrong.

    Example:
        >>> x, y = np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32), np.arange(30) % 3
        >>> data = from_arrays(x, y, client_index=np.repeat([0, 1, 2], 10), clients=["ann", "bob", "cleo"])
        >>> data.clients, data.train.sizes.tolist(), data.test.sizes.tolist()
        (('ann', 'bob', 'cleo'), [9, 9, 9], [1, 1, 1])
    """
    features, labels, client_index = np.asanyarray(features), np.asarray(labels), np.asarray(client_index)
    for name, array in (("features", features), ("labels", labels), ("client numbers", client_index)):
        if array.ndim == 0:
            raise InputError(f"{where}: {name} must be an array with one entry for each sample, not a single value.")
    if not len(features) == len(labels) == len(client_index):
        raise InputError(
            f"{where}: unequal lengths: {len(features)} features, {len(labels)} labels, {len(client_index)} client numbers; "
            f"they must be one for each sample."
        )
    if len(features) == 0:
        raise InputError(f"{where} has no samples.")
    if not np.issubdtype(client_index.dtype, np.integer):
        raise InputError(f"{where}: client numbers must be whole numbers, not {client_index.dtype}.")
    if client_index.ndim != 1:
        raise InputError(f"{where}: client numbers must be a flat array, not of shape {client_index.shape}.")
    check_storage(features, "features", where)
    check_storage(labels, "labels", where)
    names = client_names(clients, client_index, where)
    told = numbered(labels, classes, f"{where}: labels")
    labels = told.labels
    classes = check_labels(labels, classes, where)
    check_features(features, client_index, names, where)
    owned = rows_by(client_index, len(names))
    for name, rows in zip(names, owned, strict=True):
        if len(rows) == 0:
            raise InputError(f"{where}: client '{name}' is empty; remove it or give it samples.")
    data = from_rows(features, labels, names, owned, classes, test_fraction=test_fraction, data_seed=data_seed)
    return finished(replace(data, class_names=told.names, notes=told.notes), standardise, transform)


def from_rows(
    features: NDArray[Any],
    labels: NDArray[Any],
    names: Sequence[str],
    owned: Sequence[Rows],
    classes: int,
    *,
    test_fraction: float = 0.1,
    data_seed: int = 0,
    split_keys: Sequence[int] | None = None,
) -> FederatedData:
    """A federation from checked arrays and the rows that each client owns; client k is split by key `split_keys[k]`."""
    if not 0 <= test_fraction < 1:
        raise InputError(f"test must be a fraction from 0 up to 1, not {test_fraction}.")
    keys = range(len(names)) if split_keys is None else split_keys
    parts = [split_rows(rows, key, data_seed, test_fraction) for rows, key in zip(owned, keys, strict=True)]
    return FederatedData(
        features=features,
        labels=labels,
        clients=tuple(names),
        train=Split.of([train for train, _ in parts]),
        test=Split.of([test for _, test in parts]),
        validation=Split.empty(len(names)),
        classes=classes,
        divisor=255.0 if features.dtype == np.uint8 else 1.0,
    )


def rows_by(key: NDArray[Any], count: int) -> list[Rows]:
    """The rows that have each key 0..count-1, in their order."""
    order = np.argsort(key, kind="stable")
    bounds = np.searchsorted(key[order], np.arange(count + 1))
    return [order[bounds[k] : bounds[k + 1]] for k in range(count)]


def split_rows(rows: Rows, key: int, data_seed: int, test_fraction: float) -> tuple[Rows, Rows]:
    """LEAF's split by sample: the first max(1, int(0.9 n)) of a permutation train, the rest test."""
    order = np.random.default_rng([data_seed, key]).permutation(len(rows))
    kept = 1 - Fraction(repr(test_fraction))  # as written: a test share of 0.8 leaves 2 of 10, not 1.9999
    cut = max(1, floor(kept * len(rows)))
    return rows[order[:cut]], rows[order[cut:]]


def client_names(clients: Sequence[str] | None, client_index: NDArray[Any], where: str) -> tuple[str, ...]:
    """The clients' names, given or numbered; one for every number that samples use, and no two the same."""
    low, high = int(client_index.min()), int(client_index.max())
    if low < 0:
        raise InputError(f"{where}: client number {low} is negative.")
    if clients is None and high >= len(client_index):  # before so many names are made
        raise InputError(
            f"{where}: client number {high} is too large: {len(client_index)} samples cannot fill so many clients."
        )
    names = tuple(map(_text, clients)) if clients is not None else tuple(str(k) for k in range(high + 1))
    bad = next((name for name in names if not _is_text(name)), None)
    if bad is not None:
        raise InputError(f"{where}: the client name {bad!r} is not text in UTF-8.")
    if high >= len(names):
        raise InputError(f"{where}: client number {high} has no name: there are {len(names)} client names.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{where}: the client name '{twice[0]}' stands for more than one client; names must differ.")
    return names


def _text(name: Any) -> str:
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else str(name)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_storage(array: NDArray[Any], what: str, where: str) -> None:
    """Refuse numbers that numpy can store and torch cannot take: of the other byte order, extended, complex."""
    kind = array.dtype
    if kind.kind == "c" or (kind.kind in "iuf" and not (kind.isnative and kind.itemsize <= 8)):
        raise InputError(f"{where}: {what} are stored as {kind}, which torch cannot take; store them as float32 or int64.")


def check_labels(labels: NDArray[Any], classes: int | None, where: str) -> int:
    """The number of classes, after checking that the labels fit; 0 where labels are real numbers (regression)."""
    if np.issubdtype(labels.dtype, np.floating):
        if not np.isfinite(labels).all():
            raise InputError(f"{where}: labels contain NaN or infinity.")
        if classes is None:
            if labels.ndim == 1 and (labels == np.round(labels)).all():
                raise InputError(
                    f"{where}: labels are whole numbers stored as {labels.dtype}; store them as integers for "
                    f"classification, or say classes=0 for regression."
                )
            return 0
        if classes == 0:
            return 0
        raise InputError(f"{where}: labels are {labels.dtype}, not integers, so they cannot be {classes} classes.")
    if not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f"{where}: labels must be integers (classes) or real numbers, not {labels.dtype}.")
    if labels.ndim > 2:
        raise InputError(f"{where}: class labels are one a sample or one a position, not of shape {labels.shape}.")
    if labels.ndim == 2 and classes is None and _one_hot(labels):
        raise InputError(f"{where}: labels look one-hot; give the numbers of the classes (labels.argmax(axis=1)).")
    low, high = _range(labels, where)
    if low < 0:
        raise InputError(f"{where}: label {low} is negative; classes are numbered from 0.")
    if max(high + 1, classes or 0) > LARGEST_CLASS:
        raise InputError(f"{where}: {max(high + 1, classes or 0)} classes are more than the {LARGEST_CLASS} there can be.")
    if classes is not None and classes < 1:
        raise InputError(f"{where}: {classes} classes are too few for integer labels.")
    if classes is not None and high >= classes:
        raise InputError(f"{where}: label {high} is out of range for {classes} classes (0 to {classes - 1}).")
    return high + 1 if classes is None else classes


def _one_hot(labels: NDArray[Any]) -> bool:
    """Whether every row is a single 1 among zeros: a class spelled out rather than a label at every position."""
    return labels.shape[1] > 1 and bool(np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all())


def _range(labels: NDArray[Any], where: str) -> tuple[int, int]:
    """The least and the largest label; at positions of sequences, of those that count."""
    real = labels if labels.ndim == 1 else labels[labels != IGNORED]
    if not real.size:
        raise InputError(f"{where}: every position's label is {IGNORED}, which stands for none.")
    return int(real.min()), int(real.max())


def check_features(features: NDArray[Any], owner: NDArray[Any], names: Sequence[str], where: str) -> None:
    """Features must be numbers, and finite; the sample and client that are not so are named."""
    if features.dtype == object or not (np.issubdtype(features.dtype, np.number) or features.dtype == np.bool_):
        raise InputError(f"{where}: features must be numbers of one shape, not {features.dtype}.")
    if not np.issubdtype(features.dtype, np.floating):
        return
    for begin in range(0, len(features), CHECK_ROWS):  # in blocks: the array may be larger than memory
        block = np.asarray(features[begin : begin + CHECK_ROWS])
        bad = ~np.isfinite(block.reshape(len(block), -1)).all(axis=1)
        if bad.any():
            row = begin + int(np.argmax(bad))
            raise InputError(f"{where}: features of sample {row} (client '{names[int(owner[row])]}') contain NaN or infinity.")
