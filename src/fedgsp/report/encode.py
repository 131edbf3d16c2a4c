"""Numbers made small for a page: columns of rounded numbers, and whole numbers as base64."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOTHING = 65535
"""What stands for "not judged" among scores."""

SCORE_STEPS = 50_000
"""A score of 1 as a whole number; larger values (losses) are cut at NOTHING - 1 of these steps."""


def packed(values: NDArray[Any]) -> dict[str, Any]:
    """Whole numbers that are not negative, in the smallest type that holds them, little-endian, as base64."""
    most = int(values.max(initial=0))
    size = 1 if most < 2**8 else 2 if most < 2**16 else 4
    return {"bytes": size, "data": base64.b64encode(values.astype(f"<u{size}").tobytes()).decode("ascii")}


def packed_scores(values: NDArray[np.float64]) -> dict[str, Any]:
    """Scores with NaN for clients that were not judged; `scale` turns them back."""
    top = float(np.nanmax(values, initial=1.0))
    scale = SCORE_STEPS / max(1.0, top)
    steps = np.where(np.isnan(values), NOTHING, np.round(np.nan_to_num(np.maximum(values, 0)) * scale)).astype(np.int64)
    return {**packed(np.append(steps, NOTHING)), "scale": scale}  # the appended one keeps the type at two bytes


def rounded(values: Iterable[float | int | None], digits: int = 5) -> list[float | int | None]:
    """Numbers with so many significant digits; what is not a finite number is null."""
    return [_shortened(value, digits) for value in values]


def _shortened(value: float | int | None, digits: int) -> float | int | None:
    if value is None or isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")
