"""Unbiased gradients (UGA; Yao, Huang, Zhang, Li, Sun 2019): a client hands on a gradient at the model it was handed.

    w_0 = w_in,   w_{t+1} = w_t - lr grad L(w_t; batch_t)   for the hop's T steps, as a function of w_in ("keep-trace")
    g = d L_k(w_T(w_in)) / d w_in = J_0 J_1 .. J_{T-1} grad L_k(w_T),   J_t = 1 - lr (Hessian of L(.; batch_t) at w_t)
    handed on:   w_in - step * g        so the mean of the clients' models is  w - step * sum_k p_k g_k

L_k at the end is over all the client's samples. The trace is not kept as a graph: the w_t are stored, and the product is
taken from the right by Hessian-vector products, which gives the same g with less memory (T models, and T batches). `trace =
n` goes through the last n steps only; `first_order = true` through none: g is then the gradient at w_T. It works on chains as
on single clients: the next one begins where this one's gradient leads. Momentum would make w_T another function, and is
refused.

With `first_order` and lr -> 0 it is one full gradient step of length `step` a hop. The server's other half, the
controllable meta step, is `fedgsp.server.Meta`; the two can be had apart. To tune: step over 0.03, 0.1, 0.3, lr over 0.003,
0.01, 0.03. Traffic as FedAvg; a hop takes about four times the computing (first_order: twice).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from fedgsp.client.derivatives import hessian_times, place
from fedgsp.client.rules import SGD, trained
from fedgsp.core.errors import InputError
from fedgsp.core.tensors import Tensors, clone

if TYPE_CHECKING:
    from fedgsp.client.context import LocalContext


@dataclass(frozen=True, kw_only=True)
class UGA(SGD):
    """SGD whose client hands on w_in - step * g, g being the gradient at w_in of the loss after the hop's steps.

    Args:
        step: Length of the step along the gradient that is handed on.
        first_order: Leave the trace out: the gradient is that after the hop's last step.
        trace: Go back through so many last steps only; None: through all.
    """

    kind: ClassVar[str] = "uga"

    step: float = 0.1
    first_order: bool = False
    trace: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.step) and self.step > 0):
            raise InputError(f"the local rule 'uga': step must be a positive number, not {self.step}.")
        if self.trace is not None and self.trace < 0:
            raise InputError(f"the local rule 'uga': trace must be at least 0 steps, not {self.trace}.")
        if self.momentum:
            raise InputError("the local rule 'uga' differentiates through plain steps, so momentum must be 0.")
        self.require_plain("the local rule 'uga' differentiates through plain steps")

    def begin(self, ctx: LocalContext) -> None:
        """Remember w_in, and begin the trace."""
        ctx.memo["handed"] = clone(trained(ctx.model))
        ctx.memo["trace"] = deque(maxlen=0 if self.first_order else self.trace)

    def objective(self, ctx: LocalContext, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The plain loss; what it takes to come back to this step is written down."""
        trace = ctx.memo["trace"]
        if trace.maxlen != 0:
            trace.append((clone(trained(ctx.model)), x, y, torch.get_rng_state()))
        return super().objective(ctx, x, y)

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        """Go back along the trace, then put w_in - step * g in place of the model."""
        buffers = clone(dict(ctx.model.named_buffers()))
        gradient = self._gradient_at_the_end(ctx)
        for weights, x, y, random in reversed(ctx.memo["trace"]):
            place(ctx, weights)
            torch.set_rng_state(random)
            bent = hessian_times(ctx, x, y, gradient)
            for name, value in gradient.items():
                gradient[name] = value - ctx.lr * (bent[name] + self.weight_decay * value)
        handed = ctx.memo["handed"]
        place(ctx, {name: handed[name] - self.step * value for name, value in gradient.items()})
        for name, buffer in ctx.model.named_buffers():
            buffer.copy_(buffers[name])  # the passes above were no training
        return super().finish(ctx)

    def _gradient_at_the_end(self, ctx: LocalContext) -> Tensors:
        """The gradient of the mean loss over all the client's samples, at w_T."""
        ctx.model.zero_grad(set_to_none=True)
        batches = list(ctx.batches())
        samples = max(1, sum(len(y) for _, y in batches))
        for x, y in batches:
            (ctx.task.loss(ctx.model(x), y).sum() / samples).backward()  # type: ignore[no-untyped-call]
        found = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() + self.weight_decay * p.detach()
            for name, p in ctx.model.named_parameters()
            if p.requires_grad
        }
        ctx.model.zero_grad(set_to_none=True)
        return found
