"""A model that takes time and no CPU: while it trains, each batch sleeps."""

from __future__ import annotations

import time

import torch
from torch import nn

SECONDS = 0.05
HIDDEN = 8192
"""Weights of a quarter of a megabyte, which Ray puts into its object store: smaller ones go along in messages."""


class _Calm(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            time.sleep(SECONDS)
        found: torch.Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return found


def calm(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two layers, unhurried."""
    return _Calm(nn.Linear(shape[0], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
