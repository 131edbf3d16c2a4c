"""Krum and Multi-Krum: the models nearest to their neighbours (Blanchard, El Mhamdi, Guerraoui, Stainer, NeurIPS 2017).

    s(i) = sum of || w_i - w_j ||^2 over the n - f - 2 models w_j that are nearest to w_i        f = floor(share n)
    w <- the mean of the `keep` models with the smallest s (Krum: one of them)

w_i is the model that chain i hands on. Distances are over the trained tensors. Ties go to the first in the plan.

Breakdown point: f chains of n, as long as n > 2 f + 2. With fewer chains f is taken as large as they allow.
Cost: all n models are kept on disk and compared pairwise: O(n^2) distances. Traffic as FedAvg.
Tuning: Krum throws away the work of all chains but one, which is costly where clients are unlike; Multi-Krum with keep = n -
f (`keep=0`, the default) keeps what looks honest. Both favour the majority: chains with rare classes look far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from fedgsp.core.errors import InputError
from fedgsp.server.combine import Combine, Models

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors


@dataclass(frozen=True)
class Krum(Combine):
    """The mean of the models that are nearest to their neighbours.

    Args:
        share: The largest share of dishonest chains that is expected, 0 <= share < 0.5.
        keep: How many models are averaged: 1 is Krum, 0 all but the expected dishonest ones (Multi-Krum).
    """

    kind: ClassVar[str] = "krum"

    share: float = 0.2
    keep: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise InputError(f"the server rule 'krum': share must be at least 0 and below 0.5, not {self.share}.")
        if self.keep < 0:
            raise InputError(f"the server rule 'krum': keep must be at least 0, not {self.keep}.")

    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        """The mean of the chosen models, each of them counting the same."""
        n, f = len(models), dishonest(len(models), self.share)
        scores = krum_scores(models.squared_distances(), f)
        chosen = torch.argsort(scores, stable=True)[: min(n, self.keep or n - f)]
        return models.mean(torch.zeros(n, dtype=torch.float64).index_fill_(0, chosen, 1.0))


def dishonest(models: int, share: float) -> int:
    """The f that so many models allow: floor(share n), with n > 2 f + 2.

    Example:
        >>> dishonest(20, 0.2), dishonest(5, 0.4), dishonest(2, 0.4)
        (4, 1, 0)
    """
    return max(0, min(int(share * models), (models - 3) // 2))


def krum_scores(distances: torch.Tensor, wrong: int) -> torch.Tensor:
    """The sum of squared distances of every model to its nearest n - f - 2, at least one where there is another."""
    n = len(distances)
    near = max(min(1, n - 1), n - wrong - 2)
    others = distances.clone().fill_diagonal_(-1.0).sort(dim=1).values[:, 1:]  # without itself
    return others[:, :near].sum(dim=1)
