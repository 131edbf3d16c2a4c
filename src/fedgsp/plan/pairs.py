"""How unlike are groups (or clients) pair by pair? Median, mean and maximum over all pairs, or over a sample with its error.

10,000 groups have 50 million pairs; half a million of them say the median to a part in a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgsp.plan.checks import require_choice
from fedgsp.plan.divergence import ZDistance, distributions, pairwise_distance, rowwise_distance

MOST_PAIRS = 500_000
CHUNK = 16_384
CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairSummary:
    """Median, mean and maximum of a distance over pairs, of which `looked_at` of `pairs` were looked at.

    If that is all of them the figures are exact and the errors zero. Else, with 95 % confidence each: the mean is within
    `mean_error`, the median between `median_low` and `median_high` (order statistics, no assumption on the distances), and at
    most a share `unseen_above` of all pairs is above the `maximum`, which is only that of the sample.
    """

    pairs: int
    looked_at: int
    median: float
    mean: float
    maximum: float
    mean_error: float = 0.0
    median_low: float = 0.0
    median_high: float = 0.0
    unseen_above: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether every pair was looked at."""
        return self.looked_at == self.pairs


def summarise_pairs(
    counts: ArrayLike, distance: ZDistance = "cpd", *, most_pairs: int = MOST_PAIRS, random_state: int = 0
) -> PairSummary:
    """Summarise a distance over all pairs of rows (N, F) of counts, or over `most_pairs` random ones if there are more.

    Distances of distributions leave out rows without samples, which have none.
    """
    require_choice("summarise_pairs", "distance", distance, get_args(ZDistance))
    rows = np.asarray(counts, dtype=np.float64)
    if distance in ("cpd", "emd", "js"):
        rows = distributions(rows[rows.sum(axis=1) > 0])
    pairs = len(rows) * (len(rows) - 1) // 2
    if pairs == 0:
        return PairSummary(0, 0, 0.0, 0.0, 0.0)
    if pairs <= most_pairs:
        values = pairwise_distance(rows, distance)
        middle = float(np.median(values))
        return PairSummary(pairs, pairs, middle, float(values.mean()), float(values.max()), 0.0, middle, middle)
    values = np.sort(_sample(rows, distance, most_pairs, np.random.default_rng(random_state)))
    spread = 0.98 * np.sqrt(most_pairs)  # 1.96 standard deviations of a binomial's count, which bounds the median's rank
    low, high = (int(np.clip(np.floor(most_pairs / 2 + side * spread), 0, most_pairs - 1)) for side in (-1, 1))
    return PairSummary(
        pairs, most_pairs, float(np.median(values)), float(values.mean()), float(values[-1]),
        mean_error=1.96 * float(values.std(ddof=1)) / np.sqrt(most_pairs), median_low=float(values[low]),
        median_high=float(values[high]), unseen_above=float(-np.log(1 - CONFIDENCE) / most_pairs),
    )  # fmt: skip


def _sample(rows: NDArray[np.float64], distance: ZDistance, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Distances of `count` pairs, each drawn evenly from all pairs of two rows."""
    first = rng.integers(0, len(rows), count)
    second = (first + rng.integers(1, len(rows), count)) % len(rows)
    return np.concatenate(
        [
            rowwise_distance(rows[first[at : at + CHUNK]], rows[second[at : at + CHUNK]], distance)
            for at in range(0, count, CHUNK)
        ]
    )
