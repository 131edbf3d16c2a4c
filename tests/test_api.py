from __future__ import annotations

import doctest
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.client import SGD, LocalContext
from fedgsp.core.tensors import digest
from fedgsp.method import Method


def federation(clients: int = 8, each: int = 10) -> fedgsp.FederatedData:
    """Two well-separated classes, so that a linear model learns them in a few rounds."""
    rng = np.random.default_rng(0)
    labels = np.arange(clients * each) % 2
    features = rng.normal(size=(clients * each, 3)) + 3 * labels[:, None]
    return fedgsp.from_arrays(features.astype(np.float32), labels, np.repeat(np.arange(clients), each))


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Linear(shape[0], classes)


def trained(**options: object) -> fedgsp.RunResult:
    chosen = {"method": "fedavg", "data": federation(), "model": linear, "rounds": 3, "workers": 0, "lr": 0.1, **options}
    return fedgsp.train(**chosen)  # type: ignore[arg-type]


def test_a_run_in_memory_learns_and_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = trained(rounds=8)
    assert result.status == "finished"
    assert result.rounds == len(result.history) == 8
    assert result.directory is None
    assert result.history[-1]["accuracy"] == 1.0
    assert list(tmp_path.iterdir()) == []


def test_the_model_that_comes_out_is_the_one_that_was_judged() -> None:
    result, data = trained(), federation()
    model = result.model()
    assert not model.training
    rows = data.test.rows
    predicted = model(torch.from_numpy(np.asarray(data.features[rows]))).argmax(1).numpy()
    assert (predicted == data.labels[rows]).mean() == pytest.approx(result.history[-1]["accuracy_plain"])


def test_the_same_call_gives_the_same_bits_and_another_seed_does_not() -> None:
    assert digest(trained().state.model) == digest(trained().state.model)
    assert digest(trained().state.model) != digest(trained(seed=1).state.model)


def test_the_callers_random_state_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trained().model()
    assert torch.equal(torch.rand(3), expected)


def test_a_module_is_trained_from_its_own_weights_and_not_changed() -> None:
    torch.manual_seed(0)
    mine = nn.Linear(3, 2)
    before = digest(dict(mine.state_dict()))
    result = trained(model=mine, rounds=1)
    assert digest(result.run.initial_model) == before == digest(dict(mine.state_dict()))
    assert digest(result.state.model) != before


def test_a_method_by_hand_with_a_rule_of_ones_own() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Prox(SGD):
        mu: float = 0.1

        def objective(self, ctx: LocalContext, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            loss = ctx.task.loss(ctx.model(x), y).mean()
            pairs = ((p, ctx.global_model[name]) for name, p in ctx.model.named_parameters())
            away = torch.stack([(p - q).square().sum() for p, q in pairs]).sum()
            return loss + self.mu / 2 * away, loss

    plain = fedgsp.named("fedgsp")
    free: Method = replace(plain, local=Prox(lr=0.1, epochs=4, mu=0.0))
    held: Method = replace(plain, local=Prox(lr=0.1, epochs=4, mu=5.0))
    assert digest(trained(method=free).state.model) == digest(trained(method="fedgsp", epochs=4, fast="off").state.model)
    start = trained(rounds=1).run.initial_model["weight"]
    moved = [(trained(method=m, lr=None).state.model["weight"] - start).norm().item() for m in (free, held)]
    assert moved[1] < 0.7 * moved[0]


def test_options_replace_those_of_the_method() -> None:
    rule = trained(lr=0.5, batch_size=3, epochs=2, rounds=1).run.config.method.local
    assert (rule.lr, rule.batch_size, rule.epochs) == (0.5, 3, 2)


def test_held_out_clients_and_validation_are_judged_apart() -> None:
    line = trained(holdout_clients=2, validation=0.3, rounds=1).history[0]
    assert line["holdout"]["clients"] == 2
    assert line["holdout"]["samples"] == 20
    assert line["test_clients"] == line["validation"]["clients"] == 6


def test_a_regression() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    data = fedgsp.from_arrays(x, x @ np.array([2.0, -1.0]) + 0.5, np.repeat(np.arange(6), 10))
    result = trained(data=data, model=lambda: nn.Linear(2, 1), rounds=20)
    assert result.history[-1]["loss"] < 0.05
    assert result.accuracy is None
    assert "absolute_error" in result.history[-1]


def test_stopping_at_the_target() -> None:
    result = trained(rounds=50, target_accuracy=0.9, stop_at_target=True)
    assert result.status == "target"
    assert result.rounds == result.figures.reached
    assert result.rounds < 50


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"method": "fedavgg"}, "unknown method 'fedavgg': did you mean 'fedavg'"),
        ({"data": "glyhps"}, "unknown data source 'glyhps'"),
        ({"data": 5}, "data is a source text or a FederatedData, not int"),
        ({"model": 5}, "a model is a name, a callable or an nn.Module, not int"),
        ({"lr": float("nan")}, "the learning rate must be a positive number, not nan"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
    ],
)
def test_bad_input(options: dict[str, object], told: str) -> None:
    with pytest.raises(fedgsp.InputError, match=told):
        trained(**options)


def test_the_examples_of_the_docstrings() -> None:
    assert doctest.testmod(fedgsp.api).failed == 0
