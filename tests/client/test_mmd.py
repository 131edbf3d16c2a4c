"""FedMMD: the statistic, two steps against plain NumPy, its limits and anchors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.client import MMD, SGD
from fedgsp.client.context import LocalContext
from fedgsp.client.mmd import VARIANCES, mmd_squared
from fedgsp.core.chain import Chain
from fedgsp.core.errors import InputError
from fedgsp.data.arrays import from_arrays
from fedgsp.models import classification, small_cnn
from tests.support.small_federations import bits, images, walk

Reals = NDArray[np.float64]


def test_the_oracle_of_the_specs() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    assert mmd_squared(x, y).item() == pytest.approx(7.1329928250, abs=1e-9)
    assert mmd_squared(x, x).item() == pytest.approx(0.0, abs=1e-12)
    assert len(VARIANCES) == 19


def statistic(x: Reals, y: Reals) -> float:
    """The same in plain loops."""

    def mean(a: Reals, b: Reals) -> float:
        return float(np.mean([sum(np.exp(-np.sum((u - v) ** 2) / (2 * s)) for s in VARIANCES) for u in a for v in b]))

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def numeric_gradient(f: Callable[[Reals], float], at: Reals) -> Reals:
    gradient = np.zeros_like(at)
    for index in np.ndindex(*at.shape):
        step = np.zeros_like(at)
        step[index] = 1e-6
        gradient[index] = (f(at + step) - f(at - step)) / 2e-6
    return gradient


def test_two_steps_against_numpy() -> None:
    x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    labels = np.array([0, 1, 1])
    data = from_arrays(x.astype(np.float32), labels, np.zeros(3, dtype=np.int64), classes=2, test_fraction=0.0)
    first = np.array([[0.3, -0.2], [0.1, 0.4]])

    def cross_entropy(w: Reals) -> float:
        logits = x @ w.T
        return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(3), labels]))

    def objective(w: Reals) -> float:
        return cross_entropy(w) + 0.7 * max(1e-4, statistic(x @ first.T, x @ w.T))

    one = first - 0.2 * numeric_gradient(cross_entropy, first)  # the streams are the same: the floor has no gradient
    two = one - 0.2 * numeric_gradient(objective, one)

    def model() -> nn.Module:
        made = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            made.weight.copy_(torch.tensor(first))
        return made

    tensors, hops = walk(MMD(lam=0.7, lr=0.2, batch_size=3, epochs=2), data, model, Chain((0,)))
    np.testing.assert_allclose(tensors["weight"].numpy(), two, atol=2e-5)
    plain = one - 0.2 * numeric_gradient(cross_entropy, one)
    assert np.abs(two - plain).max() > 1e-2, "the term must matter for this test to say anything"
    assert hops[0].metrics["loss"] == pytest.approx((cross_entropy(first) + cross_entropy(one)) / 2, abs=1e-5)


def _hop(model: nn.Module) -> LocalContext:
    return LocalContext(model, classification(), 1, 0, 0, 0.1, torch.device("cpu"), {}, {})


def test_below_the_floor_there_is_no_gradient_from_the_term() -> None:
    model = nn.Linear(2, 2, bias=False).double()
    ctx, rule = _hop(model), MMD(lam=3.0)
    rule.begin(ctx)
    with torch.no_grad():
        model.weight += 1e-7
    x, y = torch.randn(4, 2, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    objective, loss = rule.objective(ctx, x, y)
    assert 0 < mmd_squared(ctx.frozen_model("logits", "reference")(x), model(x)).item() < 1e-4
    assert (objective - loss).item() == pytest.approx(3e-4, rel=1e-9)
    assert torch.equal(*(torch.autograd.grad(value, model.weight, retain_graph=True)[0] for value in (objective, loss)))


def test_the_reference_is_in_evaluation_mode_and_frozen() -> None:
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 2)).train()
    ctx = _hop(model)
    MMD(lam=1.0).begin(ctx)
    frozen, x = ctx.frozen_model("logits", "reference"), torch.randn(3, 2)
    assert torch.equal(frozen(x), frozen(x))
    assert not any(p.requires_grad for p in frozen.parameters())
    assert model.training


def _cnn() -> nn.Module:
    return small_cnn((8, 8), 4)


def test_lam_zero_is_sgd_to_the_bit() -> None:
    data, start = images(2), dict(_cnn().state_dict())
    plain, _ = walk(SGD(lr=0.05), data, _cnn, Chain((0, 1)), start)
    same, _ = walk(MMD(lam=0.0, lr=0.05), data, _cnn, Chain((0, 1)), start)
    other, _ = walk(MMD(lam=0.5, lr=0.05), data, _cnn, Chain((0, 1)), start)
    assert bits(plain) == bits(same)
    assert bits(plain) != bits(other)


def test_a_single_batch_is_sgd_because_the_streams_have_not_parted() -> None:
    data, start = images(1), dict(_cnn().state_dict())
    plain, _ = walk(SGD(lr=0.05, batch_size=64), data, _cnn, Chain((0,)), start)
    same, _ = walk(MMD(lam=1.0, lr=0.05, batch_size=64), data, _cnn, Chain((0,)), start)
    for name, tensor in plain.items():
        torch.testing.assert_close(tensor, same[name], rtol=1e-6, atol=1e-7)


def test_anchors_differ_in_a_chain_and_the_global_one_is_counted() -> None:
    data, start = images(2), dict(_cnn().state_dict())
    handed, cheap = walk(MMD(lam=0.5, lr=0.05), data, _cnn, Chain((0, 1)), start)
    anchored, dear = walk(MMD(lam=0.5, lr=0.05, anchor="global"), data, _cnn, Chain((0, 1)), start)
    assert bits(handed) != bits(anchored)
    model_bytes = cheap[0].bytes_down
    assert [h.bytes_down for h in cheap] == [model_bytes, model_bytes]
    assert [h.bytes_down for h in dear] == [model_bytes, 2 * model_bytes]


def test_features_of_a_split_model_can_be_compared() -> None:
    data, start = images(2), dict(_cnn().state_dict())
    logits, _ = walk(MMD(lam=0.5, lr=0.05), data, _cnn, Chain((0,)), start)
    features, _ = walk(MMD(lam=0.5, lr=0.05, on="features"), data, _cnn, Chain((0,)), start)
    assert bits(logits) != bits(features)


def test_features_of_a_model_without_a_split_are_refused() -> None:
    data = images(2)
    with pytest.raises(InputError, match="'mmd' \\(on features\\) needs a model that says where its features end"):
        walk(MMD(on="features"), data, lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), Chain((0,)))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"lam": -1.0}, "lam must be a number of at least 0, not -1.0"),
        ({"on": "weights"}, "on must be 'logits' or 'features', not 'weights'"),
        ({"anchor": "x"}, "anchor must be 'handed' or 'global'"),
    ],
)
def test_wrong_parameters(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        MMD(**wrong)


@pytest.mark.parametrize(("apart", "least", "most"), [(1e-4, 3e-4, 0.1), (1e-2, 3e-6, 1e-3), (1.0, 0.0, 3e-6)])
def test_rounding_is_amplified_while_the_streams_are_close(apart: float, least: float, most: float) -> None:
    """The gradient's relative change when every logit moves by one unit in its last place, the worst of 100 batches."""
    draw, worst = torch.Generator().manual_seed(0), 0.0
    for _ in range(100):
        still = torch.randn(5, 62, generator=draw) * 3
        logits = still + torch.randn(5, 62, generator=draw) * apart
        moved = torch.nextafter(logits, logits + torch.randn(5, 62, generator=draw))
        slopes = []
        for at in (logits, moved):
            x = at.clone().requires_grad_()
            slopes.append(torch.autograd.grad(mmd_squared(still, x), x)[0])
        worst = max(worst, float((slopes[0] - slopes[1]).abs().max() / slopes[0].abs().max()))
    assert least <= worst <= most
