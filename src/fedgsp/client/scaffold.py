"""SCAFFOLD (Karimireddy et al. 2020), the clients' half: steps corrected by control variates.

    w <- w - lr (grad F_k(w; batch) - c_k + c)                  c_k: the client's own, c: the server's, sent with the model
    c_k' = c_k + Delta_k,   Delta_k = (w_in - w_out) / (T lr) - c      (option II; T: the STEPS of the hop)
    sent up: w_out and Delta_k;   the server (`fedgsp.server.ScaffoldServer`):  c <- c + (1/K) sum_k Delta_k

so c stays the mean of all clients' c_k. w_in is the model that the client was handed: on a single client the round's, in a
chain the one before it handed on, which leaves both formulas as they are; the server gets the sum of Delta_k over the chain.
(w_in - w_out) / (T lr) is the mean gradient only for plain steps, so momentum is refused. With one client c = c_k, and it is
FedAvg, to the bit. The correction is not in the reported loss.

The method ends where c is 0: at the minimum of the plain mean of the clients' losses. With the server's `weights = "samples"`
Delta_k is sent times the client's samples over the mean number of them; then c is the mean by samples, and the method ends at
the minimum of the loss over all samples, as FedAvg's objective has it.

To tune: the learning rate (0.003, 0.01, 0.03, 0.1). Traffic: c down and Delta_k up beside the model, so twice FedAvg's. A
client keeps c_k, as large as the trained parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from fedgsp.client.context import GradientTerm, LocalContext
from fedgsp.client.rules import SGD, trained
from fedgsp.core.errors import InputError
from fedgsp.core.tensors import Tensors, clone

CONTROL = "control."
"""What the names of c, c_k and Delta_k begin with; then the parameter's own name."""


@dataclass(frozen=True, kw_only=True)
class Scaffold(SGD):
    """SGD whose every step is corrected by c - c_k."""

    kind: ClassVar[str] = "scaffold"

    requires_server: ClassVar[str] = "scaffold"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum:
            raise InputError("the local rule 'scaffold' reads the mean gradient off the way it went, so momentum must be 0.")
        self.require_plain("the local rule 'scaffold' reads the mean gradient off the way it went")

    def initial_client_state(self, model: nn.Module) -> Tensors:
        """c_k = 0."""
        return {CONTROL + name: torch.zeros_like(p) for name, p in trained(model).items()}

    def upload_spec(self, model: nn.Module) -> Tensors:
        """Delta_k."""
        return self.initial_client_state(model)

    def begin(self, ctx: LocalContext) -> None:
        """Remember w_in and c."""
        ctx.memo["handed"] = clone(trained(ctx.model))
        ctx.memo["control"] = {name: ctx.shared[name].to(ctx.device) for name in ctx.state}

    def gradient_term(self, ctx: LocalContext) -> GradientTerm:
        """c - c_k, which is the same for the whole hop."""
        control = ctx.memo["control"]
        return GradientTerm(0.0, {}, {name.removeprefix(CONTROL): control[name] - own for name, own in ctx.state.items()})

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        """The new c_k, and Delta_k for the server; a client without samples made no step and changes neither."""
        after, delta = trained(ctx.model), {}
        for name, own in ctx.state.items():
            if ctx.steps:
                key = name.removeprefix(CONTROL)
                way = (ctx.memo["handed"][key] - after[key]) / (ctx.steps * ctx.lr)
                delta[name] = way - ctx.memo["control"][name]
            else:
                delta[name] = torch.zeros_like(own)
        weighs = ctx.weight()
        ctx.sent = delta if weighs == 1 else {name: change * weighs for name, change in delta.items()}
        ctx.state = {name: own + delta[name] for name, own in ctx.state.items()}
        return super().finish(ctx)
