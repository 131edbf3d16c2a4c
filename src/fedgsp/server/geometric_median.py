"""RFA: the geometric median of the models (Pillutla, Kakade, Harchaoui, IEEE Trans. Signal Processing 2022).

    w <- argmin_v sum_i a_i || v - w_i ||        by smoothed Weiszfeld steps:
    v_0 = median of every coordinate;   v <- sum_i b_i w_i / sum_i b_i,   b_i = a_i / max(nu, || v - w_i ||)

w_i is the model that chain i hands on, a_i its weight: 1 ("uniform") or its samples ("samples", as in the paper: then whoever
announces many samples counts more). Norms are over the trained tensors. The authors start at the mean; the coordinate-wise
median is a start that no minority can move. What nobody trains becomes its coordinate-wise median.

Breakdown point: less than half of the weight. A model counts by the inverse of its distance, so however far it is, it pulls
no more than one that is near.
Cost: all models are kept on disk and read once a step. Traffic as FedAvg.
Tuning: three to five steps are enough; `nu` only guards against a division by zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from fedgsp.core.errors import InputError
from fedgsp.server.checks import require_positive
from fedgsp.server.combine import Combine, Models
from fedgsp.server.median import middle

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors


@dataclass(frozen=True)
class GeometricMedian(Combine):
    """The point with the smallest sum of distances to the chains' models.

    Args:
        steps: How many Weiszfeld steps are made, at least 1.
        nu: The smallest distance that counts.
        weights: What a chain counts: the same as any ("uniform") or its samples ("samples").
    """

    kind: ClassVar[str] = "geometric-median"

    steps: int = 4
    nu: float = 1e-6
    weights: Literal["uniform", "samples"] = "uniform"

    def __post_init__(self) -> None:
        require_positive("geometric-median", "steps", self.steps)
        require_positive("geometric-median", "nu", self.nu)
        if self.weights not in ("uniform", "samples"):
            raise InputError(
                f"the server rule 'geometric-median': weights must be 'uniform' or 'samples', not '{self.weights}'."
            )

    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        """Weiszfeld's steps from the coordinate-wise median."""
        own = weights if self.weights == "samples" else torch.ones_like(weights)
        median = models.coordinatewise(middle)
        point = median
        for _ in range(self.steps):
            pull = own / models.squared_distances(point).sqrt().clamp_min(self.nu)
            point = models.mean(pull)
        return {name: point[name] if name in models.trained else median[name] for name in point}
