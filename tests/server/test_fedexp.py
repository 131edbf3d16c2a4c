from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fedgsp
from fedgsp.client import SGD
from fedgsp.core.errors import InputError
from fedgsp.core.state import ServerState, Setting
from fedgsp.core.tensors import clone, digest
from fedgsp.data.arrays import from_arrays
from fedgsp.method import Method
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.run.evaluate_run import evaluate_run
from fedgsp.server import FedExP, Mean, View
from fedgsp.server.fedexp import AVERAGED
from tests.support.hand_computed import START, THREE, slope, trained
from tests.support.small_federations import aggregate, vector, weight


def step(
    rule: FedExP, start: list[float], models: list[list[float]], samples: list[int]
) -> tuple[list[float], list[float], float]:
    state = rule.init(vector(*start), Setting(clients=len(models)))
    after = aggregate(rule, state, [vector(*model) for model in models], samples)
    return after.model["w"].tolist(), after.slots[AVERAGED]["w"].tolist(), after.extra["eta"]


def test_a_step_on_paper() -> None:
    """Delta = (3, 0) and (-1, 0): mean (1, 0), norms 9 and 1: eta = 10 / (2 * 2 * (1 + 0.25)) = 2; evaluated half way."""
    model, averaged, eta = step(FedExP(weights="uniform", eps=0.25), [0.0, 0.0], [[3.0, 0.0], [-1.0, 0.0]], [1, 7])
    assert eta == 2.0
    assert model == [2.0, 0.0]
    assert averaged == [1.0, 0.0]


def test_weighed_by_samples() -> None:
    """p = 3/4, 1/4: Delta = 2, (0.75 * 9 + 0.25 * 1) / (2 (4 + 1)) = 0.7: never below 1, so it is the mean."""
    model, _, eta = step(FedExP(eps=1.0), [0.0], [[3.0], [-1.0]], [3, 1])
    assert (model, eta) == ([2.0], 1.0)


def test_equal_clients_are_the_mean_and_its_bits() -> None:
    torch.manual_seed(0)
    values = torch.randn(40).tolist()
    model, _, eta = step(FedExP(), torch.randn(40).tolist(), [values, values, values], [1, 2, 3])
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
    assert trained(SGD(lr=lr, batch_size=1), FedExP(weights="uniform", eps=eps), rounds=3) == pytest.approx(w, abs=1e-5)


def test_without_averaging_the_model_itself_is_evaluated() -> None:
    rule = FedExP(average_last=False)
    state = rule.init(vector(0.0), Setting(clients=1))
    assert state.slots == {}
    assert rule.views(state)[0].model == "global"
    assert FedExP().views(state)[0].model == AVERAGED


def test_buffers_are_averaged_plainly_and_count_for_no_norm() -> None:
    rule = FedExP(weights="uniform", eps=0.25)
    start = {"w": torch.zeros(1), "mean": torch.zeros(1)}
    state = rule.init(start, Setting(clients=2, trained=frozenset({"w"})))
    models = [{"w": torch.tensor([3.0]), "mean": torch.tensor([9.0])}, {"w": torch.tensor([-1.0]), "mean": torch.tensor([1.0])}]
    after = aggregate(rule, state, models, [1, 1])
    assert after.extra["eta"] == 2.0
    assert (after.model["w"].item(), after.model["mean"].item()) == (2.0, 5.0)


def test_refusals() -> None:
    with pytest.raises(InputError, match="eps must be a positive number"):
        FedExP(eps=0.0)


def shift(tensors: dict[str, torch.Tensor]) -> float:
    return tensors["weight"].item()


def test_what_was_judged_is_what_is_handed_out_and_training_goes_on_from_the_iterate(tmp_path: Path) -> None:
    """y = w x on (1, 2) and (2, 2): the journal's loss is that of `result.model()` and model.safetensors, not the iterate's."""
    data = from_arrays(
        np.array([[1.0], [1.0], [2.0], [2.0]], dtype=np.float32), np.full(4, 2.0, dtype=np.float32), np.array([0, 0, 1, 1]),
        classes=0, test_fraction=0.5,
    )  # fmt: skip
    method = Method(Grouped(Singletons(), Random(), kappa=1.0), SGD(lr=0.2, batch_size=1), FedExP(eps=1e-6), name="fedexp")
    run = tmp_path / "run"
    result = fedgsp.train(method, data, lambda: weight(0.0), rounds=3, workers=0, out=run)
    iterate, averaged = shift(result.state.model), shift(result.state.slots[AVERAGED])
    assert iterate != averaged

    def loss(w: float) -> float:
        return ((w - 2) ** 2 + (2 * w - 2) ** 2) / 2

    assert result.history[-1]["loss"] == pytest.approx(loss(averaged), rel=1e-5)
    assert result.history[-1]["loss"] != pytest.approx(loss(iterate), rel=1e-3)
    assert result.model().state_dict()["weight"].item() == averaged
    assert result.model("global").state_dict()["weight"].item() == iterate
    assert shift(load_file(run / "model.safetensors")) == averaged
    assert sorted(path.name for path in run.glob("model*")) == ["model.safetensors"]
    assert result.facts["model"] == {"global": digest({"weight": torch.tensor([[averaged]])})}
    again = fedgsp.replay(run, data=data, model=lambda: weight(0.0), method=method)
    assert again.differs is None, "a replay compares the same model"
    longer = fedgsp.resume(run, rounds=5, data=data, model=lambda: weight(0.0), method=method)
    straight = fedgsp.train(method, data, lambda: weight(0.0), rounds=5, workers=0)
    assert longer.state.digest() == straight.state.digest()
    assert shift(load_file(run / "model.safetensors")) == straight.model().state_dict()["weight"].item()


def test_evaluating_a_run_gives_the_figures_of_its_journal(tmp_path: Path) -> None:
    result = fedgsp.train("fedexp", "glyphs:clients=6", rounds=2, workers=0, out=tmp_path / "run")
    assert evaluate_run(tmp_path / "run", None, "test")["loss"] == result.history[-1]["loss"]


@dataclass(frozen=True)
class Shadowed(Mean):
    """A rule of a user's own that judges another live model than the one it trains: twice the mean."""

    def init(self, model: dict[str, torch.Tensor], setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        return ServerState(0, {"global": model, "shadow": clone(model)})

    def step(self, state: ServerState, mean: dict[str, torch.Tensor]) -> ServerState:
        after = super().step(state, mean)
        return replace(after, models={**after.models, "shadow": {name: 2 * t for name, t in after.model.items()}})

    def views(self, state: ServerState) -> tuple[View, ...]:
        return (View("shadow"),)


def test_the_same_holds_for_any_rule_that_judges_another_model(tmp_path: Path) -> None:
    data = from_arrays(
        np.ones((4, 1), dtype=np.float32), np.full(4, 2.0, dtype=np.float32), np.zeros(4, dtype=np.int64), classes=0,
        test_fraction=0.5,
    )  # fmt: skip
    method = Method(Grouped(Singletons(), Random(), kappa=1.0), SGD(lr=0.1), Shadowed(), name="shadowed")
    result = fedgsp.train(method, data, lambda: weight(0.5), rounds=2, workers=0, out=tmp_path / "run")
    assert result.model()(torch.ones(1, 1)).item() == 2 * shift(result.state.model)
    assert shift(load_file(tmp_path / "run" / "model.safetensors")) == 2 * shift(result.state.model)


def test_a_cap_bounds_the_step_and_nothing_else() -> None:
    """As in the step on paper, whose eta is 2: capped at 1.5 the model is at 1.5 mean updates; a higher cap is never met."""
    models = [[3.0, 0.0], [-1.0, 0.0]]
    model, _, eta = step(FedExP(weights="uniform", eps=0.25, cap=1.5), [0.0, 0.0], models, [1, 7])
    assert (eta, model) == (1.5, [1.5, 0.0])
    assert step(FedExP(weights="uniform", eps=0.25, cap=3.0), [0.0, 0.0], models, [1, 7])[2] == 2.0
    assert step(FedExP(weights="uniform", eps=0.25, cap=1.0), [0.0, 0.0], models, [1, 7])[0] == [1.0, 0.0]
    with pytest.raises(InputError, match="cap must be at least 1"):
        FedExP(cap=0.5)
    assert fedgsp.named("fedgsp+exp-capped").server == FedExP(cap=2.0, average_last=False)
