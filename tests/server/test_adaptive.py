"""FedAdagrad, FedAdam, FedYogi: two steps by hand, flags by hand, buffers, and parameters that make no sense."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedgsp.core.errors import InputError
from fedgsp.core.state import Setting
from fedgsp.server import Adagrad, Adam, Yogi
from tests.support.small_federations import aggregate, vector

DOUBLE = torch.float64


def two_steps(rule: Adagrad) -> list[float]:
    """w = 1, then one client whose model is .1 above it, then one .05 below it."""
    state = rule.init(vector(1.0, dtype=DOUBLE))
    seen = []
    for delta in (0.1, -0.05):
        state = aggregate(rule, state, [{"w": state.model["w"] + delta}], [1])
        seen.append(state.model["w"].item())
    return seen


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Adagrad(lr=0.01, beta1=0.0, tau=1e-3, v0=1e-6), [1.00990050, 1.00546819]),
        (Adam(lr=0.01, beta1=0.9, beta2=0.99, tau=1e-3, v0=1e-6), [1.00905028, 1.01233450]),
        (Yogi(lr=0.01, beta1=0.9, beta2=0.99, tau=1e-3, v0=1e-6), [1.00904988, 1.01232187]),
    ],
)
def test_the_oracle_of_the_specs(rule: Adagrad, expected: list[float]) -> None:
    assert two_steps(rule) == pytest.approx(expected, abs=6e-9)


def test_the_second_moment_starts_at_tau_squared() -> None:
    assert two_steps(Adam(lr=0.01, tau=1e-3)) == two_steps(Adam(lr=0.01, tau=1e-3, v0=1e-6))
    assert two_steps(Adam(lr=0.01, tau=1e-3)) != two_steps(Adam(lr=0.01, tau=1e-3, v0=0.0))


def test_bias_correction_by_hand() -> None:
    # t = 1: m = .1 * .1, v = .01 * .01 (v0 = 0), rate = .01 * sqrt(.01) / .1 = .01; t = 2 in the same way
    m, v = 0.01, 1e-4
    one = 1 + 0.01 * m / (v**0.5 + 1e-3)
    m, v = 0.9 * m + 0.1 * -0.05, 0.99 * v + 0.01 * 0.0025
    two = one + 0.01 * (1 - 0.99**2) ** 0.5 / (1 - 0.9**2) * m / (v**0.5 + 1e-3)
    assert two_steps(Adam(lr=0.01, tau=1e-3, v0=0.0, bias_correction=True)) == pytest.approx([one, two], abs=1e-12)


def test_yogi_shrinks_v_by_no_more_than_a_share_of_the_square() -> None:
    rule = Yogi(v0=1.0, beta2=0.9)
    v = rule.second(torch.tensor([1.0, 0.01, 0.25]), torch.tensor([0.25, 0.25, 0.25]))
    assert v.tolist() == pytest.approx([1.0 - 0.025, 0.01 + 0.025, 0.25])


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_delta_is_the_mean_step_of_the_clients(weights: Any) -> None:
    rule = Adagrad(lr=1.0, tau=1e-3, v0=0.0, weights=weights)
    found = aggregate(rule, rule.init(vector(0.0, dtype=DOUBLE)), [vector(1.0), vector(4.0)], [3, 1]).model["w"].item()
    delta = (3 * 1 + 4) / 4 if weights == "samples" else 2.5
    assert found == pytest.approx(delta / (delta + 1e-3), abs=1e-12)


def test_clients_that_hand_back_the_model_leave_it_to_the_bit() -> None:
    start = {"w": torch.randn(50, generator=torch.Generator().manual_seed(1))}
    for rule in (Adagrad(), Adam(), Yogi()):
        found = aggregate(rule, rule.init(start), [start, start], [2, 3])
        assert torch.equal(found.model["w"], start["w"])


def test_only_trained_tensors_are_stepped_others_are_averaged() -> None:
    start = {"w": torch.zeros(1), "running": torch.zeros(1), "count": torch.tensor(0)}
    rule = Adam(lr=0.1)
    state = rule.init(start, Setting(trained=frozenset({"w"})))
    models = [{"w": torch.ones(1), "running": torch.full((1,), v), "count": torch.tensor(5)} for v in (1.0, 3.0)]
    found = aggregate(rule, state, models, [1, 1])
    assert found.model["running"].item() == 2.0
    assert found.model["count"].item() == 5
    assert 0 < found.model["w"].item() < 0.2
    assert set(found.slots["second moment"]) == {"w"}
    assert found.extra["server_steps"] == 1


@pytest.mark.parametrize(
    ("kind", "wrong", "sentence"),
    [
        (Adagrad, {"lr": 0.0}, "'adagrad': lr must be a positive number, not 0.0"),
        (Adam, {"tau": 0.0}, "'adam': tau must be a positive number, not 0.0"),
        (Adam, {"beta1": 1.0}, "'adam': beta1 must be at least 0 and below 1, not 1.0"),
        (Adam, {"beta2": 1.0}, "'adam': beta2 must be at least 0 and below 1, not 1.0"),
        (Yogi, {"beta2": -0.1}, "'yogi': beta2 must be at least 0 and below 1, not -0.1"),
        (Yogi, {"v0": -1.0}, "'yogi': v0 must be a positive number, not -1.0"),
        (Yogi, {"weights": "loss"}, "weights must be 'samples' or 'uniform', not 'loss'"),
    ],
)
def test_wrong_parameters(kind: type, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        kind(**wrong)
