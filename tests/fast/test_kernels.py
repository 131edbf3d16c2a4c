"""The compiled kernels against ordinary PyTorch steps: the same weights up to rounding, the same bits every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fedgsp.client import SGD, Prox
from fedgsp.core.native import Library
from fedgsp.core.tensors import clone, digest
from fedgsp.data.arrays import from_arrays
from fedgsp.data.federated import FederatedData
from fedgsp.fast import Kernel
from fedgsp.fast.build import library
from fedgsp.models import leaf_cnn, small_cnn
from fedgsp.models.state import model_tensors
from tests.support.hops import compiled, seeded, trained

CLOSE = 1e-5
"""The issue's bound: the largest difference, relative to the largest change that the epoch made."""

pytestmark = pytest.mark.skipif(not isinstance(library(), Library), reason="there is no C compiler here")


def federation(shape: tuple[int, ...], samples: int, classes: int = 10, seed: int = 0) -> FederatedData:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, *shape)).astype(np.float32)
    return from_arrays(x, rng.integers(0, classes, samples), np.zeros(samples, int), ["one"], classes=classes, test_fraction=0)


def difference(model: nn.Module, rule: SGD, data: FederatedData) -> float:
    """The largest difference between the two paths after an epoch, relative to the largest change."""
    before = clone(model_tensors(model))
    plain, plain_loss = trained(model, rule, data, Kernel("plain", ""))
    fast, fast_loss = trained(model, rule, data, compiled(model, rule, data))
    assert fast_loss == pytest.approx(plain_loss, rel=1e-5)
    change = max(float((plain[name] - before[name]).abs().max()) for name in plain)
    return max(float((plain[name] - fast[name]).abs().max()) for name in plain) / change


class Functional(nn.Module):
    """Written with functions rather than modules, three colours, small kernels, no padding in one place."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.Conv2d(12, 20, 3)
        self.end = nn.Linear(20 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.one(x)), 2)
        x = torch.relu(functional.max_pool2d(self.two(x), 2))
        logits: torch.Tensor = self.end(torch.flatten(x, 1))
        return logits


def perceptron(*widths: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers[:-1]


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "leaf_cnn": (lambda: leaf_cnn((28, 28), 10), (28, 28)),
    "small_cnn": (lambda: small_cnn((28, 28), 10), (28, 28)),
    "small_cnn in colour": (lambda: small_cnn((3, 20, 24), 10), (3, 20, 24)),
    "functions": (Functional, (3, 20, 20)),
    "logistic": (lambda: nn.Linear(13, 10), (13,)),
    "mlp": (lambda: nn.Sequential(nn.Flatten(), *perceptron(30, 23, 17, 10)), (5, 6)),
    "conv without pool or relu": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, (3, 5), padding=(1, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(384, 10)
        ),
        (1, 10, 10),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_after_one_epoch_the_weights_are_those_of_plain_steps(name: str) -> None:
    build, shape = MODELS[name]
    assert difference(seeded(build), SGD(lr=0.01), federation(shape, 43)) <= CLOSE


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 10, 20, 64])
def test_any_batch_size_and_a_partial_last_batch(size: int) -> None:
    build, shape = MODELS["functions"]
    assert difference(seeded(build), SGD(lr=0.05, batch_size=size), federation(shape, 43)) <= CLOSE


@pytest.mark.parametrize(
    "rule",
    [
        SGD(lr=0.02, weight_decay=0.1),
        SGD(lr=0.02, epochs=3),
        Prox(lr=0.02, mu=0.5),
        Prox(lr=0.02, mu=0.5, weight_decay=0.01),
        Prox(lr=0.02, mu=0.0),
    ],
    ids=["decay", "three epochs", "prox", "prox and decay", "mu=0"],
)
@pytest.mark.parametrize("name", ["functions", "mlp", "small_cnn"])
def test_rules_whose_steps_it_knows(rule: SGD, name: str) -> None:
    build, shape = MODELS[name]
    assert difference(seeded(build), rule, federation(shape, 33)) <= CLOSE


def test_without_a_pull_prox_is_plain_sgd_to_the_bit() -> None:
    build, shape = MODELS["functions"]
    model, data = seeded(build), federation(shape, 21)
    pulled = trained(model, Prox(mu=0.0), data, compiled(model, Prox(mu=0.0), data))
    assert digest(pulled[0]) == digest(trained(model, SGD(), data, compiled(model, SGD(), data))[0])


@pytest.mark.parametrize("name", MODELS)
def test_the_bits_are_the_same_every_time(name: str) -> None:
    build, shape = MODELS[name]
    model, data = seeded(build), federation(shape, 17)
    kernel = compiled(model, SGD(), data)
    results = [digest(trained(model, SGD(), data, kernel)[0]) for _ in range(2)]
    assert results[0] == results[1]


@pytest.mark.parametrize("name", MODELS)
def test_outputs_do_not_depend_on_the_neighbours_in_a_batch(name: str) -> None:
    build, shape = MODELS[name]
    model, data = seeded(build), federation(shape, 23)
    x = torch.from_numpy(np.asarray(data.features))
    net = compiled(model, SGD(), data).fused(model, x[:2], 5)
    assert net is not None
    whole = net(x)
    assert torch.equal(whole, torch.cat([net(x[i : i + 1]) for i in range(len(x))]))
    with torch.inference_mode():
        assert torch.allclose(whole, model.eval()(x), atol=1e-5)


def test_a_model_that_diverges_is_found_out() -> None:
    from fedgsp.core.errors import Diverged

    build, shape = MODELS["functions"]
    model, data = seeded(build), federation(shape, 40)
    rule = SGD(lr=1e30)
    with pytest.raises(Diverged, match="not finite"):
        trained(model, rule, data, compiled(model, rule, data))


def test_dead_units_stay_as_they_are() -> None:
    """Rows whose gradient is zero for the whole batch are skipped: they must be exactly what they were."""
    first = nn.Linear(6, 40)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(40, 10))
    with torch.no_grad():
        first.bias[::2] = -1e3
    before = clone(model_tensors(model))
    after, _ = trained(model, SGD(lr=0.1), federation((6,), 20), compiled(model, SGD(), federation((6,), 20)))
    assert torch.equal(after["0.weight"][::2], before["0.weight"][::2])
    assert torch.equal(after["2.weight"][:, ::2], before["2.weight"][:, ::2])
    assert not torch.equal(after["0.weight"][1::2], before["0.weight"][1::2])


def test_ties_in_a_pool_go_to_the_first_as_in_torch() -> None:
    layers = (nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48, 10))
    model = nn.Sequential(*layers)
    data = federation((1, 8, 8), 12)
    flat = replace(data, features=np.ones_like(data.features))  # a blank sheet: all windows inside are full of ties
    assert difference(model, SGD(lr=0.01), flat) <= CLOSE


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[Any], tuple[int, ...]]:
    """Random small networks that the kernels know."""
    channels, size = draw(st.integers(1, 3)), draw(st.integers(6, 13))
    shape = (channels, size, size)
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(0, 2))):
        kernel, out = draw(st.integers(1, 3)), draw(st.integers(1, 20))
        padding = draw(st.integers(0, kernel - 1))
        layers.append(nn.Conv2d(channels, out, kernel, padding=padding, bias=draw(st.booleans())))
        channels, size = out, size + 2 * padding - kernel + 1
        if draw(st.booleans()):
            layers.append(nn.ReLU())
        pool = draw(st.integers(1, 3))
        if pool > 1 and size >= 2 * pool:
            layers.append(nn.MaxPool2d(pool))
            size //= pool
    layers.append(nn.Flatten())
    width = channels * size * size
    for _ in range(draw(st.integers(0, 2))):
        out = draw(st.integers(1, 30))
        layers += [nn.Linear(width, out, bias=draw(st.booleans())), nn.ReLU()]
        width = out
    return [*layers, nn.Linear(width, 4)], shape


@given(networks(), st.integers(1, 9), st.integers(1, 25), st.integers(0, 2**20))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_random_networks(made: tuple[list[Any], tuple[int, ...]], size: int, samples: int, seed: int) -> None:
    layers, shape = made
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(*layers)
        for module in model:
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                module.reset_parameters()
    assert difference(model, SGD(lr=0.01, batch_size=size), federation(shape, samples, 4, seed)) <= 10 * CLOSE
