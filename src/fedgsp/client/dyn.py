"""FedDyn (Acar et al. 2021), the clients' half: a linear term that remembers the client's own pull.

    F_k(w) - <h_k, w> + alpha/2 ||w - w_in||^2,   so each step is   w <- w - lr (grad F_k(w; batch) - h_k + alpha (w - w_in))
    afterwards   h_k <- h_k - alpha (w_out - w_in)            (at a minimum of the objective, h_k is the gradient of F_k there)

w_in is the model that the client was handed. In a chain that is the one before it handed on, so what the clients of a chain
move adds up to w_end - w_round, which is all that the server (`fedgsp.server.DynServer`) needs to know. Neither term is in the
reported loss.

The method ends where the movements, -h_k / alpha, add up to 0: at the minimum of the plain mean of the clients' losses. With
the server's `weights = "samples"` a client's alpha is alpha times the mean number of samples over its own, and the method ends
at the minimum of the loss over all samples, as FedAvg's objective has it.

To tune: alpha over 0.001, 0.01, 0.1, and the learning rate. Traffic as FedAvg. A client keeps h_k, as large as the trained
parameters, and holds a copy of them while it trains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from fedgsp.client.context import GradientTerm, LocalContext
from fedgsp.client.rules import SGD, trained
from fedgsp.core.errors import InputError
from fedgsp.core.tensors import Tensors, clone

MEMORY = "memory."


@dataclass(frozen=True, kw_only=True)
class Dyn(SGD):
    """SGD on the dynamically regularised objective of strength `alpha`.

    Args:
        alpha: Strength of the regularisation.
    """

    kind: ClassVar[str] = "dyn"

    alpha: float = 0.01

    requires_server: ClassVar[str] = "dyn"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise InputError(f"the local rule 'dyn': alpha must be a positive number, not {self.alpha}.")

    def initial_client_state(self, model: nn.Module) -> Tensors:
        """h_k = 0."""
        return {MEMORY + name: torch.zeros_like(p) for name, p in trained(model).items()}

    def begin(self, ctx: LocalContext) -> None:
        """Remember w_in."""
        ctx.memo["handed"] = clone(trained(ctx.model))

    def gradient_term(self, ctx: LocalContext) -> GradientTerm:
        """alpha (w - w_in) - h_k, which is a pull towards w_in + h_k / alpha."""
        handed, alpha = ctx.memo["handed"], self._own_alpha(ctx)
        return GradientTerm(alpha, {name: w + ctx.state[MEMORY + name] / alpha for name, w in handed.items()})

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        """The new h_k."""
        handed, alpha = ctx.memo["handed"], self._own_alpha(ctx)
        ctx.state = {
            MEMORY + name: ctx.state[MEMORY + name] - alpha * (parameter - handed[name])
            for name, parameter in trained(ctx.model).items()
        }
        return super().finish(ctx)

    def _own_alpha(self, ctx: LocalContext) -> float:
        """Larger where the client counts less; a client without samples makes no step."""
        return self.alpha / (ctx.weight() or 1.0)
