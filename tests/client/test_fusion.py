"""FedFusion's client half: every operator by hand, what travels, the start as FedAvg, and models it cannot be used with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fedgsp.client import SGD, Fusion
from fedgsp.core.chain import Chain
from fedgsp.core.errors import InputError
from fedgsp.core.tensors import Tensors, clone
from fedgsp.models import leaf_cnn, small_cnn
from tests.support.small_federations import bits, images, pairs, walk


class Line(nn.Module):
    """out = c (a x): one weight in each half."""

    def __init__(self, a: float = 1.0, c: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Linear(1, 1, bias=False)
        self.classifier = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            self.features.weight.fill_(a)
            self.classifier.weight.fill_(c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.classifier(self.features(x))
        return out


SAMPLES = [(1.0, 2.0), (1.0, 2.0), (1.0, 2.0)]


def steps_of_blend(a: float, c: float, gamma: float, reference: float, lr: float) -> tuple[float, float, float]:
    """Three steps on (1, 2) with F = gamma a_ref x + (1 - gamma) a x, out = c F, loss (out - 2)^2."""
    for _ in range(3):
        fused = gamma * reference + (1 - gamma) * a
        slope = 2 * (c * fused - 2)
        a, c, gamma = (
            a - lr * slope * c * (1 - gamma),
            c - lr * slope * fused,
            gamma - lr * slope * c * (reference - a),
        )
    return a, c, gamma


@pytest.mark.parametrize("operator", ["multi", "single"])
def test_three_steps_of_gamma_by_hand(operator: Any) -> None:
    rule = Fusion(operator=operator, lr=0.1, batch_size=1)
    tensors, _ = walk(rule, pairs(SAMPLES), Line, Chain((0,)))
    a, c, gamma = steps_of_blend(1.0, 0.5, 0.0, 1.0, 0.1)
    assert tensors["features.weight"].item() == pytest.approx(a, abs=1e-5)
    assert tensors["classifier.weight"].item() == pytest.approx(c, abs=1e-5)
    assert tensors["fusion.gamma"].tolist() == pytest.approx([gamma], abs=1e-5)
    assert abs(gamma) > 0.01


def test_three_steps_of_the_convolution_by_hand() -> None:
    rule = Fusion(operator="conv", lr=0.1, batch_size=1)
    start = {
        "features.weight": torch.tensor([[1.0]]),
        "classifier.weight": torch.tensor([[0.5]]),
        "fusion.conv.weight": torch.tensor([[[0.6], [0.3]]]),
        "fusion.conv.bias": torch.tensor([0.1]),
    }
    tensors, _ = walk(rule, pairs(SAMPLES), Line, Chain((0,)), clone(start))
    a, c, local, other, bias = 1.0, 0.5, 0.6, 0.3, 0.1
    for _ in range(3):
        fused = local * a + other * 1.0 + bias
        slope = 2 * (c * fused - 2)
        a, c, local, other, bias = (
            a - 0.1 * slope * c * local,
            c - 0.1 * slope * fused,
            local - 0.1 * slope * c * a,
            other - 0.1 * slope * c * 1.0,
            bias - 0.1 * slope * c,
        )
    assert tensors["features.weight"].item() == pytest.approx(a, abs=1e-5)
    assert tensors["classifier.weight"].item() == pytest.approx(c, abs=1e-5)
    assert tensors["fusion.conv.weight"].flatten().tolist() == pytest.approx([local, other], abs=1e-5)
    assert tensors["fusion.conv.bias"].item() == pytest.approx(bias, abs=1e-5)


def test_in_a_chain_the_reference_is_the_handed_extractor_or_the_global_one() -> None:
    data = pairs(SAMPLES, SAMPLES)
    chain = Chain((0, 1))
    a, c, gamma = steps_of_blend(1.0, 0.5, 0.0, 1.0, 0.1)
    handed, cheap = walk(Fusion(operator="single", lr=0.1, batch_size=1), data, Line, chain)
    anchored, dear = walk(Fusion(operator="single", lr=0.1, batch_size=1, anchor="global"), data, Line, chain)
    assert handed["fusion.gamma"].item() == pytest.approx(steps_of_blend(a, c, gamma, a, 0.1)[2], abs=1e-5)
    assert anchored["fusion.gamma"].item() == pytest.approx(steps_of_blend(a, c, gamma, 1.0, 0.1)[2], abs=1e-5)
    assert [h.bytes_down for h in cheap] == [12, 12], "two weights and gamma, the reference is the handed model itself"
    assert [h.bytes_down for h in dear] == [12, 16], "and the global extractor's one weight for the second client"
    assert [h.bytes_up for h in dear] == [12, 12]


@pytest.mark.parametrize(("operator", "numbers"), [("conv", 128 * 64 + 64), ("multi", 64), ("single", 1)])
def test_only_the_operator_is_added_to_what_travels(operator: Any, numbers: int) -> None:
    model = leaf_cnn((28, 28), 62)
    before = sum(t.numel() for t in model.state_dict().values())
    equipped = Fusion(operator=operator).wrap_model(model, torch.zeros(1, 28, 28))
    assert sum(t.numel() for t in equipped.state_dict().values()) == before + numbers


def _cnn() -> nn.Module:
    return small_cnn((8, 8), 4)


@pytest.mark.parametrize("operator", ["multi", "single"])
def test_gamma_zero_is_fedavg_to_the_bit_for_the_model_itself(operator: Any) -> None:
    """At gamma = 0 outputs and gradients of the two halves are FedAvg's; one batch, because gamma moves in the second."""
    data = images(1)
    model = _cnn()
    start: Tensors = clone(dict(model.state_dict()))
    rule = Fusion(operator=operator, lr=0.05, batch_size=64)
    gamma = {"fusion.gamma": torch.zeros(16 if operator == "multi" else 1)}
    plain, _ = walk(SGD(lr=0.05, batch_size=64), data, _cnn, Chain((0,)), start)
    fused, _ = walk(rule, data, _cnn, Chain((0,)), {**start, **gamma})
    assert bits(plain) == bits({name: t for name, t in fused.items() if name != "fusion.gamma"})


def test_the_reference_is_no_part_of_the_state_and_gets_no_gradient() -> None:
    net = Fusion(operator="single").wrap_model(_cnn(), torch.zeros(1, 8, 8))
    names = set(net.state_dict())
    assert names == set(_cnn().state_dict()) | {"fusion.gamma"}
    net(torch.zeros(2, 8, 8)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_a_model_without_a_split_is_refused() -> None:
    with pytest.raises(InputError, match="'fusion' needs a model that says where its features end: give Sequential two"):
        Fusion().wrap_model(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), torch.zeros(1, 8, 8))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [({"operator": "sum"}, "operator must be conv, multi or single, not 'sum'"), ({"anchor": "me"}, "anchor must be")],
)
def test_wrong_parameters(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Fusion(**wrong)
