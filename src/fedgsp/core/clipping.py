"""Updates that are no longer than they may be: what a Gaussian mechanism adds noise to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

MARGIN = 1 - 2.0**-20
"""So much shorter than allowed an update is made: what is rounded afterwards is not longer than allowed either."""


def clipped(update: Tensors, norm: float) -> tuple[Tensors, float]:
    """(the update, cut to the length `norm`; how long it was). One that is not finite is cut to nothing.

    Args:
        update: Tensors by name, in float64.
        norm: The longest it may be, over all tensors together.
    """
    length = math.sqrt(sum(float(tensor.square().sum()) for tensor in update.values()))
    if not math.isfinite(length):
        return {name: torch.zeros_like(tensor) for name, tensor in update.items()}, math.inf
    factor = 1.0 if length <= norm * MARGIN else norm * MARGIN / length
    return {name: tensor * factor for name, tensor in update.items()}, length


def normal_like(tensors: Tensors, rng: np.random.Generator) -> Tensors:
    """Independent standard normal numbers in float64, tensor by tensor in the order of their names."""
    return {name: torch.from_numpy(rng.standard_normal(tuple(tensors[name].shape))) for name in sorted(tensors)}
