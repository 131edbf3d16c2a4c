"""The two convolutional networks that come with the package, both split into `features` and `classifier`."""

from __future__ import annotations

import torch
from torch import nn


class SplitNet(nn.Module):
    """A network in two halves, so that rules which work on features (fusion, contrast) find them in one place."""

    def __init__(self, features: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.classifier = classifier
        self.apply(_xavier)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, classes); grey images may come without a channel axis."""
        if x.dim() == 3:
            x = x.unsqueeze(1)
        logits: torch.Tensor = self.classifier(self.features(x))
        return logits


def _xavier(module: nn.Module) -> None:
    """Xavier-uniform weights and zero biases, as the authors' code starts (SPECS 0.9)."""
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.xavier_uniform_(module.weight)
        assert module.bias is not None
        nn.init.zeros_(module.bias)


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, height, width) of a sample of shape (H, W) or (C, H, W)."""
    if len(shape) not in (2, 3):
        raise ValueError(f"it needs images of shape (H, W) or (C, H, W), and the samples have shape {shape}")
    channels, height, width = shape if len(shape) == 3 else (1, *shape)
    if height < 4 or width < 4:
        raise ValueError(f"it needs images of at least 4 x 4 pixels, and the samples have shape {shape}")
    return channels, height, width


def leaf_cnn(shape: tuple[int, ...] = (28, 28), classes: int = 62) -> nn.Module:
    """LEAF's FEMNIST network, which the paper trains: 6,603,710 parameters for 28x28 grey images and 62 classes."""
    channels, height, width = _image(shape)
    features = nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
    )  # fmt: skip
    flat = 64 * (height // 4) * (width // 4)
    return SplitNet(features, nn.Sequential(nn.Flatten(), nn.Linear(flat, 2048), nn.ReLU(), nn.Linear(2048, classes)))


class Standardise(nn.Module):
    """Each image to mean 0 and deviation 1, so that polarity and contrast do not decide how fast a small net learns.

    FEMNIST's background is white (1.0): without this, small nets spend many rounds at the paper's learning rate undoing it.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(x - mean) / (deviation + 0.01), image by image; a blank image becomes zero."""
        centred = x - x.mean(dim=(1, 2, 3), keepdim=True)
        return centred / (centred.square().mean(dim=(1, 2, 3), keepdim=True).sqrt() + 0.01)


def small_cnn(shape: tuple[int, ...] = (28, 28), classes: int = 62) -> nn.Module:
    """A network of some 12,000 parameters that learns handwriting in a minute on a laptop."""
    channels, height, width = _image(shape)
    if height < 8 or width < 8:
        raise ValueError(f"it needs images of at least 8 x 8 pixels, and the samples have shape {shape}")
    features = nn.Sequential(
        Standardise(),
        nn.Conv2d(channels, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(4),
    )  # fmt: skip
    return SplitNet(features, nn.Sequential(nn.Flatten(), nn.Linear(16 * (height // 8) * (width // 8), classes)))
