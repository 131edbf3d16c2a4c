"""FedProx (Li et al. 2018): a pull back to where the client began.

    h_k(w) = F_k(w) + mu/2 ||w - w_ref||^2,   so each step is   w <- w - lr (grad F_k(w; batch) + mu (w - w_ref))

w_ref is the model the client was handed, or the round's global one (`anchor`). The term goes into the gradient, not into the
reported loss. mu = 0 is plain SGD, to the bit. To tune: mu over 0.001, 0.01, 0.1, 0.5, 1; no value works for all, and with one
local epoch a large one only slows learning. Traffic as FedAvg; a client holds one more copy of the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedgsp.client.anchor import Anchored
from fedgsp.client.context import GradientTerm, LocalContext
from fedgsp.client.rules import SGD
from fedgsp.core.errors import InputError
from fedgsp.core.part import Values


@dataclass(frozen=True, kw_only=True)
class Prox(Anchored):
    """SGD with a proximal term of strength `mu`.

    Args:
        mu: Strength of the pull towards the reference.
    """

    kind: ClassVar[str] = "prox"
    tuned_over: ClassVar[Mapping[str, Values]] = {**SGD.tuned_over, "mu": (0.01, 0.1, 1)}

    mu: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.mu) and self.mu >= 0):
            raise InputError(f"the local rule 'prox': mu must be a number of at least 0, not {self.mu}.")

    def effective_steps(self, steps: int, lr: float) -> float:
        """As plain SGD's, but the pull takes back some of the way (FedNova's a_k for FedProx)."""
        velocity = distance = 0.0
        for step in range(steps):
            velocity = self.momentum * velocity + 1.0 - self.mu * lr * distance
            distance += velocity * self.step_factor(step, steps)
        return distance

    def gradient_term(self, ctx: LocalContext) -> GradientTerm | None:
        """mu (w - w_ref), the reference frozen before the first step."""
        if not self.mu:
            return None
        names = {name for name, p in ctx.model.named_parameters() if p.requires_grad}
        return GradientTerm(self.mu, {n: t for n, t in self.reference(ctx).items() if n in names})
