"""A module's state as named tensors, in and out, in place: one module serves every client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors


def load_tensors(model: nn.Module, tensors: Tensors) -> None:
    """Copy a model's state in place, so that one module serves every client."""
    with torch.no_grad():
        own = model.state_dict(keep_vars=True)
        if own.keys() != tensors.keys():
            raise ValueError(f"the model has other tensors than it was handed: {sorted(own.keys() ^ tensors.keys())}")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def model_tensors(model: nn.Module) -> Tensors:
    """A model's state as named tensors that share its memory."""
    return dict(model.state_dict())
