"""Adam, AdamW, clipping and learning rates by step, against the same worked out here in numpy; and what refuses them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp import Method, from_arrays, named, train
from fedgsp.client import SGD, UGA, Cosine, PerFedAvg, Prox, Scaffold, Warmup
from fedgsp.client.kernel_choice import obstacles
from fedgsp.client.train import Trainer, load_tensors
from fedgsp.core.chain import Hop
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors
from fedgsp.models import classification, regression
from fedgsp.parts import decode, encode

SEED, ROWS = 4, 11


def samples() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 3)), rng.normal(size=ROWS) * 3


def trained(rule: SGD, round_: int = 1) -> NDArray[np.float32]:
    x, y = samples()
    data = from_arrays(x.astype(np.float32), y.astype(np.float32), np.zeros(ROWS, dtype=np.int64), classes=0, test_fraction=0)
    model = nn.Linear(3, 1, bias=False)
    begin: Tensors = {"weight": torch.tensor([[0.5, -1.0, 0.25]])}
    load_tensors(model, begin)
    Trainer(model, rule, regression(), data, torch.device("cpu"), Seeds(SEED)).train(round_, Hop(0, 0, 0), begin, {})
    return np.array(model.weight.detach().numpy()[0], dtype=np.float32)


def by_hand(rule: SGD, mu: float = 0.0) -> NDArray[np.float64]:
    """Linear regression step by step in float64."""
    x, y = samples()
    data = from_arrays(x.astype(np.float32), y.astype(np.float32), np.zeros(ROWS, dtype=np.int64), classes=0, test_fraction=0)
    rows = data.train[0]
    w = start = np.array([0.5, -1.0, 0.25])
    first, second, made = np.zeros(3), np.zeros(3), 0
    batches = []
    for epoch in range(rule.epochs):
        order = rows[np.random.default_rng([SEED, 3, 1, 0, 0, epoch]).permutation(ROWS)]
        batches += [order[at : at + rule.batch_size] for at in range(0, ROWS, rule.batch_size)]
    for batch in batches:
        grad = 2 * ((x[batch] @ w - y[batch])[:, None] * x[batch]).mean(axis=0) + mu * (w - start)
        length = math.sqrt((grad**2).sum())
        if rule.clip_norm and length > rule.clip_norm:
            grad = grad * rule.clip_norm / length
        done = (made - rule.warmup_steps) / max(1, len(batches) - rule.warmup_steps)
        later = {"steady": 1.0, "linear": 1 - done, "cosine": 0.5 + 0.5 * math.cos(math.pi * done)}[rule.step_schedule]
        lr = rule.lr * ((made + 1) / rule.warmup_steps if made < rule.warmup_steps else later)
        made += 1
        if rule.optim == "adamw":
            w = w - lr * rule.weight_decay * w
        else:
            grad = grad + rule.weight_decay * w
        if rule.optim == "sgd":
            w = w - lr * grad
            continue
        first = rule.beta1 * first + (1 - rule.beta1) * grad
        second = rule.beta2 * second + (1 - rule.beta2) * grad**2
        mean, square = first / (1 - rule.beta1**made), second / (1 - rule.beta2**made)
        w = w - lr * mean / (np.sqrt(square) + rule.eps)
    return w


@pytest.mark.parametrize(
    "rule",
    [
        SGD(lr=0.05, optim="adam", epochs=3),
        SGD(lr=0.05, optim="adam", epochs=2, weight_decay=0.2, beta1=0.5, beta2=0.9, eps=1e-3),
        SGD(lr=0.05, optim="adamw", epochs=2, weight_decay=0.2),
        SGD(lr=0.05, clip_norm=0.5, epochs=2),
        SGD(lr=0.05, clip_norm=0.5, optim="adam", step_schedule="linear"),
        SGD(lr=0.05, warmup_steps=3, epochs=2),
        SGD(lr=0.05, step_schedule="cosine", epochs=2, batch_size=4),
        SGD(lr=0.05, step_schedule="linear", warmup_steps=2, weight_decay=0.1, epochs=2),
        SGD(lr=0.05, warmup_steps=100),
    ],
)
def test_steps_are_those_of_the_textbook(rule: SGD) -> None:
    np.testing.assert_allclose(trained(rule), by_hand(rule), rtol=3e-5, atol=3e-6)


def test_what_a_rule_adds_to_gradients_is_clipped_with_them() -> None:
    rule = Prox(lr=0.1, mu=0.7, clip_norm=0.8, epochs=3)
    np.testing.assert_allclose(trained(rule), by_hand(rule, mu=0.7), rtol=3e-5, atol=3e-6)


def test_nothing_of_it_outlives_a_hop() -> None:
    rule = SGD(lr=0.05, optim="adam")
    once = trained(rule)
    assert np.array_equal(once, trained(rule))
    assert not np.array_equal(once, trained(replace(rule, epochs=2)))


def test_schedules_over_rounds() -> None:
    assert [Warmup(3).factor(r) for r in range(1, 6)] == pytest.approx([0.25, 0.5, 0.75, 1, 1])
    assert [Warmup(1, Cosine(2)).factor(r) for r in range(1, 5)] == pytest.approx([0.5, 1, 0.5, 0])
    with pytest.raises(InputError, match="warm-up needs rounds >= 1"):
        Warmup(0)
    half = trained(SGD(lr=0.1, schedule=Warmup(1)), round_=1)
    assert np.array_equal(half, trained(SGD(lr=0.05)))


def test_a_default_is_not_written_and_what_is_set_comes_back() -> None:
    assert not {"optim", "clip_norm", "beta1", "warmup_steps", "step_schedule"} & encode(SGD()).keys()
    rule = SGD(optim="adamw", clip_norm=1.0, step_schedule="cosine", warmup_steps=2, schedule=Warmup(2, Cosine(9)))
    assert decode("local", encode(rule), "here") == rule


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"optim": "adamm"}, "optim cannot be 'adamm'; did you mean 'adam'"),
        ({"optim": "adam", "momentum": 0.9}, "momentum is for sgd; adam has beta1"),
        ({"optim": "adam", "report_steps": True}, "report_steps needs sgd"),
        ({"beta2": 1.0}, "beta2 must be from 0 up to 1, not 1.0"),
        ({"eps": 0.0}, "eps must be positive"),
        ({"clip_norm": -1.0}, "clip_norm must not be negative"),
        ({"clip_norm": math.nan}, "clip_norm must be a finite number"),
        ({"warmup_steps": 1.5}, "warmup_steps must be a whole number"),
        ({"step_schedule": "steps"}, "step_schedule cannot be 'steps'"),
    ],
)
def test_what_cannot_be_used(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        SGD(**parameters)


@pytest.mark.parametrize("kind", [UGA, Scaffold])
@pytest.mark.parametrize("more", [{"optim": "adam"}, {"clip_norm": 1.0}, {"step_schedule": "linear"}, {"warmup_steps": 3}])
def test_rules_that_rest_on_plain_steps_say_so(kind: type[SGD], more: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"plain steps|the mean gradient off the way"):
        kind(**more)


def test_how_far_steps_lead_follows_the_schedule() -> None:
    assert SGD(step_schedule="linear").effective_steps(4, 0.1) == pytest.approx(1 + 0.75 + 0.5 + 0.25)
    assert SGD(warmup_steps=2, momentum=0.5).effective_steps(3, 0.1) == pytest.approx(0.5 + 1.5 + 1.75)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (SGD(optim="adam"), "clients step by adam"),
        (SGD(clip_norm=1.0), "clients clip their gradients"),
        (SGD(warmup_steps=1), "the learning rate changes from step to step"),
    ],
)
def test_the_kernels_decline_with_a_sentence(rule: SGD, why: str) -> None:
    assert obstacles(rule, classification()).any == why


def test_every_rule_trains_by_adam_but_those_that_say_no() -> None:
    x, y = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
    data = from_arrays(x, y, np.arange(60) % 4)
    for local in (Prox(optim="adam", lr=0.01), PerFedAvg(optim="adam", lr=0.01, clip_norm=1.0)):
        method: Method = replace(named("fedgsp"), local=local)
        assert train(method, data, "linear", rounds=1, workers=0).rounds == 1
