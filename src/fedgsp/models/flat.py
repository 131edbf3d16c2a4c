"""Networks for samples of any shape, whose numbers are taken one beside the other: tables, small pictures, time series."""

from __future__ import annotations

from math import prod

from torch import nn

from fedgsp.models.cnn import xavier
from fedgsp.models.halved import HalvedNet, outputs_of, refuse_tokens

HIDDEN = 200
"""McMahan et al. 2017 have two hidden layers of so many units ("2NN")."""


def linear(
    shape: tuple[int, ...] = (28, 28), classes: int = 10, targets: tuple[int, ...] = (), vocabulary: int = 0
) -> nn.Module:
    """Logistic regression, or linear regression: one layer, 7,850 parameters for 28x28 grey images and 10 classes.

    Args:
        shape: A sample's shape; its numbers are taken one beside the other.
        classes: How many classes; 0 for regression.
        targets: The shape of one sample's label, for regression.
        vocabulary: How many tokens there are; such samples are refused.

    Returns:
        The network, with `features` and `classifier`.

    Raises:
        ValueError: If the samples are tokens, or have a label at every position.

    Example:
        >>> sum(p.numel() for p in linear().parameters())
        7850
    """
    refuse_tokens(vocabulary)
    net = HalvedNet(nn.Flatten(), nn.Linear(prod(shape), outputs_of(classes, targets)))
    net.apply(xavier)
    return net


def mlp(shape: tuple[int, ...] = (28, 28), classes: int = 10, targets: tuple[int, ...] = (), vocabulary: int = 0) -> nn.Module:
    """Two hidden layers of 200 units (McMahan's 2NN): 199,210 parameters for 28x28 grey images and 10 classes.

    Args:
        shape: A sample's shape; its numbers are taken one beside the other.
        classes: How many classes; 0 for regression.
        targets: The shape of one sample's label, for regression.
        vocabulary: How many tokens there are; such samples are refused.

    Returns:
        The network, with `features` and `classifier`.

    Raises:
        ValueError: If the samples are tokens, or have a label at every position.

    Example:
        >>> sum(p.numel() for p in mlp().parameters())
        199210
    """
    refuse_tokens(vocabulary)
    features = nn.Sequential(
        nn.Flatten(), nn.Linear(prod(shape), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
    )  # fmt: skip
    net = HalvedNet(features, nn.Linear(HIDDEN, outputs_of(classes, targets)))
    net.apply(xavier)
    return net
