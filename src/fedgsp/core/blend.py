"""The running mean of models, one after the other, in which each counts the same.

    m_1 = w_1,   m_k = m_(k-1) + (w_k - m_(k-1)) / k

in float64, rounded to a tensor's own type after every step: whoever has m_(k-1) and w_k gets the same bits, wherever the ones
before were trained. Whole numbers are rounded down; values that are not finite (a mask's) are taken as they come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors


def blended(mean: Tensors, model: Tensors, count: int) -> Tensors:
    """The mean after one more model.

    Args:
        mean: That of the `count` - 1 before.
        model: The next.
        count: How many it is of.

    Returns:
        Tensors of their own.
    """
    if count == 1:
        return {name: tensor.clone() for name, tensor in model.items()}
    return {name: _step(mean[name], tensor, count) for name, tensor in model.items()}


def _step(mean: torch.Tensor, tensor: torch.Tensor, count: int) -> torch.Tensor:
    if tensor.dtype == torch.bool:
        return tensor.clone()
    if not tensor.is_floating_point():
        return mean + torch.div(tensor - mean, count, rounding_mode="floor")
    before = mean.double()
    after = before + (tensor.double() - before) / count
    return torch.where(tensor.isfinite() & mean.isfinite(), after, tensor.double()).to(tensor.dtype)
