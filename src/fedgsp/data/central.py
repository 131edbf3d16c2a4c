"""Data that is already in Python's memory: arrays, tensors, torch data sets, pandas and polars frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data.assemble import Common, deal
from fedgsp.data.build import check_features, from_arrays
from fedgsp.data.columns import CLIENT, LABEL, labels, must, pick, stacked
from fedgsp.data.federated import FederatedData
from fedgsp.data.partition import Partitioner


def partition(
    samples: Any,
    how: Partitioner,
    *,
    classes: int | None = None,
    test_fraction: float = 0.1,
    data_seed: int = 0,
) -> FederatedData:
    """Deal central data to clients: `fedgsp.partition((x, y), fedgsp.Dirichlet(clients=50, alpha=0.3))`.

    `samples` is a pair (features, labels) of NumPy arrays or torch tensors, or a torch data set of such pairs. `how` is
    `IID`, `Dirichlet`, `Shards`, `Quantity`, or anything with their `clients` and `assign`.
    """
    features, targets = _pair(samples)
    if len(features) == 0:
        raise InputError("the data has no samples.")
    check_features(features, np.zeros(len(features), dtype=np.int64), ("none yet",), "the data")
    return deal(features, targets, how, Common(classes, test_fraction, data_seed), None, "the data")


def from_dataset(
    dataset: Any,
    client: Sequence[Any],
    *,
    classes: int | None = None,
    test_fraction: float = 0.1,
    data_seed: int = 0,
) -> FederatedData:
    """A torch data set of (features, label) pairs whose sample i belongs to `client[i]` (any names or numbers).

    For data that nobody owns yet, use `partition(dataset, how)`.
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
    """A pandas or polars frame: clients by a column, or dealt by a partitioner (`how`).

    Features are the columns named, else all columns of numbers but the label and the client; a single column that holds
    arrays or pictures works too. Labels that are texts become classes in sorted order.
    """
    there = [str(name) for name in frame.columns]
    where = "the frame"
    target = must(pick(there, label, LABEL, "label", where), "label", "label", there, where)
    owner = pick(there, client, CLIENT, "client", where) if how is None or client else None
    if how is None:
        owner = must(owner, "client", "client", there, where)
    used = list(features) if features is not None else [n for n in there if n not in (target, owner) and _is_number(frame[n])]
    for name in used:
        pick(there, name, (), "features", where)
    if not used:
        raise InputError(f"{where} has no columns of numbers for the features; there are: {', '.join(there)}.")
    x = _features(frame, used)
    y = _codes(_values(frame[target]), f"{where}: column '{target}'")
    common = Common(classes, test_fraction, data_seed)
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
