"""Is a difference larger than the noise? Means over seeds with intervals, and differences paired over the same seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev

import numpy as np
from scipy.stats import t as student

CONFIDENCE = 0.95
MORE_SEEDS = "--seeds 3 or more"


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` seeds and the half-width of its 95 % interval (Student's t); None where one seed says nothing of it."""

    mean: float
    half: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """From a value for each seed."""
        n = len(values)
        if n < 2:
            return cls(fmean(values), None, n)
        return cls(fmean(values), float(student.ppf((1 + CONFIDENCE) / 2, n - 1)) * stdev(values) / n**0.5, n)


@dataclass(frozen=True)
class Difference:
    """`first` minus `second`, paired over the seeds that both have; `clear` if it is larger than the noise."""

    first: str
    second: str
    estimate: Estimate
    clear: bool


def differences(values: Mapping[str, Mapping[int, float]], of: str | None = None) -> list[Difference]:
    """Compare all pairs of names: a paired t-test over their common seeds, 5 % in all (Holm's correction).

    Args:
        values: Name -> seed -> value.
        of: Only the pairs with this name.

    Example:
        >>> ours = {0: 0.80, 1: 0.81, 2: 0.82}
        >>> (gap,) = differences({"a": ours, "b": {seed: value - 0.1 for seed, value in ours.items()}})
        >>> round(gap.estimate.mean, 3)
        0.1
    """
    found: list[tuple[str, str, Estimate, float]] = []
    for first, second in combinations(values, 2):
        if of is not None and of not in (first, second):
            continue
        seeds = sorted(values[first].keys() & values[second].keys())
        if not seeds:
            continue
        gaps = [values[first][seed] - values[second][seed] for seed in seeds]
        found.append((first, second, Estimate.of(gaps), _p_value(gaps)))
    clear = _holm([p for *_, p in found])
    return [Difference(first, second, gap, sure) for (first, second, gap, _), sure in zip(found, clear, strict=True)]


def tested(gaps: Mapping[str, Sequence[float]]) -> dict[str, tuple[Estimate, bool]]:
    """Differences that are at hand, a value for each seed: (their mean, whether it is larger than the noise), 5 % in all.

    Args:
        gaps: What is compared -> its difference for each seed.

    Example:
        >>> [clear for _, clear in tested({"a": [1.0, 1.1, 0.9, 1.0], "b": [0.1, -0.1, 0.1, 0.0]}).values()]
        [True, False]
    """
    clear = _holm([_p_value(several) for several in gaps.values()])
    return {name: (Estimate.of(several), sure) for (name, several), sure in zip(gaps.items(), clear, strict=True)}


def _p_value(gaps: Sequence[float]) -> float:
    """Two-sided; 1 where one seed cannot say."""
    if len(gaps) < 2:
        return 1.0
    error = stdev(gaps) / len(gaps) ** 0.5
    if error == 0:
        return 0.0 if fmean(gaps) else 1.0
    return float(2 * student.sf(abs(fmean(gaps)) / error, len(gaps) - 1))


def _holm(p_values: Sequence[float]) -> list[bool]:
    """Which hypotheses fall: the smallest p-value against 5 % / m, the next against 5 % / (m - 1), until one stands."""
    clear = [False] * len(p_values)
    for rank, at in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[at] > (1 - CONFIDENCE) / (len(p_values) - rank):
            break
        clear[at] = True
    return clear


def sentence(found: Sequence[Difference], what: str) -> str:
    """Which differences are larger than the noise, in a sentence that names the test."""
    if not found:
        return f"There is nothing to compare: no two methods have a {what} for the same seed."
    seeds = min(gap.estimate.n for gap in found)
    if seeds < 2:
        return f"With one seed it cannot be said which differences in {what} are larger than the noise; give {MORE_SEEDS}."
    test = f"paired over {seeds} seeds, Student's t, 5 % over these pairs by Holm's correction"
    clear = [_words(gap, what) for gap in found if gap.clear]
    if not clear:
        return f"No difference in {what} is larger than the noise ({test})."
    rest = len(found) - len(clear)
    others = "" if not rest else f" The other {rest} differences are not." if rest > 1 else " The other difference is not."
    return f"Larger than the noise ({test}): {'; '.join(clear)}.{others}"


def _words(gap: Difference, what: str) -> str:
    lower = gap.estimate.mean < 0
    high, low = (gap.second, gap.first) if lower else (gap.first, gap.second)
    scale, unit = (100, " points") if what == "accuracy" else (1, "")
    half = f" ± {scale * gap.estimate.half:.3g}" if gap.estimate.half is not None else ""
    return f"{high} over {low} by {scale * abs(gap.estimate.mean):.3g}{half}{unit}"
