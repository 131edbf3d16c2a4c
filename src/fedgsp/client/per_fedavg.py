"""Per-FedAvg (Fallah, Mokhtari, Ozdaglar 2020): a model that becomes good after a client's own step or two (MAML).

    minimised:  F_k(w) = f_k(w - alpha grad f_k(w))
    each mini-batch is cut into halves D (the larger) and D'; w~ = w - alpha grad f(w; D), v = grad f(w~; D')
    fo   w <- w - lr v                                                                   first order: the Hessian is left out
    hf   w <- w - lr (v - alpha H v),  H the Hessian of f(.; D) at w                     so this is the gradient of f(w~(w); D')

H v is exact, by differentiating twice (`fedgsp.client.derivatives`), with the dropout of the step to w~. The paper and 0.1.0
take differences of gradients over a length `delta`: on a ReLU net these step across kinks and can be off by any amount. `delta`
is still read, so that configurations of earlier runs are, and has no effect.

A batch of one sample is both D and D'. The reported training loss is that of w~ on D', after the step. What is handed on and
averaged is w, the common start; every client is EVALUATED ON A MODEL OF ITS OWN: w after `personal_steps` plain steps of
length alpha on mini-batches of its own training samples. So its figures are about personalised models, and are said to be
wherever they appear; clients held out are judged on their test samples only, after steps on their training samples. alpha = 0
with batches of one sample is FedAvg, to the bit.

To tune: alpha 0.003, 0.01, 0.03; lr 0.003, 0.01, 0.03, 0.1. Traffic as FedAvg; two gradients a step (fo), and a Hessian
product, as long as two more (hf), each on half a batch; an evaluation trains every client for `personal_steps` steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from fedgsp.client.derivatives import gradient, hessian_times, place
from fedgsp.client.rules import SGD, trained
from fedgsp.core.errors import InputError
from fedgsp.core.state import Yields
from fedgsp.core.tensors import Tensors, clone

if TYPE_CHECKING:
    from fedgsp.client.context import LocalContext


@dataclass(frozen=True, kw_only=True)
class PerFedAvg(SGD):
    """SGD on the loss after a step of length `alpha` of the client's own.

    Args:
        alpha: Length of the client's own step.
        variant: "fo", without the Hessian, or "hf", with it.
        delta: Read for the sake of earlier configurations; has no effect.
        personal_steps: Steps that a client makes on its own samples before it is evaluated.
    """

    kind: ClassVar[str] = "per-fedavg"

    alpha: float = 0.01
    variant: Literal["fo", "hf"] = "fo"
    delta: float = 1e-3
    personal_steps: int = 1

    yields: ClassVar[Yields] = "personalised"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise InputError(f"the local rule 'per-fedavg': alpha must be a number of at least 0, not {self.alpha}.")
        if self.variant not in ("fo", "hf"):
            raise InputError(f"the local rule 'per-fedavg': variant must be 'fo' or 'hf', not '{self.variant}'.")
        if not (math.isfinite(self.delta) and self.delta > 0):
            raise InputError(f"the local rule 'per-fedavg': delta must be a positive number, not {self.delta}.")
        if self.personal_steps < 1:
            raise InputError(f"the local rule 'per-fedavg': personal_steps must be at least 1, not {self.personal_steps}.")

    def objective(self, ctx: LocalContext, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Step to w~ on D; the loss is that of D' there."""
        cut = (len(y) + 1) // 2
        mine, other = (x[:cut], y[:cut]), ((x[cut:], y[cut:]) if len(y) > cut else (x[:cut], y[:cut]))
        ctx.memo.update(start=clone(trained(ctx.model)), mine=mine, random=torch.get_rng_state())
        _step(ctx, gradient(ctx, *mine), -self.alpha)
        loss = ctx.task.loss(ctx.model(other[0]), other[1]).mean()
        return loss, loss

    def adjust(self, ctx: LocalContext) -> None:
        """Back to w, with v (hf: less alpha times the Hessian along it) as its gradient."""
        start = ctx.memo["start"]
        place(ctx, start)
        if self.variant == "fo" or not self.alpha:
            return
        v = {name: p.grad.clone() for name, p in ctx.model.named_parameters() if p.grad is not None}
        along = {name: v.get(name, torch.zeros_like(p)) for name, p in trained(ctx.model).items()}
        buffers, random = clone(dict(ctx.model.named_buffers())), torch.get_rng_state()
        torch.set_rng_state(ctx.memo["random"])  # the same dropout as in the step to w~
        x, y = ctx.memo["mine"]
        bent = hessian_times(ctx, x, y, along)
        torch.set_rng_state(random)
        for name, buffer in ctx.model.named_buffers():
            buffer.copy_(buffers[name])  # the pass above was no training
        for name, parameter in ctx.model.named_parameters():
            if name in v:
                parameter.grad = v[name] - self.alpha * bent[name]

    def personalise(self, ctx: LocalContext, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """`personal_steps` plain steps of length alpha."""
        for x, y in islice(batches, self.personal_steps):
            _step(ctx, gradient(ctx, x, y), -self.alpha)


def _step(ctx: LocalContext, along: Tensors, length: float) -> None:
    for name, parameter in trained(ctx.model).items():
        if name in along:
            parameter.add_(along[name], alpha=length)
