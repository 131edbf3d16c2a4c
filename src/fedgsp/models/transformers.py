"""Models of Hugging Face's transformers and PEFT as they are: tokens in, an output object out, whose logits are the outputs.

Nothing of these packages is imported: a model says by its class where it comes from. Hooks do what a training loop of theirs
would do, so names of tensors stay as they are: the attention mask follows from the padding token, the logits are picked.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

PACKAGES = ("transformers", "peft")


def understood(model: nn.Module) -> nn.Module:
    """A model that takes a batch and gives a tensor: one of transformers or PEFT gets two hooks, any other stays as it is."""
    ours = any(kind.__module__.partition(".")[0] in PACKAGES for kind in type(model).__mro__)
    if ours and _picked not in model._forward_hooks.values():
        model.register_forward_pre_hook(_masked, with_kwargs=True)
        model.register_forward_hook(_picked)
    return model


def _masked(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Tokens alone get the mask of those that are no padding."""
    padding = getattr(getattr(model, "config", None), "pad_token_id", None)
    if len(args) == 1 and not kwargs and padding is not None and _are_tokens(args[0]):
        return args, {"attention_mask": (args[0] != padding).long()}
    return args, kwargs


def _are_tokens(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() == 2 and not x.is_floating_point()


def _picked(model: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    """The logits of an output object."""
    logits = getattr(output, "logits", None)
    return logits if isinstance(logits, torch.Tensor) else output
