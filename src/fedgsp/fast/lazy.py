"""Large linear layers whose SGD steps are put off: the fast path where nothing can be compiled.

A step of plain SGD changes a weight matrix by a matrix of low rank, W <- W - lr dY^T X, with X the layer's inputs and dY the
gradients of its outputs for one small batch. Making that change reads and writes the whole matrix, and so does the gradient
that autograd would store first. Here the factors of a few steps are kept instead and the products are corrected for them, which
is exact algebra:

    x W^T = x W0^T - lr (x X^T) dY          dy W = dy W0 - lr (dy dY^T) X

After `MOST_ROWS` rows of factors the change is made in one product. Only `nn.Linear` weights of at least `LARGE` numbers that a
model uses once a step are treated so; everything else goes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fedgsp.models.operations import in_mode, own_randomness

LARGE = 500_000
"""Weights from which a layer gains."""
MOST_ROWS = 40
"""Rows of factors (steps times batch size) that are kept before they are applied."""


class _Pending:
    """One layer's weight as it was, and the factors of the steps since."""

    def __init__(self, weight: torch.Tensor, lr: float) -> None:
        self.weight, self.lr = weight, lr
        self.inputs: list[torch.Tensor] = []
        self.slopes: list[torch.Tensor] = []
        self.rows = 0
        self.waiting = False

    def factors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All kept factors, one tensor each."""
        if len(self.inputs) > 1:
            self.inputs, self.slopes = [torch.cat(self.inputs)], [torch.cat(self.slopes)]
        return self.inputs[0], self.slopes[0]

    def push(self, x: torch.Tensor, slope: torch.Tensor) -> None:
        """Keep one step's factors; apply them all when there are many."""
        self.inputs.append(x)
        self.slopes.append(slope)
        self.rows += len(x)
        self.waiting = False
        if self.rows >= MOST_ROWS:
            self.apply()

    def apply(self) -> None:
        """Make the change."""
        if self.rows:
            x, slope = self.factors()
            with torch.no_grad():
                self.weight.addmm_(slope.T, x, alpha=-self.lr)
        self.inputs, self.slopes, self.rows = [], [], 0


class _Product(torch.autograd.Function):
    """x W^T with the steps that are put off taken into account; its backward is the step."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pending: _Pending) -> torch.Tensor:
        if pending.waiting:
            raise RuntimeError("a layer is used twice in one step; train with `fast='off'`")
        pending.waiting = True
        ctx.pending = pending
        ctx.save_for_backward(x)
        y = x @ pending.weight.T
        if pending.rows:
            kept, slopes = pending.factors()
            y.addmm_(x @ kept.T, slopes, alpha=-pending.lr)
        return y

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor | None, None]:
        (x,) = ctx.saved_tensors
        pending: _Pending = ctx.pending
        back = None
        if ctx.needs_input_grad[0]:
            back = slope @ pending.weight
            if pending.rows:
                kept, slopes = pending.factors()
                back.addmm_(slope @ slopes.T, kept, alpha=-pending.lr)
        pending.push(x.detach(), slope.detach())
        return back, None


def large_linears(model: nn.Module, example: torch.Tensor) -> tuple[str, ...]:
    """Names of the large linear layers with a weight of their own that run once, on flat inputs, in a forward pass."""
    counts = {id(p): 0 for p in model.parameters()}
    for _, parameter in model.named_parameters(remove_duplicate=False):
        counts[id(parameter)] += 1
    found = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and module.weight.numel() >= LARGE and module.weight.requires_grad
        and module.weight.dtype == torch.float32 and counts[id(module.weight)] == 1
    }  # fmt: skip
    calls: dict[str, int] = dict.fromkeys(found, 0)
    hooks = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            calls[name] += 1 if len(arguments) == 1 and arguments[0].dim() == 2 else 2

        return hook

    try:
        hooks = [module.register_forward_hook(watch(name)) for name, module in found.items()]
        kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with own_randomness(), torch.no_grad(), in_mode(model, training=True):
            model(torch.cat([example, example]))  # a batch norm cannot train on one sample
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(name for name, count in calls.items() if count == 1)


@contextmanager
def lazy_linears(model: nn.Module, names: tuple[str, ...], lr: float) -> Iterator[None]:
    """Put off the steps of these layers; on the way out the weights are what plain SGD would have made them."""
    modules = [module for name in names if isinstance(module := model.get_submodule(name), nn.Linear)]
    kept: list[_Pending] = []
    try:
        for module in modules:
            module.weight.requires_grad_(False)
            pending = _Pending(module.weight, lr)
            kept.append(pending)
            module.forward = _forward(module, pending)  # type: ignore[method-assign]
        yield
    finally:
        for module, pending in zip(modules, kept, strict=False):
            pending.apply()
            del module.forward
            pending.weight.requires_grad_(True)


def _forward(module: nn.Linear, pending: _Pending) -> Any:
    def forward(x: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled():
            pending.apply()
            return nn.functional.linear(x, module.weight, module.bias)
        y: torch.Tensor = _Product.apply(x if x.requires_grad else x.detach().requires_grad_(), pending)  # type: ignore[no-untyped-call]
        return y if module.bias is None else y + module.bias

    return forward
