"""A module's state as named tensors, in and out, in place: one module serves every client.

Parameters that are frozen (`requires_grad` is False: a base model under PEFT's adapters) are no part of it. They never
change, so they are neither sent, summed nor written down: everyone has them from where the model comes from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors


def frozen_names(model: nn.Module) -> frozenset[str]:
    """The parameters that are not trained, beside others that are; none where nothing is trained at all."""
    if all(parameter.requires_grad for parameter in model.parameters()):
        return frozenset()
    named = list(model.named_parameters(remove_duplicate=False))
    frozen = frozenset(name for name, parameter in named if not parameter.requires_grad)
    return frozenset() if len(frozen) == len(named) else frozen


def frozen_tensors(model: nn.Module) -> Tensors:
    """The parameters that are not trained, beside others that are, sharing the model's memory."""
    still = frozen_names(model)
    return {name: tensor for name, tensor in model.state_dict().items() if name in still}


def load_tensors(model: nn.Module, tensors: Tensors) -> None:
    """Copy a model's state in place, so that one module serves every client; frozen parameters may be left out."""
    with torch.no_grad():
        own = model.state_dict(keep_vars=True)
        if own.keys() != tensors.keys():
            odd = own.keys() ^ tensors.keys()
            still = {name for name, tensor in own.items() if isinstance(tensor, nn.Parameter) and not tensor.requires_grad}
            if not odd <= still:
                raise ValueError(f"the model has other tensors than it was handed: {sorted(odd - still)}")
        for name, tensor in own.items():
            if name in tensors:
                tensor.copy_(tensors[name])


def model_tensors(model: nn.Module) -> Tensors:
    """A model's state as named tensors that share its memory, without what is frozen."""
    still = frozen_names(model)
    return {name: tensor for name, tensor in model.state_dict().items() if name not in still}
