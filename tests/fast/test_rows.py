"""Samples read by the kernels where they are kept: the same as when they are gathered by torch, and only where that is so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.client import SGD
from fedgsp.client.train import Trainer
from fedgsp.core.native import Library
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import digest
from fedgsp.data.arrays import from_arrays
from fedgsp.data.federated import FederatedData
from fedgsp.fast.build import library
from fedgsp.fast.fused import FusedNet
from fedgsp.fast.program import Inputs, program_of
from fedgsp.models import classification, leaf_cnn, small_cnn
from tests.support.hops import compiled, seeded, trained

pytestmark = pytest.mark.skipif(not isinstance(library(), Library), reason="there is no C compiler here")
RNG = np.random.default_rng(4)
BYTES = RNG.integers(0, 256, (33, 28, 28)).astype(np.uint8)
FLOATS = RNG.normal(size=(33, 28, 28)).astype(np.float32)


def federation(x: NDArray[Any], divisor: float = 1.0) -> FederatedData:
    made = from_arrays(x, RNG.integers(0, 10, len(x)), np.zeros(len(x), int), ["one"], classes=10, test_fraction=0)
    return replace(made, features=x, divisor=divisor)


def reads_rows(model: nn.Module, data: FederatedData) -> bool:
    rule = SGD()
    kernel = compiled(model, rule, data)
    return Trainer(model, rule, classification(), data, torch.device("cpu"), Seeds(1), kernel).reads_rows


class Shifted(nn.Module):
    """Does something of its own to the samples before its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.classifier = nn.Sequential(nn.Flatten()), nn.Sequential(nn.Linear(784, 10))

    def prepare(self, x: torch.Tensor) -> torch.Tensor:
        return x - 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.features(self.prepare(x)))
        return logits


@pytest.mark.parametrize("build", [lambda: leaf_cnn((28, 28), 10), lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10))])
@pytest.mark.parametrize(("x", "divisor"), [(BYTES, 255.0), (BYTES, 1.0), (FLOATS, 1.0), (FLOATS, 3.0)])
def test_the_same_bits_as_gathered(build: Any, x: NDArray[Any], divisor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, rule = seeded(build), federation(x, divisor), SGD(lr=0.01, batch_size=4, epochs=2)
    assert reads_rows(model, data)
    read, read_loss = trained(model, rule, data, compiled(model, rule, data))
    monkeypatch.setattr(FusedNet, "reads", lambda self, features, divisor: False)
    gathered, gathered_loss = trained(model, rule, data, compiled(model, rule, data))
    assert digest(read) == digest(gathered)
    assert read_loss == gathered_loss


def test_samples_are_standardised_as_the_model_does_it() -> None:
    model, data = seeded(lambda: small_cnn((28, 28), 10)), federation(BYTES, 255.0)
    kernel = compiled(model, SGD(), data)
    net = kernel.fused(model, torch.from_numpy(FLOATS[:1]), 5)
    assert net is not None
    blank = np.full((1, 28, 28), 7, np.uint8)
    assert net.reads(np.concatenate([BYTES, blank]), 255.0)
    rows = np.array([5, 0, 33, 5], dtype=np.int64)
    wanted = model.prepare(torch.from_numpy(np.concatenate([BYTES, blank])[rows]).float().div(255.0))  # type: ignore[operator]
    assert torch.allclose(net.read(rows), wanted.flatten(1), rtol=0, atol=2e-6)


def test_other_preparations_are_left_to_torch() -> None:
    example = torch.from_numpy(FLOATS[:2])
    assert program_of(small_cnn((28, 28), 10), example).inputs == Inputs(0.01)
    assert program_of(leaf_cnn((28, 28), 10), example).inputs == Inputs(None)
    assert program_of(Shifted(), example).inputs is None
    assert not reads_rows(Shifted(), federation(FLOATS))


def test_a_model_that_says_it_standardises_and_does_not_is_not_believed() -> None:
    class Boasting(Shifted):
        standardises = 0.01

    assert program_of(Boasting(), torch.from_numpy(FLOATS[:2])).inputs is None


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int8])
def test_other_kinds_of_numbers_are_gathered(kind: Any) -> None:
    assert not reads_rows(seeded(lambda: leaf_cnn((28, 28), 10)), federation(FLOATS.astype(kind)))


def test_samples_that_do_not_lie_one_after_the_other() -> None:
    model, rule = seeded(lambda: leaf_cnn((28, 28), 10)), SGD(lr=0.01)
    spread = np.repeat(FLOATS, 2, axis=0)[::2]
    labels = RNG.integers(0, 10, len(FLOATS))
    pair = [replace(federation(x), labels=labels) for x in (FLOATS, spread)]
    assert not pair[1].features.flags.c_contiguous
    (first, _), (second, _) = (trained(model, rule, data, compiled(model, rule, data)) for data in pair)
    assert digest(first) == digest(second)
