"""Unbiased gradients (UGA; Yao, Huang, Zhang, Li, Sun 2019): a client hands on a gradient at the model it was handed.

    w_0 = w_in,   w_{t+1} = w_t - lr grad L(w_t; batch_t)   for the visit's T steps, as a function of w_in ("keep-trace")
    g = d L_k(w_T(w_in)) / d w_in = J_0 J_1 .. J_{T-1} grad L_k(w_T),   J_t = 1 - lr (Hessian of L(.; batch_t) at w_t)
    handed on:   w_in - step * g        so the mean of the clients' models is  w - step * sum_k p_k g_k

L_k at the end is over all the client's samples. The trace is not kept as a graph: the w_t are stored, and the product is
taken from the right by Hessian-vector products, which gives the same g with less memory (T models, and T batches). `trace =
n` goes through the last n steps only; `first_order = true` through none: g is then the gradient at w_T. It works on chains as
on single clients: the next one begins where this one's gradient leads. Momentum would make w_T another function, and is
refused.

With `first_order` and lr -> 0 it is one full gradient step of length `step` a visit. The server's other half, the
controllable meta step, is `fedgsp.server.Meta`; the two can be had apart. To tune: step over 0.03, 0.1, 0.3, lr over 0.003,
0.01, 0.03. Traffic as FedAvg; a visit takes about four times the computing (first_order: twice).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch

from fedgsp.client.bending import hessian_times, place
from fedgsp.client.rules import SGD, Visit, trained
from fedgsp.core.errors import InputError
from fedgsp.core.tensors import Tensors, clone


@dataclass(frozen=True, kw_only=True)
class UGA(SGD):
    """SGD whose client hands on w_in - step * g, g being the gradient at w_in of the loss after the visit's steps."""

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

    def begin(self, visit: Visit) -> None:
        """Remember w_in, and begin the trace."""
        visit.memo["handed"] = clone(trained(visit.model))
        visit.memo["trace"] = deque(maxlen=0 if self.first_order else self.trace)

    def objective(self, visit: Visit, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The plain loss; what it takes to come back to this step is written down."""
        trace = visit.memo["trace"]
        if trace.maxlen != 0:
            trace.append((clone(trained(visit.model)), x, y, torch.get_rng_state()))
        return super().objective(visit, x, y)

    def finish(self, visit: Visit) -> dict[str, float]:
        """Go back along the trace, then put w_in - step * g in place of the model."""
        buffers = clone(dict(visit.model.named_buffers()))
        gradient = self._gradient_at_the_end(visit)
        for weights, x, y, random in reversed(visit.memo["trace"]):
            place(visit, weights)
            torch.set_rng_state(random)
            bent = hessian_times(visit, x, y, gradient)
            for name, value in gradient.items():
                gradient[name] = value - visit.lr * (bent[name] + self.weight_decay * value)
        handed = visit.memo["handed"]
        place(visit, {name: handed[name] - self.step * value for name, value in gradient.items()})
        for name, buffer in visit.model.named_buffers():
            buffer.copy_(buffers[name])  # the passes above were no training
        return super().finish(visit)

    def _gradient_at_the_end(self, visit: Visit) -> Tensors:
        """The gradient of the mean loss over all the client's samples, at w_T."""
        visit.model.zero_grad(set_to_none=True)
        batches = list(visit.batches())
        samples = max(1, sum(len(y) for _, y in batches))
        for x, y in batches:
            (visit.task.loss(visit.model(x), y).sum() / samples).backward()  # type: ignore[no-untyped-call]
        found = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() + self.weight_decay * p.detach()
            for name, p in visit.model.named_parameters()
            if p.requires_grad
        }
        visit.model.zero_grad(set_to_none=True)
        return found
