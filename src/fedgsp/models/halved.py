"""What the networks that come with the package have in common: two halves, and how many numbers come out of them."""

from __future__ import annotations

from math import prod

import torch
from torch import nn


class HalvedNet(nn.Module):
    """A network in two halves, declared as `fedgsp.models.split` wants it, for rules that work on features."""

    def __init__(self, features: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.classifier = classifier

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        """What happens to a batch before the first half: nothing."""
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (batch, classes), or (batch, positions, classes) where every position has a label."""
        outputs: torch.Tensor = self.classifier(self.features(self.prepare(x)))
        return outputs


class PictureNet(HalvedNet):
    """A halved network for pictures."""

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        """Grey images may come without a channel axis."""
        return x.unsqueeze(1) if x.dim() == 3 else x


def outputs_of(classes: int, targets: tuple[int, ...]) -> int:
    """How many numbers a sample's answer has: one a class, or those of a regression's target.

    Args:
        classes: How many classes; 0 for regression.
        targets: The shape of one sample's label.

    Returns:
        The number of outputs.

    Raises:
        ValueError: If every position has a label of its own, which such a network cannot give.
    """
    if classes and targets:
        raise ValueError(f"it gives one answer a sample, and the labels have shape {targets} a sample")
    return classes or prod(targets)


def refuse_tokens(vocabulary: int) -> None:
    """Raise a ValueError where samples are tokens, which are names rather than sizes."""
    if vocabulary:
        raise ValueError("it needs numbers that mean sizes, and the samples are whole numbers of more than a byte (tokens)")
