"""Features of mean 0 and deviation 1: by the population, from every client's sums, or by each client alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData


def standardised(data: FederatedData, each_client: bool) -> FederatedData:
    """See `FederatedData.standardised`."""
    if data.count_tokens():
        raise InputError("samples of tokens have no mean, so they cannot be standardised.")
    features = np.asarray(data.features, dtype=np.float32).copy()
    counts, sums, squares = _sums(data)
    of_all = _mean_and_deviation(counts.sum(), sums.sum(axis=0), squares.sum(axis=0))
    used, which = [of_all], np.zeros(len(features), dtype=np.int64)
    for client in range(len(data)):
        if each_client and counts[client] > 0:
            used.append(_mean_and_deviation(counts[client], sums[client], squares[client]))
        mean, deviation = used[-1] if each_client and counts[client] > 0 else of_all
        for split in (data.train, data.validation, data.test):
            rows = split[client]
            which[rows] = len(used) - 1 if each_client and counts[client] > 0 else 0
            features[rows] = (np.asarray(data.features[rows], dtype=np.float64) - mean) / deviation
    by = "each client's own training samples" if each_client else "the training samples of all clients"
    told = f"features were standardised by {by}."
    return replace(
        data, features=features, divisor=1.0, source=None, memo=None, notes=(*data.notes, told),
        augmentation=_rescaled(data, which, used),
    )  # fmt: skip


def _rescaled(data: FederatedData, which: NDArray[np.int64], used: list[tuple[Any, Any]]) -> Any:
    """What makes samples anew: where it reads them from elsewhere, they are standardised as the stored ones are."""
    if data.augmentation is None or not data.augmentation.needs_rows:
        return data.augmentation
    from fedgsp.data.augmentation import ReadAnew, Rescaled

    if not isinstance(data.augmentation, ReadAnew):
        raise InputError("these samples are standardised already.")
    return Rescaled(data.augmentation, which, np.stack([mean for mean, _ in used]), np.stack([spread for _, spread in used]))


def _sums(data: FederatedData) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """What each client would send: how many training samples, and the sums of their values and squares by feature."""
    shape = (len(data), *data.sample_shape)
    sums, squares = np.zeros(shape), np.zeros(shape)
    for client, rows in enumerate(data.train):
        own = np.asarray(data.features[rows], dtype=np.float64)
        sums[client], squares[client] = own.sum(axis=0), np.square(own).sum(axis=0)
    return data.train.sizes.astype(np.float64), sums, squares


def _mean_and_deviation(count: Any, total: NDArray[np.float64], squares: NDArray[np.float64]) -> tuple[Any, Any]:
    mean = total / max(1.0, float(count))
    spread = np.maximum(squares / max(1.0, float(count)) - mean**2, 0)
    tiny = np.finfo(np.float64).eps * 16 * np.maximum(mean**2, np.finfo(np.float64).tiny)
    return mean, np.where(spread > tiny, np.sqrt(np.maximum(spread, tiny)), 1.0)
