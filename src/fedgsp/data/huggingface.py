"""Hugging Face's `datasets.Dataset` and `DatasetDict`, and Arrow tables: pictures, texts with a tokenizer, numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.profiles import IGNORED
from fedgsp.data.arrays import check_features, from_arrays
from fedgsp.data.assemble import ReaderOptions, deal
from fedgsp.data.federated import SPLITS, FederatedData, Split
from fedgsp.data.finish import Standardise, Transform, finished
from fedgsp.data.in_memory import owners
from fedgsp.data.readers.columns import CLIENT, FEATURES, LABEL, find_column, labels, require_column, stacked

if TYPE_CHECKING:
    from fedgsp.data.partitioners import Partitioner

TEXT = ("text", "sentence", "content", "review", "tokens")
WHERE = "the data set"
Tokenizer = Callable[[list[str]], Any]


def from_huggingface(
    dataset: Any,
    *,
    label: str = "",
    client: str = "",
    features: str | Sequence[str] = "",
    tokenizer: Tokenizer | None = None,
    max_length: int = 64,
    how: Partitioner | None = None,
    classes: int | None = None,
    test_fraction: float = 0.1,
    data_seed: int = 0,
    standardise: Standardise = False,
    transform: Transform | None = None,
) -> FederatedData:
    """A `datasets.Dataset`, a `DatasetDict` (whose train, validation and test splits are kept) or a `pyarrow.Table`.

    Args:
        dataset: The data set.
        label: The label's column (default: one of a usual name). Lists of whole numbers are a label at every position.
        client: The client's column (default: one of a usual name).
        features: The column of pictures, texts or lists, or several of numbers (default: one of a usual name, else all columns
            of numbers but the label and the client).
        tokenizer: Makes a list of texts into lists of tokens, or into an object with `input_ids`, as those of transformers do.
        max_length: Tokens of a sample, at most; shorter ones are filled up.
        how: A partitioner that deals the samples to clients, in place of a client column.
        classes: How many classes there are (default: as the column says, or as many as the labels say); 0 for regression.
        test_fraction: The share of each client's samples that is kept for testing, where there is no such split.
        data_seed: The seed of that split, and of the dealing.
        standardise: True: features of mean 0 and deviation 1 over the training samples of all clients; "client": over each
            client's own.
        transform: What training sees of a sample, other variants in every epoch: a callable, or a name such as "crop2+flip".

    Returns:
        The federation. Names of classes are kept.

    Raises:
        InputError: If a column is missing or cannot be used.
    """
    parts = dict(dataset) if isinstance(dataset, Mapping) else {"train": dataset}
    odd = [name for name in parts if name not in SPLITS]
    if odd:
        raise InputError(f"{WHERE} has a split '{odd[0]}'; name them train, validation and test, or give one of them.")
    first = next(iter(parts.values()))
    there = [str(name) for name in first.column_names]
    target = require_column(find_column(there, label, LABEL, "label", WHERE), "label", "label", there, WHERE)
    owner = find_column(there, client, CLIENT, "client", WHERE) if how is None or client else None
    if how is None:
        owner = require_column(owner, "client", "client", there, WHERE)
    used = _used(first, there, features, target, owner)
    tables = list(parts.values())
    x, padding, vocabulary = _features(tables, used, tokenizer, max_length)
    y = _labels(_all(tables, target), x, target)
    names = _class_names(first, target)
    if classes is None and names and y.dtype.kind in "iu":
        classes = len(names)
    if how is not None:
        check_features(x, np.zeros(len(x), dtype=np.int64), ("none yet",), WHERE)
        data = deal(x, y, how, ReaderOptions(classes, test_fraction, data_seed), None, WHERE)
    else:
        clients, index = owners(_all(tables, str(owner)), f"{WHERE}: column '{owner}'")
        data = from_arrays(x, y, index, clients, classes=classes, test_fraction=test_fraction, data_seed=data_seed, where=WHERE)
    if len(parts) > 1:
        data = _with_splits(data, [name for name, part in parts.items() for _ in range(len(part))])
    told = replace(data, class_names=names or data.class_names, padding=padding, vocabulary=vocabulary)
    return finished(told, standardise, transform)


def _column(table: Any, name: str) -> list[Any]:
    column = table[name]
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def _all(tables: list[Any], name: str) -> list[Any]:
    """A column over all splits."""
    return [value for table in tables for value in _column(table, name)]


def _used(table: Any, there: list[str], wanted: str | Sequence[str], target: str, owner: str | None) -> list[str]:
    """The columns that samples are made of."""
    if wanted:
        return [
            find_column(there, name, (), "features", WHERE) or "" for name in ([wanted] if isinstance(wanted, str) else wanted)
        ]
    usual = find_column([name for name in there if name not in (target, owner)], "", (*FEATURES, *TEXT), "features", WHERE)
    if usual:
        return [usual]
    numbers = [
        name
        for name in there
        if name not in (target, owner) and all(isinstance(v, int | float) for v in _column(table, name)[:1])
    ]
    if not numbers:
        raise InputError(f"{WHERE} has no columns of numbers for the features; there are: {', '.join(there)}.")
    return numbers


def _features(
    tables: list[Any], used: list[str], tokenizer: Tokenizer | None, max_length: int
) -> tuple[NDArray[Any], int | None, int]:
    """(samples, padding token, how many tokens there are)."""
    if len(used) > 1:
        columns = [stacked(_all(tables, name), f"{WHERE}: column '{name}'")[:, 0] for name in used]
        return np.stack(columns, axis=1).astype(np.float32), None, 0
    values, where = _all(tables, used[0]), f"{WHERE}: column '{used[0]}'"
    if values and isinstance(values[0], str):
        if tokenizer is None:
            raise InputError(f"{where} is made of texts: give a tokenizer.")
        made = tokenizer(values)
        values = list(made["input_ids"] if hasattr(made, "keys") else made)
        pad = getattr(tokenizer, "pad_token_id", None)
        known = getattr(tokenizer, "vocab_size", 0)
        size = len(tokenizer) if hasattr(tokenizer, "__len__") else int(known)  # with tokens that were added
        return padded(values, 0 if pad is None else int(pad), max_length), 0 if pad is None else int(pad), size
    if values and isinstance(values[0], list) and len({len(value) for value in values}) > 1:
        return padded(values, 0, max_length), 0, 0
    made_of_numbers = bool(values) and isinstance(values[0], int | float)  # sizes, and not tokens
    samples = stacked(values, where)
    return samples.astype(np.float32) if made_of_numbers else samples, None, 0


def padded(values: Sequence[Sequence[int]], fill: int, max_length: int) -> NDArray[np.int64]:
    """Sequences of one length: cut at `max_length`, filled up at the end to the longest of them.

    Args:
        values: The sequences.
        fill: What short ones are filled up with.
        max_length: The most positions there are to be.

    Returns:
        (N, positions) whole numbers.
    """
    wide = min(max_length, max((len(value) for value in values), default=1))
    made = np.full((len(values), max(1, wide)), fill, dtype=np.int64)
    for row, value in enumerate(values):
        made[row, : min(len(value), wide)] = np.asarray(value[:wide], dtype=np.int64)
    return made


def _labels(values: list[Any], x: NDArray[Any], target: str) -> NDArray[Any]:
    if values and isinstance(values[0], list) and all(isinstance(one, int) for one in values[0]):
        made = padded(values, IGNORED, x.shape[1])
        return np.pad(made, ((0, 0), (0, x.shape[1] - made.shape[1])), constant_values=IGNORED)
    return labels(values, f"{WHERE}: column '{target}'")


def _class_names(table: Any, target: str) -> tuple[str, ...]:
    """What a `ClassLabel` column calls its classes; of a sequence of such, too."""
    kinds = getattr(table, "features", None) or {}
    kind = kinds.get(target) if hasattr(kinds, "get") else None
    names = getattr(kind, "names", None) or getattr(getattr(kind, "feature", None), "names", None) or ()
    return tuple(str(name) for name in names)


def _with_splits(data: FederatedData, part_of: list[str]) -> FederatedData:
    """The splits that the samples came with, in place of those that were drawn."""
    part = np.array(part_of)
    held = [np.sort(np.concatenate([split[k] for split in (data.train, data.validation, data.test)])) for k in range(len(data))]
    made: dict[str, Any] = {name: Split.of([rows[part[rows] == name] for rows in held]) for name in SPLITS}
    return replace(data, **made)
