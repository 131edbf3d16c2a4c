from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fedgsp.models import leaf_cnn, small_cnn
from fedgsp.models.cnn import SplitNet


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def layers(model: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    return [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]


def test_the_papers_network_layer_by_layer() -> None:
    """By layers: 800+32 + 51,200+64 + 6,422,528+2,048 + 126,976+62."""
    model = leaf_cnn()
    assert [tuple(layer.weight.shape) for layer in layers(model)] == [(32, 1, 5, 5), (64, 32, 5, 5), (2048, 3136), (62, 2048)]
    assert count(model) == 6_603_710
    assert sum(p.numel() * p.element_size() for p in model.parameters()) == 26_414_840


def test_the_small_network_is_small() -> None:
    assert 9_000 <= count(small_cnn()) <= 15_000


@pytest.mark.parametrize("factory", [leaf_cnn, small_cnn])
def test_xavier_uniform_weights_and_zero_biases(factory: type) -> None:
    torch.manual_seed(0)
    for layer in layers(factory()):
        assert layer.bias is not None
        assert not layer.bias.any()
        receptive = math.prod(layer.weight.shape[2:])
        bound = math.sqrt(6 / ((layer.weight.shape[0] + layer.weight.shape[1]) * receptive))
        largest = layer.weight.abs().max().item()
        assert 0.9 * bound < largest <= bound
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)  # uniform, not normal


@pytest.mark.parametrize("factory", [leaf_cnn, small_cnn])
@pytest.mark.parametrize("shape", [(28, 28), (32, 20), (3, 32, 32), (1, 9, 30)])
def test_any_image_fits(factory: type, shape: tuple[int, ...]) -> None:
    assert factory(shape, 7)(torch.zeros(5, *shape)).shape == (5, 7)


def test_grey_images_may_come_with_or_without_a_channel() -> None:
    model, x = small_cnn(), torch.rand(4, 28, 28)
    assert torch.equal(model(x), model(x.unsqueeze(1)))


@pytest.mark.parametrize(
    ("factory", "shape", "told"),
    [
        (leaf_cnn, (784,), r"images of shape \(H, W\) or \(C, H, W\), and the samples have shape \(784,\)"),
        (small_cnn, (1, 1, 28, 28), "images of shape"),
        (leaf_cnn, (3, 28), "at least 4 x 4 pixels"),
        (small_cnn, (7, 28), "at least 8 x 8 pixels"),
    ],
)
def test_what_is_no_image_is_refused(factory: type, shape: tuple[int, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        factory(shape, 10)


def test_the_halves_are_where_rules_look_for_them() -> None:
    model = small_cnn()
    assert isinstance(model, SplitNet)
    x = torch.rand(2, 1, 28, 28)
    assert torch.equal(model(x), model.classifier(model.features(model.prepare(x))))


def test_the_small_network_does_not_mind_polarity_and_contrast() -> None:
    model, x = small_cnn(), torch.rand(4, 28, 28)
    assert torch.allclose(model(x), model(0.5 + 2 * x), atol=0.05)  # the same up to the 0.01 that guards blank images
    assert torch.isfinite(model(torch.ones(1, 28, 28))).all()
