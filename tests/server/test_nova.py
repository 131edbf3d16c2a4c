from __future__ import annotations

import pytest
import torch

from fedgsp.client import SGD, Prox
from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.state import Setting
from fedgsp.server import Mean, Nova
from tests.support.hand_computed import START, THREE, slope, trained
from tests.support.small_federations import aggregate, bits, vector


def test_a_step_on_paper() -> None:
    """w = 1; models 2 and 5 after 1 and 4 steps, p = 1/4 and 3/4: (1/4 + 3) (1/4 * 1/1 + 3/4 * 4/4) = 3.25 more."""
    rule = Nova()
    state = rule.init(vector(1.0), Setting(clients=2))
    after = aggregate(rule, state, [vector(2.0), vector(5.0)], [1, 3], steps=[1.0, 4.0])
    assert after.model["w"].item() == pytest.approx(4.25)


def test_rounds_against_the_algorithm_written_out() -> None:
    lr, w = 0.05, START
    for _ in range(3):
        way, along = 0.0, 0.0
        for x, y, n in THREE:
            v = w
            for _ in range(n):
                v -= lr * slope(x, y, v)
            way += n / 7 * (w - v) / (lr * n)
            along += n / 7 * n
        w -= lr * along * way
    assert trained(SGD(lr=lr, batch_size=1, report_steps=True), Nova(), rounds=3) == pytest.approx(w, abs=1e-5)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_equal_steps_are_the_mean_to_the_bit(weights: str) -> None:
    torch.manual_seed(0)
    models = [{"w": torch.randn(50), "n": torch.tensor(k)} for k in range(5)]
    start = {"w": torch.randn(50), "n": torch.tensor(0)}
    ends = []
    for rule in (Mean(weights), Nova(weights)):  # type: ignore[arg-type]
        state = rule.init(start, Setting(clients=5))
        ends.append(aggregate(rule, state, models, [3, 1, 4, 1, 5], steps=[3.0] * 5).model)
    assert bits(ends[0]) == bits(ends[1])


def test_a_chain_counts_all_its_steps() -> None:
    rule = Nova()
    state = rule.init(vector(0.0), Setting(clients=3))
    plan = Plan(1, (Chain((0, 1)), Chain((2,))), 2)
    update = rule.start(state, plan, [2, 2])
    long = tuple(HopReport(k, k, 0, 1, 2, 0, 0, 0.0, {"loss": 0.0, "steps": 2.0}) for k in (0, 1))
    short = (HopReport(2, 0, 0, 2, 1, 0, 0, 0.0, {"loss": 0.0, "steps": 1.0}),)
    update.add(ChainResult(0, plan.chains[0], vector(8.0), long))
    update.add(ChainResult(1, plan.chains[1], vector(1.0), short))
    assert update.finish().model["w"].item() == pytest.approx((4 + 1) / 2 * (8 / 4 + 1 / 1) / 2)


def test_buffers_are_averaged_plainly() -> None:
    rule = Nova()
    state = rule.init({"w": torch.zeros(1), "mean": torch.zeros(1)}, Setting(clients=2, trained=frozenset({"w"})))
    models = [{"w": torch.ones(1), "mean": torch.ones(1)}, {"w": torch.ones(1), "mean": torch.full((1,), 3.0)}]
    assert aggregate(rule, state, models, [1, 1], steps=[1.0, 9.0]).model["mean"].item() == 2.0


def test_how_far_steps_lead() -> None:
    """With momentum 0.5: 1, 1.5, 1.75; with a pull of mu lr = 0.1: 1, 1.9, 2.71."""
    assert SGD().effective_steps(7, 0.1) == 7.0
    assert SGD(momentum=0.5).effective_steps(3, 0.1) == pytest.approx(1 + 1.5 + 1.75)
    assert Prox(mu=1.0).effective_steps(3, 0.1) == pytest.approx(2.71)
    assert Prox(mu=0.0).effective_steps(3, 0.1) == 3.0


def test_it_wants_the_steps() -> None:
    assert Nova().wants() == {"steps"}
    assert SGD(report_steps=True).reports() == {"steps"}
    assert SGD(report_steps=True, report_accuracy=True).reports() == {"steps", "accuracy"}
