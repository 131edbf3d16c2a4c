"""FedMMD (Yao, Huang, Sun 2018): two streams, the trained model l and a frozen reference g, kept alike in what they put out.

    L = CE(l(X), y) + lam * max(1e-4, MMD^2(g(X), l(X)))           both streams see the same mini-batch X
    MMD^2(X, Y) = mean k(X, X) + mean k(Y, Y) - 2 mean k(X, Y)     (biased: diagonals included), clipped at 0
    k(x, y) = sum_i exp(-||x - y||^2 / (2 s_i))                    over the 19 variances of the authors' code

As in that code the outputs compared are the logits (`on="logits"`); `on="features"` compares the flattened features of a model
that declares its split. The floor 1e-4 is a constant, so while the streams hardly differ (always in a hop's first step)
there is no gradient from it. g is in evaluation mode and never gets a gradient; distances are computed from differences, the
form ||x||^2 + ||y||^2 - 2xy goes negative. lam = 0 is plain SGD, to the bit; the term is not in the reported loss. To tune: lam
over 0.01, 0.1, 1. Traffic as FedAvg; a third more computing; two models in memory. With batches of 5 the statistic is noisy.

It is also SENSITIVE: the narrowest kernel is 1e-3 wide (s = 1e-6), so while the streams are close, as in the first steps of
every hop, rounding of the logits is amplified. One unit in their last place changes the term's gradient by some 4e-3 of
itself where the streams are 1e-4 apart, by 6e-5 at 1e-2 and by less than 1e-6 at 1 (`tests/client/test_mmd.py`). So compiled
and plain steps, which round differently, may part by more than 1e-5 of the largest change, and so may other machines or
versions of torch. Where kernel and machine are the same a run repeats to the bit, as ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import nn

from fedgsp.client.anchor import Anchored
from fedgsp.client.rules import SGD
from fedgsp.core.errors import InputError
from fedgsp.core.part import Values
from fedgsp.models.split import BatchOutputs, Level, halves_of

if TYPE_CHECKING:
    from fedgsp.client.context import LocalContext

VARIANCES = (
    1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 100.0, 1e3, 1e4, 1e5, 1e6,
)  # fmt: skip
FLOOR = 1e-4


def mmd_squared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """MMD^2 of two samples (n, d) and (m, d), not clipped."""
    both = torch.cat([x, y])
    squared = (both[:, None] - both[None]).square().sum(dim=-1)
    factors = squared.new_tensor([-0.5 / variance for variance in VARIANCES])
    kernel = (squared * factors[:, None, None]).exp().sum(dim=0)
    n = len(x)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()


@dataclass(frozen=True, kw_only=True)
class MMD(Anchored):
    """SGD with `lam` times the discrepancy between the trained model's outputs and the reference's.

    Its kernels of 1e-3 width amplify rounding: compiled and plain steps may differ by more than 1e-5 of the largest change.

    Args:
        lam: Weight of the discrepancy; 0 is plain SGD.
        on: What is compared: the outputs, or the features of a model that declares its split.
    """

    kind: ClassVar[str] = "mmd"
    tuned_over: ClassVar[Mapping[str, Values]] = {**SGD.tuned_over, "lam": (0.01, 0.1, 1)}

    lam: float = 0.1
    on: Literal["logits", "features"] = "logits"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.lam) and self.lam >= 0):
            raise InputError(f"the local rule 'mmd': lam must be a number of at least 0, not {self.lam}.")
        if self.on not in ("logits", "features"):
            raise InputError(f"the local rule 'mmd': on must be 'logits' or 'features', not '{self.on}'.")

    def wrap_model(self, model: nn.Module, example: torch.Tensor) -> nn.Module:
        """Nothing is added; features can only be compared in a model that declares them."""
        if self.on == "features":
            halves_of(model, example, "the local rule 'mmd' (on features)")
        return model

    def begin(self, ctx: LocalContext) -> None:
        """Freeze the reference stream."""
        if self.lam:
            ctx.frozen["reference"] = self.reference(ctx)

    def looks_at(self) -> Level:
        """What is compared; nothing where the term has no weight."""
        return self.on if self.lam else "loss"

    def loss_term(self, ctx: LocalContext, seen: BatchOutputs, y: torch.Tensor) -> torch.Tensor:
        """lam max(1e-4, MMD^2)."""
        return self.lam * mmd_squared(seen.frozen["reference"].flatten(1), seen.compared()).clamp(min=FLOOR)
