"""ResNet-18 (He et al. 2016) with group norm in place of batch norm, as the field trains it on CIFAR.

Running means of batches do not survive averaging over skewed clients (Hsieh et al. 2020), so every norm is a GroupNorm of two
groups (Reddi et al. 2021). The stem is CIFAR's: a 3x3 convolution of stride 1 and no pooling.
"""

from __future__ import annotations

import torch
from torch import nn

from fedgsp.models.cnn import image_shape
from fedgsp.models.halved import PictureNet, outputs_of, refuse_tokens

GROUPS = 2
WIDTHS = (64, 128, 256, 512)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a way around them; the way is a 1x1 convolution where the shape changes."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.GroupNorm(GROUPS, outside), nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.GroupNorm(GROUPS, outside),
        )  # fmt: skip
        same = stride == 1 and inside == outside
        self.around = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.GroupNorm(GROUPS, outside))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """relu(way(x) + around(x))."""
        return torch.relu(self.way(x) + self.around(x))


def resnet18_gn(
    shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, targets: tuple[int, ...] = (), vocabulary: int = 0
) -> nn.Module:
    """ResNet-18 with GroupNorm, for CIFAR-like pictures: 11,173,962 parameters for 3x32x32 and 10 classes.

    Args:
        shape: A sample's shape, (H, W) or (C, H, W), at least 8 x 8 pixels.
        classes: How many classes; 0 for regression.
        targets: The shape of one sample's label, for regression.
        vocabulary: How many tokens there are; such samples are refused.

    Returns:
        The network, with `features` and `classifier`.

    Raises:
        ValueError: If samples are no such images.
    """
    refuse_tokens(vocabulary)
    channels, _, _ = image_shape(shape, 8)
    layers: list[nn.Module] = [
        nn.Conv2d(channels, WIDTHS[0], 3, 1, 1, bias=False), nn.GroupNorm(GROUPS, WIDTHS[0]), nn.ReLU()
    ]  # fmt: skip
    inside = WIDTHS[0]
    for stage, width in enumerate(WIDTHS):
        layers += [ResidualBlock(inside, width, 2 if stage else 1), ResidualBlock(width, width, 1)]
        inside = width
    features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return PictureNet(features, nn.Linear(WIDTHS[-1], outputs_of(classes, targets)))
