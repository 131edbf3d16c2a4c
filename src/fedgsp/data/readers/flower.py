"""Flower Datasets' partitions as a federation: `fedgsp.from_flower(FederatedDataset(...))`, or any loader of partitions.

Nothing of Flower is imported: whatever has `load_partition(i)` (a FederatedDataset, a Partitioner), or a function of the
partition's number, will do, and a partition is anything with columns: a Hugging Face data set or a list of dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data.arrays import check_features, check_labels, from_rows
from fedgsp.data.finish import Standardise, Transform, finished
from fedgsp.data.readers.columns import FEATURES, LABEL, find_column, labels, require_column, stacked

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData

BATCH = 512


def from_flower(
    loader: Any,
    *,
    partitions: int | None = None,
    label: str = "",
    features: str = "",
    classes: int | None = None,
    test_fraction: float = 0.1,
    data_seed: int = 0,
    standardise: Standardise = False,
    transform: Transform | None = None,
) -> FederatedData:
    """A federation of Flower Datasets' partitions: each becomes a client, called by its number, and is split.

    Args:
        loader: A FederatedDataset, a Partitioner, or a function from a partition's number to its samples.
        partitions: How many there are, where the loader does not say.
        label: The label's column (default: one of a usual name).
        features: The features' column (default: one of a usual name).
        classes: How many classes there are (default: as many as the labels say); 0 for regression.
        test_fraction: The share of each client's samples that is kept for testing.
        data_seed: The seed of that split.
        standardise: True: features of mean 0 and deviation 1 over the training samples of all clients; "client": over each
            client's own.
        transform: What training sees of a sample, other variants in every epoch: a callable, or a name such as "crop2+flip".

    Returns:
        The federation.

    Raises:
        InputError: If a partition is empty or cannot be used.
    """
    load = loader.load_partition if hasattr(loader, "load_partition") else loader
    if not callable(load):
        raise InputError(f"from_flower wants something with load_partition, or a function, not {type(loader).__name__}.")
    count = partitions if partitions is not None else _count(loader)
    blocks: list[NDArray[Any]] = []
    targets: list[NDArray[Any]] = []
    sizes = []
    for number in range(count):
        before = sum(map(len, targets))
        for x, y in _read(load, number, label, features):
            if blocks and x.shape[1:] != blocks[0].shape[1:]:
                raise InputError(
                    f"partition {number}: samples of unequal shape: {x.shape[1:]} here, {blocks[0].shape[1:]} before."
                )
            blocks.append(x)
            targets.append(y)
        sizes.append(sum(map(len, targets)) - before)
        if sizes[-1] == 0:
            raise InputError(f"partition {number} is empty.")
    if count < 1:
        raise InputError("there are no partitions.")
    x, y = np.concatenate(blocks), np.concatenate(targets)
    if y.dtype.kind in "US":
        y = np.unique(y, return_inverse=True)[1].astype(np.int64)
    names = [str(number) for number in range(count)]
    owner = np.repeat(np.arange(count), sizes)
    check_features(x, owner, names, "the partitions")
    classes = check_labels(y, classes, "the partitions")
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    owned = [np.arange(bounds[k], bounds[k + 1]) for k in range(count)]
    data = from_rows(x, y, names, owned, classes, test_fraction=test_fraction, data_seed=data_seed)
    return finished(data, standardise, transform)


def _count(loader: Any) -> int:
    """How many partitions: a Partitioner says so itself, a FederatedDataset through the partitioner of its only split."""
    if hasattr(loader, "num_partitions"):
        return int(loader.num_partitions)
    inner = getattr(loader, "partitioners", None)
    if isinstance(inner, dict) and len(inner) == 1:
        loader.load_partition(0)  # a partitioner knows its data, and so its number, only after the first use
        return int(next(iter(inner.values())).num_partitions)
    raise InputError("how many partitions are there? Say partitions=N.")


def _read(load: Callable[[int], Any], number: int, label: str, features: str) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    dataset = load(number)
    where = f"partition {number}"
    if len(dataset) == 0:
        return
    there = list(getattr(dataset, "column_names", None) or dataset[0])
    target = require_column(find_column(there, label, LABEL, "label", where), "label", "label", there, where)
    single = require_column(find_column(there, features, FEATURES, "features", where), "features", "features", there, where)
    for begin in range(0, len(dataset), BATCH):
        some = dataset[begin : begin + BATCH]
        columns = some if isinstance(some, dict) else {name: [row[name] for row in some] for name in (single, target)}
        block = stacked(list(columns[single]), f"{where}, column '{single}'")
        if block.dtype == np.float64:
            block = block.astype(np.float32)
        yield block, labels(list(columns[target]), f"{where}, column '{target}'")
