"""FedAvgM: by hand, and FedAvg to the bit where it must be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedgsp.core.errors import InputError
from fedgsp.core.state import Setting
from fedgsp.server import Mean, Momentum
from tests.support.small_federations import aggregate, bits, vector


def test_two_rounds_by_hand() -> None:
    rule = Momentum(lr=0.5, beta=0.9)
    state = rule.init(vector(1.0, dtype=torch.float64))
    state = aggregate(rule, state, [vector(2.0), vector(4.0)], [1, 1])  # Delta 2, m 2, w 2
    assert state.model["w"].item() == pytest.approx(2.0, abs=1e-12)
    state = aggregate(rule, state, [vector(1.0), vector(1.0)], [1, 1])  # Delta -1, m .8, w 2.4
    assert state.model["w"].item() == pytest.approx(2.4, abs=1e-12)


def test_without_momentum_and_with_step_one_it_is_fedavg_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(3)
    start = {"w": torch.randn(5000, generator=generator) * 1e-3}
    models = [{"w": torch.randn(5000, generator=generator)} for _ in range(3)]
    plain = aggregate(Mean(), Mean().init(start), models, [3, 7, 11])
    rule = Momentum(lr=1.0, beta=0.0)
    moved = aggregate(rule, rule.init(start), models, [3, 7, 11])
    assert bits(plain.model) == bits(moved.model)
    halved = Momentum(lr=0.5, beta=0.0)
    assert bits(plain.model) != bits(aggregate(halved, halved.init(start), models, [3, 7, 11]).model)


def test_buffers_are_averaged() -> None:
    rule = Momentum(lr=0.1)
    state = rule.init({"w": torch.zeros(1), "mean": torch.zeros(1)}, Setting(trained=frozenset({"w"})))
    found = aggregate(rule, state, [{"w": torch.ones(1), "mean": torch.ones(1)}], [1])
    assert found.model["mean"].item() == 1.0
    assert found.model["w"].item() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"lr": -1.0}, "'momentum': lr must be a positive number"),
        ({"beta": 1.0}, "'momentum': beta must be at least 0 and below 1"),
    ],
)
def test_wrong_parameters(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Momentum(**wrong)
