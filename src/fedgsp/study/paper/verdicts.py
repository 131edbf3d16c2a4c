"""How a number of the paper and one of ours are held against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedgsp.study.noise import Estimate

HOLDS, DIRECTION, FAILS, UNCLEAR = "holds", "holds in direction, not in size", "does not hold here", "cannot be told apart here"
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


def of_size(paper: float, ours: float, half: float | None = None) -> str:
    """Same size, same direction, or neither; a value whose interval reaches across zero cannot be told from nothing."""
    if half is not None and abs(ours) <= half:
        return UNCLEAR
    if paper * ours <= 0:
        return FAILS
    return HOLDS if abs(ours - paper) <= CLOSE * abs(paper) else DIRECTION


def of_share(paper: float, ours: float) -> str:
    """The same for a saving, a share of 1: within five points counts as the same."""
    if paper * ours <= 0:
        return FAILS
    return HOLDS if abs(ours - paper) <= POINTS else DIRECTION


def whether(true: bool) -> str:
    """Yes or no."""
    return HOLDS if true else FAILS


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
