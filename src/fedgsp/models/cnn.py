"""The paper's convolutional network and a small one, both split into `features` and `classifier`."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from fedgsp.models.halved import PictureNet, outputs_of, refuse_tokens


class SplitNet(PictureNet):
    """A halved network for pictures, which starts as the authors' code does."""

    def __init__(self, features: nn.Module, classifier: nn.Module) -> None:
        super().__init__(features, classifier)
        self.apply(xavier)


def xavier(module: nn.Module) -> None:
    """Xavier-uniform weights and zero biases, as the authors' code starts."""
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.xavier_uniform_(module.weight)
        assert module.bias is not None
        nn.init.zeros_(module.bias)


def image_shape(shape: tuple[int, ...], least: int = 4) -> tuple[int, int, int]:
    """(channels, height, width) of a sample of shape (H, W) or (C, H, W) and at least so many pixels a side."""
    if len(shape) not in (2, 3):
        raise ValueError(f"it needs images of shape (H, W) or (C, H, W), and the samples have shape {shape}")
    channels, height, width = shape if len(shape) == 3 else (1, *shape)
    if height < least or width < least:
        raise ValueError(f"it needs images of at least {least} x {least} pixels, and the samples have shape {shape}")
    return channels, height, width


def leaf_cnn(
    shape: tuple[int, ...] = (28, 28), classes: int = 62, targets: tuple[int, ...] = (), vocabulary: int = 0
) -> nn.Module:
    """LEAF's FEMNIST network, which the paper trains: 6,603,710 parameters for 28x28 grey images and 62 classes.

    Args:
        shape: A sample's shape, (H, W) or (C, H, W), at least 4 x 4 pixels.
        classes: How many classes; 0 for regression.
        targets: The shape of one sample's label, for regression.
        vocabulary: How many tokens there are; such samples are refused.

    Returns:
        The network, with `features` and `classifier`.

    Raises:
        ValueError: If samples are no such images.
    """
    refuse_tokens(vocabulary)
    channels, height, width = image_shape(shape)
    features = nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
    )  # fmt: skip
    flat = 64 * (height // 4) * (width // 4)
    outputs = outputs_of(classes, targets)
    return SplitNet(features, nn.Sequential(nn.Flatten(), nn.Linear(flat, 2048), nn.ReLU(), nn.Linear(2048, outputs)))


class StandardisingNet(SplitNet):
    """A split network that sees each image with mean 0 and deviation 1.

    So polarity and contrast do not decide how fast a small net learns: FEMNIST's background is white (1.0), and without this
    small nets spend many rounds at the paper's learning rate undoing it. `standardises` says so to the compiled kernels.
    """

    standardises: ClassVar[float] = 0.01

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        """(x - mean) / (deviation + 0.01), image by image; a blank image becomes zero."""
        x = super().prepare(x)
        centred = x - x.mean(dim=(1, 2, 3), keepdim=True)
        return centred / (centred.square().mean(dim=(1, 2, 3), keepdim=True).sqrt() + self.standardises)


def small_cnn(
    shape: tuple[int, ...] = (28, 28), classes: int = 62, targets: tuple[int, ...] = (), vocabulary: int = 0
) -> nn.Module:
    """A network of some 12,000 parameters that learns handwriting in a minute on a laptop.

    Args:
        shape: A sample's shape, (H, W) or (C, H, W), at least 8 x 8 pixels.
        classes: How many classes; 0 for regression.
        targets: The shape of one sample's label, for regression.
        vocabulary: How many tokens there are; such samples are refused.

    Returns:
        The network, with `features` and `classifier`.

    Raises:
        ValueError: If samples are no such images.

    Example:
        >>> sum(p.numel() for p in small_cnn().parameters())
        12414
    """
    refuse_tokens(vocabulary)
    channels, height, width = image_shape(shape, 8)
    features = nn.Sequential(
        nn.Conv2d(channels, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(4),
    )  # fmt: skip
    flat = 16 * (height // 8) * (width // 8)
    return StandardisingNet(features, nn.Sequential(nn.Flatten(), nn.Linear(flat, outputs_of(classes, targets))))
