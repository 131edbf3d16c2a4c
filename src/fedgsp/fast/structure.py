"""What keeps a module from any fast path by the way it is built, whatever its numbers are."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize

from fedgsp.models.operations import hooks_of

GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")


def oddity(model: nn.Module) -> str | None:
    """Why the kernels would train another model than torch does, or None.

    Hooks, parametrizations and replaced methods act where no kernel calls them; shared or scattered parameters are memory that
    a kernel would read or write otherwise.
    """
    if any(getattr(torch_module, name, None) for name in GLOBAL_HOOKS):
        return "there is a hook on all modules"
    for name, module in model.named_modules():
        where = f"'{name}'" if name else "the model"
        if hooks_of(module):
            return f"{where} has a hook"
        if parametrize.is_parametrized(module):
            return f"{where} has a parametrization"
        if "forward" in vars(module):
            return f"the forward of {where} was replaced"
    return _odd_parameters(model)


def _odd_parameters(model: nn.Module) -> str | None:
    places: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return f"the parameter '{name}' has a hook on its gradient"
        if type(parameter) is not nn.Parameter or parameter.layout != torch.strided:
            return f"the parameter '{name}' is of a kind of its own"
        if not parameter.is_contiguous():
            return f"the parameter '{name}' does not lie in memory in its own order (channels_last, say)"
        place = parameter.untyped_storage().data_ptr()
        if place in places:
            return f"the parameters '{places[place]}' and '{name}' share their memory"
        if parameter.numel():
            places[place] = name
    return None
