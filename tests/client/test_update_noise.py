"""`update-noise`: what a client hands on is its clipped update and noise, whatever its local rule is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.client import SGD, Prox, UpdateNoise
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import clone
from fedgsp.methods import named
from fedgsp.models import classification
from fedgsp.models.state import model_tensors
from tests.support import tiny


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([3.0, 4.0]))
        self.still = nn.Parameter(torch.tensor([7.0]), requires_grad=False)
        self.register_buffer("mean", torch.tensor([5.0]))


def test_the_update_is_clipped_and_buffers_are_handed_on_as_they_came() -> None:
    """From (0, 0) to (3, 4) is 5 long: at a clip of 1, (0.6, 0.8)."""
    net = Net()
    handed = {"w": torch.zeros(2), "still": torch.tensor([7.0]), "mean": torch.tensor([1.0])}
    UpdateNoise(clip=1.0, noise=1e-9).hide(net, handed, lambda about: np.random.default_rng(0))
    assert net.w.tolist() == pytest.approx([0.6, 0.8], abs=1e-5)
    assert net.state_dict()["mean"].item() == 1.0


def test_the_noise_has_the_stated_deviation_and_its_own_source() -> None:
    net = nn.Linear(50, 40, bias=False)
    handed = {name: tensor.clone() for name, tensor in model_tensors(net).items()}
    asked: list[str] = []

    def source(about: str) -> np.random.Generator:
        asked.append(about)
        return Seeds(0).client_noise(1, 2, 0, about)

    UpdateNoise(clip=0.5, noise=3.0).hide(net, handed, source)
    assert float((net.weight - handed["weight"]).detach().std()) == pytest.approx(1.5, rel=0.06)
    assert len(asked[0]) == 64


def test_noise_of_a_site_follows_from_its_own_key() -> None:
    draws = {Seeds(seed, secret).client_noise(1, 2, 0, "0" * 64).standard_normal() for seed, secret in
             ((0, ()), (1, ()), (0, (1, 2)), (1, (1, 2)))}  # fmt: skip
    assert len(draws) == 3  # with a key the run's seed, which the server knows, plays no part


@pytest.mark.parametrize("rule", [SGD(lr=0.05, batch_size=3), Prox(lr=0.05, batch_size=3, mu=0.1)])
def test_a_whole_run_is_the_same_again_and_other_than_without(rule: SGD) -> None:
    method = tiny.chains(rule=replace(rule, privacy=UpdateNoise(clip=0.2, noise=0.5)))
    runs = [fedgsp.train(method, tiny.federation(), tiny.linear, rounds=2, workers=0, fast=fast) for fast in ("off", "off")]
    assert tiny.bits(runs[0].state.model) == tiny.bits(runs[1].state.model)
    without = fedgsp.train(tiny.chains(rule=rule), tiny.federation(), tiny.linear, rounds=2, workers=0, fast="off")
    assert tiny.bits(without.state.model) != tiny.bits(runs[0].state.model)


def test_the_kernel_is_proved_without_the_noise() -> None:
    """Steps that agree up to rounding would have wholly different noise."""
    from fedgsp.client.kernel_check import KernelCheck

    rule = SGD(privacy=UpdateNoise())
    model, data = tiny.linear(), tiny.federation()
    check = KernelCheck.of(model, rule, classification(), data, Seeds(0), clone(model_tensors(model)), {})
    assert check.rule.privacy is None


def test_rules_that_send_more_than_a_model_are_refused() -> None:
    method = named("scaffold")
    method = replace(method, local=replace(method.local, privacy=UpdateNoise()))
    with pytest.raises(InputError, match="sends more than its model"):
        fedgsp.train(method, tiny.federation(), tiny.linear, rounds=1, workers=0)


@pytest.mark.parametrize("wrong", [{"clip": 0.0}, {"noise": -1.0}, {"delta": 1.0}, {"budget": 0.0}])
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        UpdateNoise(**wrong)
