from __future__ import annotations

import pytest
import torch
from byhand import START, THREE, slope, trained
from rivals import aggregate, vector

from fedgsp.client import SGD
from fedgsp.core.errors import InputError
from fedgsp.core.state import Setting
from fedgsp.server import ExP
from fedgsp.server.exp import AVERAGED


def step(
    rule: ExP, start: list[float], models: list[list[float]], samples: list[int]
) -> tuple[list[float], list[float], float]:
    state = rule.init(vector(*start), Setting(clients=len(models)))
    after = aggregate(rule, state, [vector(*model) for model in models], samples)
    return after.model["w"].tolist(), after.slots[AVERAGED]["w"].tolist(), after.extra["eta"]


def test_a_step_on_paper() -> None:
    """Delta = (3, 0) and (-1, 0): mean (1, 0), norms 9 and 1: eta = 10 / (2 * 2 * (1 + 0.25)) = 2; evaluated half way."""
    model, averaged, eta = step(ExP(weights="uniform", eps=0.25), [0.0, 0.0], [[3.0, 0.0], [-1.0, 0.0]], [1, 7])
    assert eta == 2.0
    assert model == [2.0, 0.0]
    assert averaged == [1.0, 0.0]


def test_weighed_by_samples() -> None:
    """p = 3/4, 1/4: Delta = 2, (0.75 * 9 + 0.25 * 1) / (2 (4 + 1)) = 0.7: never below 1, so it is the mean."""
    model, _, eta = step(ExP(eps=1.0), [0.0], [[3.0], [-1.0]], [3, 1])
    assert (model, eta) == ([2.0], 1.0)


def test_equal_clients_are_the_mean_and_its_bits() -> None:
    torch.manual_seed(0)
    values = torch.randn(40).tolist()
    model, _, eta = step(ExP(), torch.randn(40).tolist(), [values, values, values], [1, 2, 3])
    assert eta == 1.0
    assert model == vector(*values)["w"].tolist()


def test_rounds_against_the_algorithm_written_out() -> None:
    lr, eps, w = 0.1, 1e-3, START
    for _ in range(3):
        moves = []
        for x, y, n in THREE:
            v = w
            for _ in range(n):
                v -= lr * slope(x, y, v)
            moves.append(v - w)
        mean = sum(moves) / 3
        w += max(1.0, sum(m * m for m in moves) / (2 * 3 * (mean * mean + eps))) * mean
    assert trained(SGD(lr=lr, batch_size=1), ExP(weights="uniform", eps=eps), rounds=3) == pytest.approx(w, abs=1e-5)


def test_without_averaging_the_model_itself_is_evaluated() -> None:
    rule = ExP(average_last=False)
    state = rule.init(vector(0.0), Setting(clients=1))
    assert state.slots == {}
    assert rule.views(state)[0].model == "global"
    assert ExP().views(state)[0].model == AVERAGED


def test_buffers_are_averaged_plainly_and_count_for_no_norm() -> None:
    rule = ExP(weights="uniform", eps=0.25)
    start = {"w": torch.zeros(1), "mean": torch.zeros(1)}
    state = rule.init(start, Setting(clients=2, trained=frozenset({"w"})))
    models = [{"w": torch.tensor([3.0]), "mean": torch.tensor([9.0])}, {"w": torch.tensor([-1.0]), "mean": torch.tensor([1.0])}]
    after = aggregate(rule, state, models, [1, 1])
    assert after.extra["eta"] == 2.0
    assert (after.model["w"].item(), after.model["mean"].item()) == (2.0, 5.0)


def test_refusals() -> None:
    with pytest.raises(InputError, match="eps must be a positive number"):
        ExP(eps=0.0)
