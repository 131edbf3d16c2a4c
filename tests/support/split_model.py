"""A tiny model whose features and classifier are told apart."""

from __future__ import annotations

import torch
from torch import nn

NET = "tests.support.split_model:net"
"""The name of `net` for sites that import it."""


class Net(nn.Module):
    """Four numbers as an image of one channel, two maps, three classes."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU())
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(8, classes))

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(len(x), 1, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.features(self.prepare(x)))
        return logits


def net(classes: int = 3) -> nn.Module:
    return Net(classes)
