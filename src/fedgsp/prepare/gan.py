"""A small conditional GAN (Goodfellow et al. 2014; Mirza and Osindero 2014) of multi-layer perceptrons, for FAug.

    generator      (z in R^100, one-hot label) -> 256 -> 512 -> pixels in [-1, 1]        ReLU, tanh at the end
    discriminator  (pixels, one-hot label) -> 512 -> 256 -> real or made                 leaky ReLU

Trained side by side with Adam (2e-4, beta1 0.5) on batches of 64. All of it follows from the seed, with one math thread: the
same bits every time, which a resumed run relies on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from fedgsp.core.machine import one_math_thread
from fedgsp.core.tensors import total_bytes

LATENT = 100
LABEL_SCALE = 5.0
"""What the one-hot label is multiplied with: beside 100 normal numbers a plain 1 is not heard, and every label looks alike."""
BATCH = 64
DRAWN = 256
"""Samples drawn in one forward pass."""


@dataclass(frozen=True)
class Generator:
    """A trained generator, and what turns its outputs into samples again."""

    net: nn.Module
    classes: int
    low: float
    high: float
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """What it is on the wire."""
        return total_bytes(dict(self.net.state_dict()))

    def draw(self, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
        """One sample of each label (n, ...), in the type of the seeds."""
        made = np.empty((len(labels), *self.shape), dtype=self.dtype)
        with one_math_thread(), torch.inference_mode():
            for at in range(0, len(labels), DRAWN):
                part = torch.from_numpy(labels[at : at + DRAWN])
                noise = torch.from_numpy(rng.standard_normal((len(part), LATENT), dtype=np.float32))
                outputs = self.net(torch.cat([noise, _one_hot(part, self.classes)], dim=1)).numpy()
                values = (outputs.reshape(-1, *self.shape) + 1) / 2 * (self.high - self.low) + self.low
                made[at : at + DRAWN] = np.rint(values) if np.issubdtype(self.dtype, np.integer) else values
        return made


def train_gan(images: NDArray[Any], labels: NDArray[np.int64], classes: int, epochs: int, seed: int) -> Generator:
    """Train generator and discriminator on `images` (n, ...) with their `labels` (n,)."""
    low, high = float(images.min()), float(images.max())
    scaled = (images.reshape(len(images), -1).astype(np.float32) - low) / max(high - low, 1e-9) * 2 - 1
    x, y = torch.from_numpy(scaled.astype(np.float32)), _one_hot(torch.from_numpy(labels), classes)
    with one_math_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pixels = x.shape[1]
        maker = nn.Sequential(
            nn.Linear(LATENT + classes, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, pixels), nn.Tanh()
        )
        judge = nn.Sequential(
            nn.Linear(pixels + classes, 512), nn.LeakyReLU(0.2), nn.Linear(512, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)
        )
        steps = [torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (maker, judge)]
        for _ in range(epochs):
            order = torch.randperm(len(x))
            for at in range(0, len(x), BATCH):
                batch = order[at : at + BATCH]
                _one_batch(maker, judge, steps, x[batch], y[batch])
    return Generator(maker.eval().requires_grad_(False), classes, low, high, images.shape[1:], images.dtype)


def _one_batch(
    maker: nn.Module, judge: nn.Module, steps: list[torch.optim.Adam], x: torch.Tensor, y: torch.Tensor
) -> None:  # fmt: skip
    """The discriminator learns to tell real from made, then the generator to be taken for real."""
    made = maker(torch.cat([torch.randn(len(x), LATENT), y], dim=1))
    steps[1].zero_grad(set_to_none=True)
    real = functional.softplus(-judge(torch.cat([x, y], dim=1))).mean()
    fake = functional.softplus(judge(torch.cat([made.detach(), y], dim=1))).mean()
    (real + fake).backward()  # type: ignore[no-untyped-call]
    steps[1].step()
    steps[0].zero_grad(set_to_none=True)
    functional.softplus(-judge(torch.cat([made, y], dim=1))).mean().backward()  # type: ignore[no-untyped-call]
    steps[0].step()


def _one_hot(labels: torch.Tensor, classes: int) -> torch.Tensor:
    return functional.one_hot(labels, classes).float() * LABEL_SCALE
