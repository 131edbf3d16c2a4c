"""Dishonest clients, for simulations of what a server rule withstands. All others train by plain SGD.

    w_0 is the model that an attacker is handed, D = w - w_0 what honest training makes of it; it hands on
    attack-sign-flip         w_0 - scale D
    attack-scaled            w_0 + scale D               (model replacement, Bagdasaryan et al. 2020)
    attack-gaussian          w_0 + scale z,  z ~ N(0, 1) in every number
    attack-inner-product     w_0 - scale D, scale < 1    (Xie, Koyejo, Gupta, UAI 2019: small enough to hide)
    attack-label-flip        w, trained on labels C - 1 - y instead of y

The inner-product attack is meant for attackers who know the mean of all honest updates; here each takes its own for that. Only
trained tensors are attacked. In a chain an attacker spoils what the clients before it have learnt: all chains with an attacker
in them are dishonest. Random numbers come from `seed`, round and client. No site of a deployment runs these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from fedgsp.client.rules import SGD
from fedgsp.core.errors import InputError

if TYPE_CHECKING:
    from fedgsp.client.context import LocalContext
    from fedgsp.models.split import BatchOutputs, Level

HANDED = "handed"


@dataclass(frozen=True, kw_only=True)
class Attack(SGD):
    """SGD of honest clients; those that attack change what they hand on.

    Args:
        attackers: Numbers of the clients that attack, positions in the data's list of clients.
        scale: How strong the attack is.
    """

    allowed_at_sites: ClassVar[bool] = False

    attackers: tuple[int, ...] = ()
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (np.isfinite(self.scale) and self.scale >= 0):
            raise InputError(f"the local rule '{self.kind}': scale must be a number of at least 0, not {self.scale}.")
        if any(client < 0 for client in self.attackers):
            raise InputError(f"the local rule '{self.kind}': attackers are numbers of clients, from 0.")

    def attacks(self, ctx: LocalContext) -> bool:
        """Whether this client does."""
        return ctx.client in self.attackers

    def begin(self, ctx: LocalContext) -> None:
        """An attacker remembers what it was handed."""
        if self.attacks(ctx):
            ctx.memo[HANDED] = [p.detach().clone() for p in ctx.model.parameters() if p.requires_grad]

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        """An attacker hands on something else than it has trained; what it reports is that of honest training."""
        reported = super().finish(ctx)
        if self.attacks(ctx):
            trained = [p for p in ctx.model.parameters() if p.requires_grad]
            with torch.no_grad():
                for number, (parameter, handed) in enumerate(zip(trained, ctx.memo[HANDED], strict=True)):
                    parameter.copy_(self.instead(ctx, number, handed, parameter))
        return reported

    def instead(self, ctx: LocalContext, number: int, handed: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
        """What is handed on in place of the `trained` tensor, the `number`-th of the model."""
        return trained


@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    """Attackers go the opposite way."""

    kind: ClassVar[str] = "attack-sign-flip"

    def instead(self, ctx: LocalContext, number: int, handed: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
        """w_0 - scale D."""
        return handed - self.scale * (trained - handed)


@dataclass(frozen=True, kw_only=True)
class Scaled(Attack):
    """Attackers go the same way, but much further."""

    kind: ClassVar[str] = "attack-scaled"

    scale: float = 10.0

    def instead(self, ctx: LocalContext, number: int, handed: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
        """w_0 + scale D."""
        return handed + self.scale * (trained - handed)


@dataclass(frozen=True, kw_only=True)
class InnerProduct(SignFlip):
    """Attackers go a little of the opposite way, so that their updates look like others'."""

    kind: ClassVar[str] = "attack-inner-product"

    scale: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Gaussian(Attack):
    """Attackers hand on noise.

    Args:
        seed: What the noise is drawn from, with round and client.
    """

    kind: ClassVar[str] = "attack-gaussian"

    seed: int = 0

    def instead(self, ctx: LocalContext, number: int, handed: torch.Tensor, trained: torch.Tensor) -> torch.Tensor:
        """w_0 + scale z."""
        rng = np.random.default_rng([self.seed, ctx.round, ctx.client, ctx.number, number])
        noise = torch.from_numpy(rng.standard_normal(tuple(handed.shape), dtype=np.float32))
        return handed + self.scale * noise.to(handed)


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Attackers train on wrong labels: class C - 1 - y in place of y."""

    kind: ClassVar[str] = "attack-label-flip"

    def looks_at(self) -> Level:
        """At the logits, so that the kernels make these steps too."""
        return "logits"

    def loss_term(self, ctx: LocalContext, seen: BatchOutputs, y: torch.Tensor) -> torch.Tensor | None:
        """The loss of the wrong labels in place of that of the right ones."""
        if not self.attacks(ctx):
            return None
        wrong = seen.outputs.shape[1] - 1 - y
        return ctx.task.loss(seen.outputs, wrong).mean() - ctx.task.loss(seen.outputs, y).mean()
