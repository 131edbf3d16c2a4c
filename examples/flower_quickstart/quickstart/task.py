"""Your own model and data: here clouds of points, with two of three classes on each client."""

from __future__ import annotations

import torch
from torch import nn

CLASSES = 3


class Net(nn.Module):
    """A small classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.layers(x)
        return logits


def load(client: int, samples: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's points and their classes."""
    random = torch.Generator().manual_seed(client)
    centres = torch.randn(CLASSES, 4, generator=torch.Generator().manual_seed(99)) * 3
    labels = (torch.randint(0, 2, (samples,), generator=random) + client) % CLASSES
    return centres[labels] + torch.randn(samples, 4, generator=random), labels
