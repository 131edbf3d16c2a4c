"""Data that is already in Python's memory: arrays, tensors, torch data sets, pandas and polars frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data.arrays import check_features, from_arrays
from fedgsp.data.assemble import ReaderOptions, deal
from fedgsp.data.readers.columns import CLIENT, LABEL, find_column, labels, require_column, stacked

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData
    from fedgsp.data.partitioners import Partitioner


def partition(
    samples: Any,
    how: Partitioner,
    *,
    classes: int | None = None,
    test_fraction: float = 0.1,
    data_seed: int = 0,
) -> FederatedData:
    """Deal central data to clients.

    Args:
        samples: A pair (features, labels) of NumPy arrays or torch tensors, or a torch data set of such pairs.
        how: `IID`, `Dirichlet`, `Shards`, `Quantity`, or anything with their `clients` and `assign`.
        classes: How many classes there are (default: as many as the labels say); 0 for regression.
        test_fraction: The share of each client's samples that is kept for testing.
        data_seed: The seed of that split.

    Returns:
        The federation; its clients are named "0", "1", ..

    Raises:
        InputError: If the samples cannot be used, or cannot be dealt in that way.

    Example:
        >>> from fedgsp.data.partitioners import Dirichlet
        >>> x, y = np.zeros((500, 4), np.float32), np.arange(500) % 10
        >>> data = partition((x, y), Dirichlet(clients=5, alpha=0.3))
        >>> len(data), data.samples
        (5, 500)
    """
    features, targets = _pair(samples)
    if len(features) == 0:
        raise InputError("the data has no samples.")
    check_features(features, np.zeros(len(features), dtype=np.int64), ("none yet",), "the data")
    return deal(features, targets, how, ReaderOptions(classes, test_fraction, data_seed), None, "the data")


def from_dataset(
    dataset: Any,
    client: Sequence[Any],
    *,
    classes: int | None = None,
    test_fraction: float = 0.1,
    data_seed: int = 0,
) -> FederatedData:
    """A torch data set whose samples have owners.

    For data that nobody owns yet, use `partition(dataset, how)`.

    Args:
        dataset: A torch data set of (features, label) pairs.
        client: Whose each sample is: any names or numbers.
        classes: How many classes there are (default: as many as the labels say); 0 for regression.
        test_fraction: The share of each client's samples that is kept for testing.
        data_seed: The seed of that split.

    Returns:
        The federation; clients are in the order in which they appear.

    Raises:
        InputError: If the samples or their owners cannot be used.
    """
    features, targets = _pair(dataset)
    names, index = _named(client, "the data set's clients")
    return from_arrays(
        features, targets, index, names, classes=classes, test_fraction=test_fraction, data_seed=data_seed, where="the data set"
    )


def from_frame(
    frame: Any,
    *,
    label: str = "",
    client: str = "",
    features: Sequence[str] | None = None,
    how: Partitioner | None = None,
    classes: int | None = None,
    test_fraction: float = 0.1,
    data_seed: int = 0,
) -> FederatedData:
    """A pandas or polars frame: clients by a column, or dealt by a partitioner.

    Args:
        frame: The frame, a row for each sample.
        label: The label's column (default: one of a usual name). Texts become classes in sorted order.
        client: The client's column (default: one of a usual name).
        features: The features' columns (default: all columns of numbers but the label and the client); a single column may hold
            arrays or pictures.
        how: A partitioner that deals the rows to clients, in place of a client column.
        classes: How many classes there are (default: as many as the labels say); 0 for regression.
        test_fraction: The share of each client's samples that is kept for testing.
        data_seed: The seed of that split.

    Returns:
        The federation.

    Raises:
        InputError: If a column is missing or cannot be used.
    """
    there = [str(name) for name in frame.columns]
    where = "the frame"
    target = require_column(find_column(there, label, LABEL, "label", where), "label", "label", there, where)
    owner = find_column(there, client, CLIENT, "client", where) if how is None or client else None
    if how is None:
        owner = require_column(owner, "client", "client", there, where)
    used = list(features) if features is not None else [n for n in there if n not in (target, owner) and _is_number(frame[n])]
    for name in used:
        find_column(there, name, (), "features", where)
    if not used:
        raise InputError(f"{where} has no columns of numbers for the features; there are: {', '.join(there)}.")
    x = _features(frame, used)
    y = _codes(_values(frame[target]), f"{where}: column '{target}'")
    common = ReaderOptions(classes, test_fraction, data_seed)
    if how is not None:
        check_features(x, np.zeros(len(x), dtype=np.int64), ("none yet",), where)
        return deal(x, y, how, common, None, where)
    names, index = _named(_values(frame[str(owner)]), f"{where}: column '{owner}'")
    return from_arrays(x, y, index, names, classes=classes, test_fraction=test_fraction, data_seed=data_seed, where=where)


def _pair(samples: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """(features, labels) as arrays."""
    if isinstance(samples, (tuple, list)) and len(samples) == 2 and hasattr(samples[0], "__len__"):
        features, targets = _plain(samples[0]), _plain(samples[1])
    elif hasattr(samples, "__getitem__") and hasattr(samples, "__len__"):
        pairs = [samples[i] for i in range(len(samples))]
        if not all(isinstance(pair, (tuple, list)) and len(pair) >= 2 for pair in pairs):
            raise InputError("a data set must give (features, label) pairs.")
        features = stacked([_plain(x) for x, *_ in pairs], "the data set's features")
        targets = labels([_item(pair[1]) for pair in pairs], "the data set's labels")
    else:
        raise InputError(f"samples must be a pair (features, labels) or a torch data set, not {type(samples).__name__}.")
    if len(features) != len(targets):
        raise InputError(f"the data: unequal lengths: {len(features)} features, {len(targets)} labels.")
    return features, _codes(targets, "the data's labels")


def _plain(value: Any) -> Any:
    """Torch tensors as arrays (they share memory); pictures and arrays as they are."""
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return value if hasattr(value, "convert") else np.asarray(value)


def _item(value: Any) -> Any:
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def _codes(values: NDArray[Any], where: str) -> NDArray[Any]:
    """Labels as numbers: texts become their place in sorted order."""
    if values.dtype.kind in "OUS" or values.dtype.kind == "T":
        texts = values.tolist()
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{where} mixes texts with other things, or misses some.")
        return np.unique(np.array(texts, dtype=np.str_), return_inverse=True)[1].astype(np.int64)
    return values.astype(np.int64) if values.dtype.kind == "b" else values


def _named(client: Any, where: str) -> tuple[list[str], NDArray[np.int64]]:
    """(names in order of appearance, client number of every sample)."""
    numbers: dict[str, int] = {}
    index: list[int] = []
    for value in client.tolist() if hasattr(client, "tolist") else client:
        if value is None or value != value:
            raise InputError(f"{where}: sample {len(index)} has no client.")
        index.append(numbers.setdefault(str(value), len(numbers)))
    return list(numbers), np.array(index, dtype=np.int64)


def _values(column: Any) -> NDArray[Any]:
    return np.asarray(column.to_numpy())


def _is_number(column: Any) -> bool:
    return _values(column[:1] if len(column) else column).dtype.kind in "biuf"


def _features(frame: Any, used: list[str]) -> NDArray[Any]:
    if len(used) == 1 and not _is_number(frame[used[0]]):
        return stacked(list(_values(frame[used[0]])), f"the frame: column '{used[0]}'")
    for name in used:
        if not _is_number(frame[name]):
            raise InputError(f"the frame: column '{name}' is not made of numbers.")
    return np.stack([_values(frame[name]).astype(np.float32) for name in used], axis=1)
