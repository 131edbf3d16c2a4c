"""Writers to group, as many as you like: made up from what is known of FEMNIST's, or real ones resampled with noise.

python benchmarks/population.py 100000 counts.npz          then: fedgsp group counts.npz --groups 1000
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES, BLOCK = 62, 50_000
LETTER_RICH = 0.42
"""Share of writers of type A: 319 +- 65 samples, letters as in a text; the others, type B, hold 166 +- 13, mostly digits."""

TYPE_A = (
    35.7, 40.3, 28.8, 35.5, 28.6, 31.7, 31.7, 37.4, 30.4, 33.6,
    13.4, 4.6, 22.0, 8.8, 8.2, 21.4, 1.9, 4.2, 22.0, 5.5, 1.9, 10.3, 19.3, 13.0, 52.7, 17.2, 3.4, 9.2, 45.8, 20.2, 33.0, 8.0,
    7.8, 2.7, 7.8, 2.3,
    23.3, 7.6, 2.5, 21.2, 53.7, 2.1, 5.7, 16.6, 2.5, 2.7, 1.3, 30.9, 2.3, 26.9, 1.5, 2.9, 3.6, 33.0, 2.7, 41.8, 2.3, 3.6, 2.9,
    2.3, 2.1, 1.9,
)  # fmt: skip
"""Per-mille frequencies of 0-9, A-Z, a-z."""

TYPE_B_DIGITS = (11.6, 13.0, 12.0, 11.9, 11.6, 11.4, 11.9, 12.3, 11.7, 11.7)
CONCENTRATION = 300
"""How much writers of type A differ (Dirichlet): an assumption, not measured."""


def synthetic(clients: int, seed: int = 0) -> NDArray[np.int32]:
    """Counts (K, 62) of made-up writers of the two types."""
    rng = np.random.default_rng(seed)
    counts = np.empty((clients, CLASSES), dtype=np.int32)
    share = np.array(TYPE_A) / sum(TYPE_A)
    mean, spread = np.full(CLASSES, 0.8), np.full(CLASSES, 0.45)
    mean[:10], spread[:10] = TYPE_B_DIGITS, 3.0
    mean[10 + 8], mean[36 + 11] = 1.48, 1.44  # I and l
    rich = rng.random(clients) < LETTER_RICH
    for first in range(0, clients, BLOCK):
        own = np.arange(first, min(first + BLOCK, clients))
        a, b = own[rich[own]], own[~rich[own]]
        sizes = np.maximum(np.rint(rng.normal(319, 65, len(a))), 50).astype(np.int64)
        mixture = rng.gamma(CONCENTRATION * share, size=(len(a), CLASSES))
        counts[a] = rng.multinomial(sizes, mixture / mixture.sum(axis=1, keepdims=True))
        counts[b] = np.maximum(np.rint(rng.normal(mean, spread, (len(b), CLASSES))), 0)
    return counts


def resampled(writers: NDArray[np.int64], clients: int, seed: int = 0) -> NDArray[np.int32]:
    """Counts (K, 62): real writers drawn with replacement, each 30 % larger or smaller, every count then Poisson."""
    rng = np.random.default_rng(seed)
    counts = np.empty((clients, writers.shape[1]), dtype=np.int32)
    for first in range(0, clients, BLOCK):
        block = counts[first : first + BLOCK]
        drawn = writers[rng.integers(0, len(writers), len(block))]
        block[:] = rng.poisson(drawn * rng.uniform(0.7, 1.3, (len(block), 1)) + 0.05)
    return counts


if __name__ == "__main__":
    np.savez_compressed(Path(sys.argv[2]), counts=synthetic(int(sys.argv[1])))
