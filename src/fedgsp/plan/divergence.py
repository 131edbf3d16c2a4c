"""How unlike are two class distributions? CPD (the paper's measure), Zhao's EMD, KL, JS, and the grouping objective z.

Distributions are vectors that sum to one along the last axis; `distributions` makes them from counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import scipy  # its parts are imported when they are used
from numpy.typing import ArrayLike, NDArray

from fedgsp.core.params import require_choice

if TYPE_CHECKING:
    from fedgsp.plan.groupers import Counts

Reals = NDArray[np.float64]
CpdKind = Literal["label", "point", "entries"]
ZDistance = Literal["euclid", "squared", "l1", "cpd", "emd", "js"]

CALIBRATED_POINT_BANDWIDTH = 0.027
"""Fitted so that CPD of kind "point" gives the paper's two percentages with 10 groups: not a natural constant."""

FEDMMD_VARIANCES = (
    1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 100.0, 1e3, 1e4, 1e5, 1e6,
)  # fmt: skip
"""The 19 kernel widths of FedMMD's code."""


def distributions(counts: ArrayLike) -> Reals:
    """Rows of counts as class distributions.

    Args:
        counts: (.., F) non-negative numbers.

    Returns:
        (.., F) rows that sum to one.

    Raises:
        ValueError: If a row has no samples, and so no distribution.

    Example:
        >>> distributions([[1, 3], [2, 2]]).tolist()
        [[0.25, 0.75], [0.5, 0.5]]
    """
    values = np.asarray(counts, dtype=np.float64)
    totals = values.sum(axis=-1, keepdims=True)
    if (totals <= 0).any():
        raise ValueError("a client or group without samples has no class distribution")
    return np.asarray(values / totals)


def group_sums(counts: Counts, labels: NDArray[np.int64], n_groups: int | None = None) -> Reals:
    """V_m, the overall class counts of each group (Eq. overall-dist): (M, F) from (K, F); label -1 is in no group.

    Args:
        counts: Class counts of the clients (K, F).
        labels: The group of each client; -1: none.
        n_groups: How many groups there are; None: the largest label and one.
    """
    grouped = labels >= 0
    sums = np.zeros((int(labels.max(initial=-1)) + 1 if n_groups is None else n_groups, counts.shape[1]))
    np.add.at(sums, labels[grouped], counts[grouped])
    return sums


def mmd_squared(x: ArrayLike, y: ArrayLike, variances: Sequence[float] = FEDMMD_VARIANCES) -> float:
    """MMD^2 of two samples (n, d), (m, d) with the kernel sum_i exp(-||a - b||^2 / (2 v_i)), biased (V-statistic).

    Args:
        x: First sample (n, d).
        y: Second sample (m, d).
        variances: Of the kernels that are added up.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)

    def mean_kernel(a: Reals, b: Reals) -> float:
        squared = ((a[:, None] - b[None]) ** 2).sum(axis=-1)
        return float(sum(np.exp(-squared / (2 * variance)).mean() for variance in variances))

    value = mean_kernel(first, first) + mean_kernel(second, second) - 2 * mean_kernel(first, second)
    return max(0.0, value)


def cpd(p: ArrayLike, q: ArrayLike, kind: CpdKind = "label", s: float | None = None) -> float:
    """The class probability distance MMD^2(P, Q) of two class distributions, in one of its readings.

    Args:
        p: (F,) a class distribution.
        q: (F,) another.
        kind: "label" (default): x ~ P is a label, one-hot; CPD = (1 - exp(-1/s^2)) ||p - q||^2 with s = 1. Literally the
            paper's formula; s is only a common factor, so percentages do not depend on it.
            "point": each distribution is one point; CPD = 2 - 2 exp(-||p - q||^2 / 2 s^2), with s = 0.027 CALIBRATED to the
            paper's two percentages (nobody published a bandwidth).
            "entries": the F probabilities as F scalar samples, five kernels around the mean distance, as in the widespread
            `mmd_rbf`. Blind to which class is which; for comparison only. It takes no s.
        s: The kernel's bandwidth, above 0.

    Returns:
        The distance, 0 for equal distributions.

    Raises:
        ValueError: If a vector is no distribution, or `s` cannot be used.

    Example:
        >>> round(cpd([1, 0], [0, 1]), 4), cpd([0.5, 0.5], [0.5, 0.5])
        (1.2642, 0.0)
    """
    return float(pairwise_cpd(np.stack([_simplex(p), _simplex(q)]), kind, s)[0])


def pairwise_cpd(distributions: ArrayLike, kind: CpdKind = "label", s: float | None = None) -> Reals:
    """CPD of all pairs of rows (N, F), as a condensed vector (N (N - 1) / 2,): (0,1), (0,2), .., (1,2), ..; see `cpd`.

    Args:
        distributions: A row for each member (N, F), each adding up to 1.
        kind: Which reading of the formula, as in `cpd`.
        s: Bandwidth of the kernel; None: the kind's own.
    """
    require_choice("cpd", "kind", kind, get_args(CpdKind))
    rows = _simplex(distributions)
    if kind == "entries":
        if s is not None:
            raise ValueError("CPD of kind 'entries' finds its own bandwidth and takes no s")
        return np.array([_mmd_rbf(rows[i], rows[j]) for i, j in combinations(range(len(rows)), 2)])
    width = s if s is not None else 1.0 if kind == "label" else CALIBRATED_POINT_BANDWIDTH
    if not width > 0:
        raise ValueError(f"the bandwidth s must be positive, not {width}")
    squared: Reals = scipy.spatial.distance.pdist(rows, "sqeuclidean")
    if kind == "label":
        return np.asarray(-np.expm1(-1 / width**2) * squared)
    return np.asarray(-2 * np.expm1(-squared / (2 * width**2)))


def _mmd_rbf(p: Reals, q: Reals, kernel_mul: float = 2.0, kernel_num: int = 5) -> float:
    both = np.concatenate([p, q])
    squared = (both[:, None] - both[None]) ** 2
    mean_distance = squared.sum() / (both.size * (both.size - 1))
    if mean_distance == 0:
        return 0.0
    bandwidths = mean_distance * kernel_mul ** (np.arange(kernel_num) - kernel_num // 2)
    return mmd_squared(p[:, None], q[:, None], variances=(bandwidths / 2).tolist())


def _simplex(values: ArrayLike) -> Reals:
    rows = np.asarray(values, dtype=np.float64)
    if (rows < 0).any() or not np.allclose(rows.sum(axis=-1), 1.0, rtol=0, atol=1e-9):
        raise ValueError("a class distribution is non-negative and sums to one; make it from counts with distributions()")
    return rows


def emd(p: ArrayLike, q: ArrayLike) -> Reals:
    """Zhao et al.'s "earth mover's distance" `sum_i |p_i - q_i|`, without a ground distance.

    Args:
        p: (.., F) class distributions.
        q: (.., F) others.

    Returns:
        (..) numbers between 0 and 2.

    Raises:
        ValueError: If a vector is no distribution.
    """
    return np.asarray(np.abs(_simplex(p) - _simplex(q)).sum(axis=-1))


def mean_emd(counts: Counts) -> float:
    """Zhao et al.'s figure for a federation: EMD of each client (K, F) to the population, weighted by samples.

    Args:
        counts: Class counts of the clients (K, F).
    """
    present = counts[counts.sum(axis=1) > 0]
    return float(np.average(emd(distributions(present), distributions(present.sum(axis=0))), weights=present.sum(axis=1)))


def kl(p: ArrayLike, q: ArrayLike) -> Reals:
    """Kullback-Leibler divergence KL(p || q) in nats.

    Args:
        p: (.., F) class distributions.
        q: (.., F) others.

    Returns:
        (..) numbers of at least 0; 0 log 0 = 0, infinite where q lacks a class of p.

    Raises:
        ValueError: If a vector is no distribution.
    """
    return np.asarray(scipy.special.rel_entr(_simplex(p), _simplex(q)).sum(axis=-1))


def js(p: ArrayLike, q: ArrayLike) -> Reals:
    """Jensen-Shannon divergence in nats.

    Args:
        p: (.., F) class distributions.
        q: (.., F) others.

    Returns:
        (..) numbers between 0 and ln 2.

    Raises:
        ValueError: If a vector is no distribution.
    """
    first, second = _simplex(p), _simplex(q)
    middle = (first + second) / 2
    return np.asarray((kl(first, middle) + kl(second, middle)) / 2)


@dataclass(frozen=True)
class PairwiseSum:
    """The grouping objective: `total` is the paper's z, `mean` the same per pair, comparable over numbers of groups.

    Args:
        total: The sum over all pairs.
        pairs: How many pairs there are.
    """

    total: float
    pairs: int

    @property
    def mean(self) -> float:
        """z over the number of pairs; 0 if there is only one group."""
        return self.total / self.pairs if self.pairs else 0.0


def objective_z(group_sums: ArrayLike, distance: ZDistance = "euclid") -> PairwiseSum:
    """The grouping objective z = sum over pairs of groups of <V_m1, V_m2> (Eq. objective).

    The paper does not name the distance; it pulls a factor L out of it unchanged, which "euclid" and "l1" allow.

    Args:
        group_sums: (M, F) the groups' class counts (`group_sums`).
        distance: "euclid", "squared" and "l1" compare the counts themselves, "cpd", "emd" and "js" the class distributions.

    Returns:
        z, and the same per pair.

    Raises:
        InputError: If the distance is unknown.
    """
    require_choice("objective_z", "distance", distance, get_args(ZDistance))
    sums = np.asarray(group_sums, dtype=np.float64)
    if len(sums) < 2:
        return PairwiseSum(0.0, 0)
    values = pairwise_distance(distributions(sums) if distance in ("cpd", "emd", "js") else sums, distance)
    return PairwiseSum(float(values.sum()), len(values))


def pairwise_distance(rows: Reals, distance: ZDistance) -> Reals:
    """The distance of all pairs of rows (N, F), condensed like `pairwise_cpd`; for "cpd", "emd" and "js" of distributions."""
    if distance == "cpd":
        return pairwise_cpd(rows)
    if distance == "js":
        return np.asarray(scipy.spatial.distance.pdist(rows, "jensenshannon") ** 2)
    if distance in ("emd", "l1"):
        return np.asarray(scipy.spatial.distance.pdist(rows, "cityblock"))
    return np.asarray(scipy.spatial.distance.pdist(rows, "euclidean" if distance == "euclid" else "sqeuclidean"))


def rowwise_distance(first: Reals, second: Reals, distance: ZDistance) -> Reals:
    """The same distances, of each row (n, F) of `first` to the row of `second` beside it."""
    if distance == "js":
        return js(first, second)
    if distance in ("emd", "l1"):
        return np.asarray(np.abs(first - second).sum(axis=1))
    squared = np.asarray(((first - second) ** 2).sum(axis=1))
    if distance == "cpd":
        return np.asarray(-np.expm1(-1.0) * squared)
    return np.sqrt(squared) if distance == "euclid" else squared


def pairwise_kl(rows: ArrayLike) -> Reals:
    """KL(p_i || p_j) of all pairs of distributions (N, F), as a square matrix (N, N): KL is not symmetric.

    Args:
        rows: A distribution for each member (N, F).
    """
    p = _simplex(rows)
    with np.errstate(divide="ignore"):
        logs = np.where(p > 0, np.log(p), 0.0)
    lacking = (p > 0).astype(np.float64) @ (p == 0).T.astype(np.float64) > 0  # q lacks a class of p
    return np.where(lacking, np.inf, np.maximum((p * logs).sum(axis=1)[:, None] - p @ logs.T, 0.0))


MOST_PAIRS = 500_000
CHUNK = 16_384
CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairSummary:
    """Median, mean and maximum of a distance over pairs, of which `looked_at` of `pairs` were looked at.

    If that is all of them the figures are exact and the errors zero. Else, with 95 % confidence each: the mean is within
    `mean_error`, the median between `median_low` and `median_high` (order statistics, no assumption on the distances), and at
    most a share `unseen_above` of all pairs is above the `maximum`, which is only that of the sample.

    Args:
        pairs: How many pairs there are.
        looked_at: How many were looked at.
        median: Median distance.
        mean: Mean distance.
        maximum: Largest distance that was seen.
        mean_error: How far the mean may be off.
        median_low: Lower bound of the median.
        median_high: Upper bound of the median.
        unseen_above: The largest share of pairs that may lie above the maximum.
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
    """Summarise a distance over all pairs of rows: exactly, or over a random sample if there are very many.

    Args:
        counts: (N, F) class counts of groups or clients. Rows without samples are left out of distances of distributions.
        distance: As for `objective_z`.
        most_pairs: Look at no more pairs than that.
        random_state: The seed of the sample.

    Returns:
        Median, mean and maximum, with their errors where it is a sample.

    Raises:
        InputError: If the distance is unknown.
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
