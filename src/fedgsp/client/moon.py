"""MOON (Li, He, Song 2021): features are drawn to the global model's and pushed away from the client's own last ones.

    L = CE(w; x, y) + mu * con
    con = -log( e^{s(z, z_g) / tau} / (e^{s(z, z_g) / tau} + e^{s(z, z_p) / tau}) )       mean over the batch

z are the flattened features of the trained model, z_g those of the reference (the model that was handed over, or the round's:
`anchor`), z_p those of the client's model after its last hop, s the cosine. The reference and the last model are frozen and
in evaluation mode. The paper puts a projection head between features and classifier; here z is what the model's own
classifier sees. mu = 0 is plain SGD, to the bit, and keeps nothing; the term is not in the reported loss.

What a client's last model is on its first hop, the paper does not say (`first_visit`):

    "handed"       the reference, so that the term has no gradient and the first hop is plain SGD (default; FL-bench does so)
    "untrained"    as in the authors' code (QinbinLi/MOON, main.py, commit 8fcba3c): in round 1 there is no term; who comes for
                   the first time later is pushed away from initial weights of its own, drawn at random and never trained

With all clients in every round both are the same. "untrained" draws anew what the model draws when it is built; a model given
as an object is copied, not drawn.

The model must declare its split (`fedgsp.models.split`). To tune: mu over 0.1, 1, 5, 10; tau 0.5. Traffic as FedAvg; two more
forward passes of the extractor. A client keeps its last extractor (the classifier is not needed for z_p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional

from fedgsp.client.anchor import Anchored
from fedgsp.core.errors import InputError
from fedgsp.core.params import OMIT_DEFAULT
from fedgsp.models.split import FEATURES, BatchOutputs, Level, halves_of
from fedgsp.models.state import model_tensors

if TYPE_CHECKING:
    from fedgsp.client.context import LocalContext
    from fedgsp.core.tensors import Tensors

VISITED = "visited"
"""Beside the extractor in what a client keeps, where it matters: whether it was ever trained here."""


def contrast(z: torch.Tensor, near: torch.Tensor, far: torch.Tensor, tau: float) -> torch.Tensor:
    """Mean over the batch (b, d) of -log of the share that `near` has against `far`."""
    towards = functional.cosine_similarity(z, near) / tau
    away = functional.cosine_similarity(z, far) / tau
    return functional.softplus(away - towards).mean()


@dataclass(frozen=True, kw_only=True)
class Moon(Anchored):
    """SGD with `mu` times the contrast between the reference's features and the client's own last ones.

    Args:
        mu: Weight of the contrast; 0 is plain SGD.
        tau: Temperature of the contrast.
        first_visit: What a client's last model is on its first hop: the one it was handed, or one drawn at random.
    """

    kind: ClassVar[str] = "moon"

    mu: float = 1.0
    tau: float = 0.5
    first_visit: Literal["handed", "untrained"] = field(default="handed", metadata=OMIT_DEFAULT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.mu) and self.mu >= 0):
            raise InputError(f"the local rule 'moon': mu must be a number of at least 0, not {self.mu}.")
        if not (math.isfinite(self.tau) and self.tau > 0):
            raise InputError(f"the local rule 'moon': tau must be a positive number, not {self.tau}.")
        if self.first_visit not in ("handed", "untrained"):
            raise InputError(f"the local rule 'moon': first_visit must be 'handed' or 'untrained', not '{self.first_visit}'.")

    def wrap_model(self, model: nn.Module, example: torch.Tensor) -> nn.Module:
        """Nothing is added; only a model that declares its features will do."""
        halves_of(model, example, "the local rule 'moon'")
        return model

    def initial_client_state(self, model: nn.Module) -> Tensors:
        """The extractor after the last hop; before the first, the one that was handed over."""
        kept = {n: t for n, t in model_tensors(model).items() if n.startswith(FEATURES)} if self.mu else {}
        return {**kept, VISITED: torch.tensor(False)} if kept and self.first_visit == "untrained" else kept

    def begin(self, ctx: LocalContext) -> None:
        """Freeze the two extractors."""
        if self.mu:
            new = VISITED in ctx.state and not bool(ctx.state[VISITED])
            last = ctx.untrained() if new and ctx.round > 1 else ctx.state
            far = {name: tensor.to(ctx.device) for name, tensor in last.items() if name.startswith(FEATURES)}
            ctx.frozen = {"near": self.reference(ctx, FEATURES), "far": far}

    def looks_at(self) -> Level:
        """The features; nothing where the term has no weight."""
        return "features" if self.mu else "loss"

    def loss_term(self, ctx: LocalContext, seen: BatchOutputs, y: torch.Tensor) -> torch.Tensor:
        """mu con."""
        near, far = (seen.frozen[which].flatten(1) for which in ("near", "far"))
        return self.mu * contrast(seen.compared(), near, far, self.tau)

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        """Keep this extractor for the next hop."""
        ctx.state = self.initial_client_state(ctx.model)
        if VISITED in ctx.state:
            ctx.state[VISITED] = torch.tensor(True)
        return super().finish(ctx)
