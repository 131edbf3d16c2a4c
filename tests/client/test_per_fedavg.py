from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byhand import START, slope, trained
from rivals import pairs, walk, weight

import fedgsp
from fedgsp.client import SGD, PerFedAvg
from fedgsp.core.chain import Chain
from fedgsp.core.errors import InputError
from fedgsp.data.build import from_arrays
from fedgsp.method import Method
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.server import Mean


@pytest.mark.parametrize(("variant", "bends"), [("fo", False), ("hf", True)])
def test_a_step_on_paper(variant: str, bends: bool) -> None:
    """Samples alike: w~ = w - alpha s(w), v = s(w~); hf takes alpha 2 x^2 v off, which for a parabola is exact."""
    x, y, w, alpha, lr = 1.0, 2.0, 0.5, 0.1, 0.2
    v = slope(x, y, w - alpha * slope(x, y, w))
    wanted = w - lr * (v - (alpha * 2 * x * x * v if bends else 0.0))
    rule = PerFedAvg(lr=lr, alpha=alpha, variant=variant, batch_size=2)  # type: ignore[arg-type]
    after, hops = walk(rule, pairs([(x, y)] * 2), lambda: weight(w), Chain((0,)))
    assert after["weight"].item() == pytest.approx(wanted, abs=2e-4 if bends else 1e-6)
    assert hops[0].metrics["loss"] == pytest.approx((2.0 - (w - alpha * slope(x, y, w))) ** 2, rel=1e-5)


def test_a_batch_is_cut_in_halves_the_larger_first() -> None:
    """Three samples in a batch: D are the first two as they were drawn, D' the third; so one of three values comes out."""
    samples, w, alpha, lr = [(1.0, 2.0), (2.0, 2.0), (3.0, 1.0)], 0.5, 0.05, 0.1
    possible = []
    for last in range(3):
        inner = sum(slope(*samples[k], w) for k in range(3) if k != last) / 2
        possible.append(w - lr * slope(*samples[last], w - alpha * inner))
    after, _ = walk(PerFedAvg(lr=lr, alpha=alpha, batch_size=3), pairs(samples), lambda: weight(w), Chain((0,)))
    assert min(abs(after["weight"].item() - value) for value in possible) < 1e-6


def test_without_an_inner_step_it_is_fedavg_to_the_bit() -> None:
    ours, plain = (
        trained(rule, Mean(), rounds=3) for rule in (PerFedAvg(lr=0.05, alpha=0.0, batch_size=1), SGD(lr=0.05, batch_size=1))
    )
    assert ours == plain
    assert ours != START


def federation() -> fedgsp.FederatedData:
    """Three clients of four samples (x = 1, y = 1, 2 or 4), one of the four for testing."""
    owner = np.repeat(np.arange(3), 4)
    targets = np.array([1.0, 2.0, 4.0], dtype=np.float32)[owner]
    return from_arrays(np.ones((12, 1), dtype=np.float32), targets, owner, classes=0, test_fraction=0.25)


def method(**options: float) -> Method:
    rule = PerFedAvg(lr=0.01, alpha=0.1, batch_size=2, personal_steps=2)
    return Method(Grouped(Singletons(), Random(), kappa=1.0), replace(rule, **options), Mean())  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 2])
def test_every_client_is_judged_on_its_own_model(workers: int) -> None:
    """Two steps of length 0.1 on (w - y)^2 take w to y + (w - y) 0.8^2; LEAF weighs the three alike: all have four samples."""
    result = fedgsp.train(method(), federation(), lambda: weight(0.0), rounds=2, workers=workers)
    w = result.state.model["weight"].item()
    own = [y + (w - y) * 0.8**2 for y in (1.0, 2.0, 4.0)]
    losses = [(v - y) ** 2 for v, y in zip(own, (1.0, 2.0, 4.0), strict=True)]
    assert result.journal[-1]["loss"] == pytest.approx(sum(losses) / 3, rel=1e-5)
    assert result.journal[-1]["quantiles"]["loss"]["1"] == pytest.approx(max(losses), rel=1e-5)
    assert result.setup.config.method.yields == "personalised"


def test_evaluating_changes_nothing() -> None:
    often, seldom = (
        fedgsp.train(method(), federation(), lambda: weight(0.0), rounds=3, workers=0, eval_every=n) for n in (1, 3)
    )
    assert often.state.digest() == seldom.state.digest()
    assert often.journal[-1]["loss"] == seldom.journal[-1]["loss"]


def test_clients_held_out_learn_on_their_training_and_are_judged_on_their_test_samples() -> None:
    result = fedgsp.train(method(), federation(), lambda: weight(0.0), rounds=1, workers=0, holdout_clients=1)
    assert result.journal[-1]["holdout"]["samples"] == 1
    (client,) = result.setup.held_out
    y, w = (1.0, 2.0, 4.0)[client], result.state.model["weight"].item()
    assert result.journal[-1]["holdout"]["loss"] == pytest.approx(((w - y) * 0.8**2) ** 2, rel=1e-5)


def test_refusals() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"alpha": -1.0}, "alpha must be a number of at least 0"),
        ({"variant": "so"}, "variant must be 'fo' or 'hf'"),
        ({"delta": 0.0}, "delta must be a positive number"),
        ({"personal_steps": 0}, "personal_steps must be at least 1"),
    ]
    for options, sentence in wrong:
        with pytest.raises(InputError, match=sentence):
            PerFedAvg(**options)
