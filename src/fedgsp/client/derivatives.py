"""Gradients and exact Hessian products of a batch's loss, for rules that differentiate through steps (UGA, Per-FedAvg)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedgsp.client.rules import trained

if TYPE_CHECKING:
    from fedgsp.client.context import LocalContext
    from fedgsp.core.tensors import Tensors


def gradient(ctx: LocalContext, x: torch.Tensor, y: torch.Tensor) -> Tensors:
    """The gradient of the batch's mean loss at the weights of the moment."""
    named = {name: p for name, p in ctx.model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(ctx.task.loss(ctx.model(x), y).mean(), list(named.values()), allow_unused=True)
    return {name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(named.items(), found, strict=True)}


def hessian_times(ctx: LocalContext, x: torch.Tensor, y: torch.Tensor, vector: Tensors) -> Tensors:
    """The Hessian of the batch's mean loss, at the weights of the moment, times `vector`: by differentiating twice."""
    named = {name: p for name, p in ctx.model.named_parameters() if p.requires_grad}
    loss = ctx.task.loss(ctx.model(x), y).mean()
    first = torch.autograd.grad(loss, list(named.values()), create_graph=True, allow_unused=True)
    bending = [(g, vector[name]) for name, g in zip(named, first, strict=True) if g is not None and g.requires_grad]
    if not bending:
        return {name: torch.zeros_like(p) for name, p in named.items()}
    gradients, along = zip(*bending, strict=True)
    second = torch.autograd.grad(gradients, list(named.values()), along, allow_unused=True)
    return {
        name: torch.zeros_like(p) if bent is None else bent.detach()
        for (name, p), bent in zip(named.items(), second, strict=True)
    }


def place(ctx: LocalContext, weights: Tensors) -> None:
    """Put other weights in place of the trained ones."""
    for name, parameter in trained(ctx.model).items():
        parameter.copy_(weights[name])
