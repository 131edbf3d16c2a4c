"""Profiles other than class counts. Groupers take any non-negative vectors that add up over clients; these make some.

A profile must *add up*: a group's profile is the sum of its clients', and its share in each column is what is balanced. So a
mean has to be multiplied by the number of samples behind it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgsp.core.errors import InputError


def quantile_profiles(targets: ArrayLike, owner: ArrayLike, bins: int = 10) -> NDArray[np.int64]:
    """For regression, (K, bins): how many of a client's targets (N,) lie in each quantile bin; `owner` (N,) is 0..K-1.

    Args:
        targets: The target of each sample (N,).
        owner: The client of each sample (N,), from 0 to K - 1.
        bins: How many quantile bins there are.
    """
    values, whose = np.asarray(targets, dtype=np.float64), np.asarray(owner, dtype=np.int64)
    if values.shape != whose.shape or values.ndim != 1 or not len(values):
        raise InputError("quantile_profiles: targets and owner must be two lists of the same length, with an entry per sample.")
    if not np.isfinite(values).all() or whose.min() < 0 or bins < 1:
        raise InputError("quantile_profiles: targets must be finite, owners 0 or more, and bins at least 1.")
    edges = np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])
    codes = np.searchsorted(edges, values, side="right")
    clients = int(whose.max()) + 1
    return np.bincount(whose * bins + codes, minlength=clients * bins).reshape(clients, bins)


def feature_profiles(means: ArrayLike, sizes: ArrayLike) -> NDArray[np.float64]:
    """(K, d + 1) from feature means (K, d) of clients with `sizes` (K,) samples: balanced groups then have equal feature means.

    Each feature is scaled to 0..1 over clients and takes up to 1/d of a sample; a last column takes the rest, so that each
    row sums to the client's number of samples, as class counts do.

    Args:
        means: Mean features of each client (K, d).
        sizes: Samples of each client (K,).
    """
    values, weights = np.asarray(means, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    if values.ndim != 2 or not values.shape[1] or weights.shape != values.shape[:1]:
        raise InputError(
            "feature_profiles: means must be a table with a row for each client, and sizes have an entry for each."
        )
    if not np.isfinite(values).all() or not np.isfinite(weights).all() or weights.min(initial=0.0) < 0:
        raise InputError("feature_profiles: means must be finite numbers, and sizes finite and not negative.")
    low = values.min(axis=0)
    width = values.max(axis=0) - low
    scaled = (values - low) / np.where(width > 0, width, 1.0) / values.shape[1]
    rest = np.maximum(1.0 - scaled.sum(axis=1, keepdims=True), 0.0)
    return np.asarray(weights[:, None] * np.concatenate([scaled, rest], axis=1))
