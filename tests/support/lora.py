"""A model under LoRA (by PEFT) that processes of a deployment can import: a large frozen base, a small adapter."""

from __future__ import annotations

import math
import os

import torch
from torch import nn

ADAPTED = "tests.support.lora:adapted"
OTHER_BASE = "TESTS_OTHER_BASE"
"""In the environment of a machine whose pretrained weights are others."""
HIDDEN, RANK = 512, 2


def adapted(shape: tuple[int, ...] = (28, 28), classes: int = 62) -> nn.Module:
    """Two layers, each with an adapter of rank two."""
    import peft

    layers = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
    if os.environ.get(OTHER_BASE):
        with torch.no_grad():
            layers[1].weight.add_(1.0)  # type: ignore[operator]
    found: nn.Module = peft.get_peft_model(layers, peft.LoraConfig(r=RANK, target_modules=["1", "3"]))
    return found


def base_bytes(shape: tuple[int, ...] = (28, 28), classes: int = 62) -> int:
    """Of the frozen parameters."""
    return 4 * (math.prod(shape) * HIDDEN + HIDDEN + HIDDEN * classes + classes)


def adapter_bytes(shape: tuple[int, ...] = (28, 28), classes: int = 62) -> int:
    """Of what is trained."""
    return 4 * RANK * (math.prod(shape) + HIDDEN + HIDDEN + classes)
