"""How a number of the paper and one of ours are held against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedgsp.study.noise import Estimate, differences

HOLDS, DIRECTION, FAILS, UNCLEAR = "holds", "holds in direction, not in size", "does not hold here", "cannot be told apart here"
BY_CONSTRUCTION = "true by construction, so it is no finding"
ONE_SEED = " (one seed, so noise is not ruled out)"
CLOSE = 0.25
"""Within a quarter of the paper's number counts as the same size: data, seeds and rounds differ."""
POINTS = 0.05
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What was found here, of what (a model, a reading), and what that says of the claim."""

    scope: str
    ours: str
    verdict: str


ClaimCheck = Callable[[Facts], Sequence[Verdict]]


def of_size(paper: float, ours: float, half: float | None = None) -> str:
    """Same size, same direction, or neither; a value whose interval reaches across zero cannot be told from nothing."""
    if half is not None and abs(ours) <= half:
        return UNCLEAR
    if paper * ours <= 0:
        return FAILS
    return HOLDS if abs(ours - paper) <= CLOSE * abs(paper) else DIRECTION


def of_share(paper: float, ours: float, half: float | None = None) -> str:
    """The same for a saving, a share of 1: within five points, and what is left within a quarter of what the paper leaves.

    88 % less is not 93 % less: it leaves 1.7 times as much.
    """
    if half is not None and abs(ours) <= half:
        return UNCLEAR
    if paper * ours <= 0:
        return FAILS
    left = abs((1 - ours) - (1 - paper)) <= CLOSE * (1 - paper)
    return HOLDS if abs(ours - paper) <= POINTS and left else DIRECTION


def whether(true: bool) -> str:
    """Yes or no."""
    return HOLDS if true else FAILS


def against_rest(of: str, values: Mapping[str, Sequence[float]]) -> tuple[str, str]:
    """(who is above and below by more than the noise, the verdict on "`of` is the highest"): paired over seeds, corrected."""
    by_seed = {name: dict(enumerate(several)) for name, several in values.items()}
    ahead: list[str] = []
    behind: list[str] = []
    unclear: list[str] = []
    for gap in differences(by_seed, of):
        other = gap.second if gap.first == of else gap.first
        lead = gap.estimate.mean if gap.first == of else -gap.estimate.mean
        (unclear if not gap.clear else ahead if lead < 0 else behind).append(other)
    parts = {"above it": ahead, "below it": behind, "not told apart from it": unclear}
    said = "; ".join(f"{words}: {' / '.join(names)}" for words, names in parts.items() if names)
    return said, FAILS if ahead else UNCLEAR if unclear or not behind else HOLDS


def with_seeds(verdict: str, seeds: int) -> str:
    """A verdict that says so where one seed is all there is."""
    return verdict + ONE_SEED if seeds == 1 and verdict not in (UNCLEAR, BY_CONSTRUCTION) else verdict


def paired(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The difference of two lists of figures, seed by seed."""
    return Estimate.of([a - b for a, b in zip(first, second, strict=True)])


def points(gap: Estimate) -> str:
    """A gap in accuracy, in points."""
    half = "" if gap.half is None else f" ± {100 * gap.half:.1f}"
    return f"{100 * gap.mean:+.1f}{half} points"


def mean_percent(values: Sequence[float]) -> str:
    """A mean accuracy."""
    return f"{100 * fmean(values):.1f} %"
