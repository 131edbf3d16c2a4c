"""Data that is already in Python's memory: arrays, tensors, torch data sets, pandas and polars frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data.arrays import check_features, from_arrays
from fedgsp.data.assemble import ReaderOptions, deal
from fedgsp.data.finish import Standardise, Transform, finished
from fedgsp.data.readers.columns import CLIENT, FEATURES, LABEL, find_column, labels, require_column, stacked

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData
    from fedgsp.data.partitioners import Partitioner


def partition(
    samples: Any,
    how: Partitioner,
    *,
    anew: bool = False,
    classes: int | None = None,
    test_fraction: float = 0.1,
    data_seed: int = 0,
    standardise: Standardise = False,
    transform: Transform | None = None,
) -> FederatedData:
    """Deal central data to clients.

    Args:
        samples: A pair (features, labels) of NumPy arrays or torch tensors, or a torch data set of such pairs.
        how: `IID`, `Dirichlet`, `Shards`, `Quantity`, or anything with their `clients` and `assign`.
        anew: For a torch data set: read a sample again whenever it is trained on, as for `from_dataset`.
        classes: How many classes there are (default: as many as the labels say); 0 for regression.
        test_fraction: The share of each client's samples that is kept for testing.
        data_seed: The seed of that split.
        standardise: True: features of mean 0 and deviation 1 over the training samples of all clients; "client": over each
            client's own.
        transform: What training sees of a sample, other variants in every epoch: a callable, or a name such as "crop2+flip".

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
    features, targets = _read_once(samples, anew, data_seed)
    if len(features) == 0:
        raise InputError("the data has no samples.")
    check_features(features, np.zeros(len(features), dtype=np.int64), ("none yet",), "the data")
    data = deal(features, targets, how, ReaderOptions(classes, test_fraction, data_seed), None, "the data")
    return finished(_anew(data, samples) if anew else data, standardise, transform)


def from_dataset(
    dataset: Any,
    client: Sequence[Any] | NDArray[Any],
    *,
    anew: bool = False,
    evaluated: Any = None,
    classes: int | None = None,
    test_fraction: float = 0.1,
    data_seed: int = 0,
    standardise: Standardise = False,
    transform: Transform | None = None,
) -> FederatedData:
    """A torch data set whose samples have owners.

    For data that nobody owns yet, use `partition(dataset, how)`.

    Args:
        dataset: A torch data set of (features, label) pairs, or of dicts whose entries have usual names.
        client: Whose each sample is: any names or numbers.
        anew: Read a sample again whenever it is trained on, so that random transforms in the data set draw anew; else it is
            read once. What they draw follows from the run's seed.
        evaluated: The same samples in the same order as they are to be evaluated, without random transforms (default: as
            `dataset` gives them when it is read first, by `data_seed`).
        classes: How many classes there are (default: as many as the labels say); 0 for regression.
        test_fraction: The share of each client's samples that is kept for testing.
        data_seed: The seed of that split.
        standardise: True: features of mean 0 and deviation 1 over the training samples of all clients; "client": over each
            client's own.
        transform: What training sees of a sample, other variants in every epoch: a callable, or a name such as "crop2+flip".

    Returns:
        The federation; clients are in the order in which they appear.

    Raises:
        InputError: If the samples or their owners cannot be used.
    """
    features, targets = _read_once(dataset if evaluated is None else evaluated, anew, data_seed)
    if evaluated is not None and len(evaluated) != len(dataset):
        raise InputError(f"the data set has {len(dataset)} samples and its evaluated twin {len(evaluated)}.")
    names, index = owners(client, "the data set's clients")
    data = from_arrays(
        features, targets, index, names, classes=classes, test_fraction=test_fraction, data_seed=data_seed, where="the data set"
    )
    return finished(_anew(data, dataset) if anew else data, standardise, transform)


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
    standardise: Standardise = False,
    transform: Transform | None = None,
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
        standardise: True: features of mean 0 and deviation 1 over the training samples of all clients; "client": over each
            client's own.
        transform: What training sees of a sample, other variants in every epoch: a callable, or a name such as "crop2+flip".

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
    y = _values(frame[target])
    common = ReaderOptions(classes, test_fraction, data_seed)
    if how is not None:
        check_features(x, np.zeros(len(x), dtype=np.int64), ("none yet",), where)
        return finished(deal(x, y, how, common, None, where), standardise, transform)
    names, index = owners(_values(frame[str(owner)]), f"{where}: column '{owner}'")
    return from_arrays(
        x, y, index, names, classes=classes, test_fraction=test_fraction, data_seed=data_seed, standardise=standardise,
        transform=transform, where=where,
    )  # fmt: skip


def _read_once(samples: Any, anew: bool, data_seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The samples as they are stored; where they are read anew later, what is drawn now follows from the seed."""
    if not anew:
        return _pair(samples)
    if isinstance(samples, (tuple, list)):
        raise InputError("only a data set can be read anew; for arrays there is data.with_transform(transform).")
    from fedgsp.core.randomness import own_randomness

    with own_randomness(data_seed):
        return _pair(samples)


def _anew(data: FederatedData, dataset: Any) -> FederatedData:
    from fedgsp.data.augmentation import ReadAnew

    return replace(data, augmentation=ReadAnew(dataset, features_of, data.divisor))


def _pair(samples: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """(features, labels) as arrays."""
    if isinstance(samples, (tuple, list)) and len(samples) == 2 and hasattr(samples[0], "__len__"):
        features, targets = _plain(samples[0]), _plain(samples[1])
    elif hasattr(samples, "__getitem__") and hasattr(samples, "__len__"):
        pairs = [sample_pair(samples[i]) for i in range(len(samples))]
        features = stacked([x for x, _ in pairs], "the data set's features")
        targets = labels([y for _, y in pairs], "the data set's labels")
    else:
        raise InputError(f"samples must be a pair (features, labels) or a torch data set, not {type(samples).__name__}.")
    if len(features) != len(targets):
        raise InputError(f"the data: unequal lengths: {len(features)} features, {len(targets)} labels.")
    return features, targets


def sample_pair(sample: Any) -> tuple[Any, Any]:
    """(features, label) of one sample: a pair, or a dict whose entries have usual names ("image", "input_ids", "label", ..)."""
    if isinstance(sample, Mapping):
        there = [str(name) for name in sample]
        label, own = (find_column(there, "", usual, "", "a sample") for usual in (LABEL, FEATURES))
        if label is None or own is None:
            missing = "label" if label is None else "features"
            raise InputError(
                f"which entry of a sample is the {missing}? It has {', '.join(there)}; give (features, label) pairs."
            )
        return _plain(sample[own]), _item(sample[label])
    if not isinstance(sample, (tuple, list)) or len(sample) < 2:
        raise InputError("a data set must give (features, label) pairs.")
    return _plain(sample[0]), _item(sample[1])


def features_of(sample: Any) -> NDArray[Any]:
    """The features of one sample of a data set, as they are stored."""
    return np.asarray(stacked([sample_pair(sample)[0]], "the data set, read anew")[0])


def _plain(value: Any) -> Any:
    """Torch tensors as arrays (they share memory); pictures and arrays as they are."""
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return value if hasattr(value, "convert") else np.asarray(value)


def _item(value: Any) -> Any:
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def owners(client: Any, where: str) -> tuple[list[str], NDArray[np.int64]]:
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
