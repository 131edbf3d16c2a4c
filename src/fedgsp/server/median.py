"""Robust means, coordinate by coordinate: the median and the trimmed mean (Yin, Chen, Ramchandran, Bartlett, ICML 2018).

    median           w_j <- the middle one of w_1j, ..., w_nj (for an even n the mean of the two in the middle)
    trimmed mean     w_j <- the mean of them without the b largest and the b smallest, b = floor(share n)

w_i is the model that chain i hands on, j a number of it. Every chain counts the same, whatever samples it announces.

Breakdown point: the median withstands less than half of the chains, the trimmed mean a `share` of them. A chain is as honest
as its worst client, so with chains of L clients a share of p dishonest clients reaches 1 - (1 - p)^L of the chains.
Cost: all n models of a round are kept on disk, and sorting takes O(n log n) for every number. Traffic as FedAvg.
Tuning: `share` should be the largest share of dishonest chains that is expected; what is cut off beyond that is honest work
lost, which hurts most where clients are unlike. Where `share` n is below 1, one value is cut at each side if there are three.
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
class Median(Combine):
    """The coordinate-wise median of the chains' models."""

    kind: ClassVar[str] = "median"

    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        """The middle value of every number."""
        return models.coordinatewise(middle)


@dataclass(frozen=True)
class TrimmedMean(Combine):
    """The mean of every number without the largest and the smallest values.

    Args:
        share: Which part of the chains is cut off at each side, 0 <= share < 0.5.
    """

    kind: ClassVar[str] = "trimmed-mean"

    share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise InputError(f"the server rule 'trimmed-mean': share must be at least 0 and below 0.5, not {self.share}.")

    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        """The mean of what is left between the cuts."""
        return models.coordinatewise(lambda values: trimmed(values, cut_of(len(models), self.share)))


def cut_of(models: int, share: float) -> int:
    """How many values are cut off at each side: the share, at least one of three or more, never all.

    Example:
        >>> cut_of(20, 0.1), cut_of(5, 0.1), cut_of(2, 0.1), cut_of(5, 0.0)
        (2, 1, 0, 0)
    """
    wanted = max(1, int(share * models)) if share > 0 else 0
    return min(wanted, (models - 1) // 2)


def middle(values: torch.Tensor) -> torch.Tensor:
    """The median of every column of (models, m); what is not a number counts as the largest."""
    return trimmed(values, (len(values) - 1) // 2)


def trimmed(values: torch.Tensor, cut: int) -> torch.Tensor:
    """The mean of every column without its `cut` largest and smallest; what is not a number counts as the largest."""
    ordered = values.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf).sort(dim=0).values
    return ordered[cut : len(ordered) - cut].mean(dim=0)
