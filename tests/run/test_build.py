from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.core.tensors import digest
from fedgsp.data.arrays import from_arrays
from fedgsp.data.federated import FederatedData, Split
from fedgsp.engine import InlineEngine
from fedgsp.methods import named
from fedgsp.models import Task, classification
from fedgsp.plan import Constant, Grouped, Random
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from fedgsp.run.forecast import forecast
from fedgsp.run.identity import identity_of
from fedgsp.run.run import Run
from tests.support import tiny


def federation(clients: int = 12, each: int = 10) -> FederatedData:
    rng = np.random.default_rng(0)
    n = clients * each
    return from_arrays(rng.normal(size=(n, 4)).astype(np.float32), np.arange(n) % 3, np.repeat(np.arange(clients), each))


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Linear(shape[0], classes)


def built(
    method: str = "fedavg", *, data: FederatedData | None = None, model: Any = linear, task: Any = None, **run: Any
) -> Run:
    config = RunConfig(run=RunSection(**{"rounds": 3, "workers": 0, **run}), method=named(method))
    return RunBuilder(data or federation(), model, task).build(config)


def refused(**options: Any) -> str:
    with pytest.raises(InputError) as caught:
        built(**options)
    return str(caught.value)


def test_more_groups_than_clients_are_capped_and_told() -> None:
    found = built("fedgsp", rounds=5)  # 10, 20, 30, 30, 40 groups of 12 clients
    (note,) = found.notes
    assert note.startswith(
        "no two clients ever train in a chain, and this is FedAvg: the growth function asks for 10 groups in round 1, and 12 "
        "clients train, too few for two in each of 10; the growth `OfLength(4)`"
    )
    assert built("fedavg").notes == ()


def test_no_test_samples_are_told() -> None:
    assert built(data=federation(each=1)).notes == ("no client has a test sample, so nothing can be evaluated.",)


def test_clients_held_out_do_not_train() -> None:
    found = built(holdout_clients=5)
    assert len(found.held_out) == 5
    assert sorted([*found.participants.tolist(), *found.held_out.tolist()]) == list(range(12))


def test_too_few_clients() -> None:
    assert refused(holdout_clients=12) == (
        "too few clients: 12 in the data, 12 to be held out; at least one must be left to train."
    )


def test_too_few_samples() -> None:
    data = federation()
    idle = replace(data, train=Split.empty(12))
    assert refused(data=idle) == "too few samples: no client has a training sample."


@pytest.mark.parametrize(("device", "told"), [("gpu5x", "unknown device 'gpu5x'"), ("cuda:99", "is not available here")])
def test_devices(device: str, told: str) -> None:
    if device.startswith("cuda") and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert told in refused(device=device)


class TestModelsThatDoNotFit:
    def test_the_samples(self) -> None:
        told = refused(model=lambda: nn.Linear(5, 3))
        assert told.startswith("the model '")
        assert "does not fit the data (samples of shape (4,), 3 classes)" in told

    def test_the_classes(self) -> None:
        told = refused(model=lambda: nn.Linear(4, 7))
        assert told.endswith("gives outputs of shape (7,) a sample; the data has 3 classes.")

    def test_too_few_outputs_for_the_labels(self) -> None:
        assert refused(model=lambda: nn.Linear(4, 2)).startswith("the model '")

    def test_a_loss_that_is_a_mean(self) -> None:
        task = Task("mean", lambda outputs, targets: nn.functional.cross_entropy(outputs, targets))
        told = refused(task=task)
        assert re.fullmatch(
            r"the task's loss, <lambda> \(.*test_build.py:\d+\), must give one value a sample, .*, not \(\)\.", told
        )


def test_the_start_is_drawn_by_the_seed() -> None:
    assert (
        digest(built(seed=1).initial_model)
        == digest(built(seed=1, rounds=9).initial_model)
        != digest(built(seed=2).initial_model)
    )


def test_preparing_and_an_engine_leave_the_callers_random_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    engine = built().engine()
    assert isinstance(engine, InlineEngine)
    assert torch.equal(torch.rand(3), expected)


def test_the_start_may_come_from_a_file(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight": torch.full((3, 4), 0.5), "bias": torch.zeros(3)}, tmp_path / "w.safetensors")
    config = RunConfig(model=ModelSection("custom", str(tmp_path / "w.safetensors")))
    found = RunBuilder(federation(), linear).build(config)
    assert found.initial_model["weight"].tolist() == [[0.5] * 4] * 3


def test_validation_is_carved_out() -> None:
    config = RunConfig(data=DataSection(validation=0.2))
    assert RunBuilder(federation(), linear).build(config).data.validation.sizes.tolist() == [2] * 12


def test_real_targets_are_a_regression() -> None:
    data = from_arrays(np.zeros((20, 4), dtype=np.float32), np.linspace(0.1, 1, 20), np.repeat([0, 1], 10))
    found = built(data=data, model=lambda: nn.Linear(4, 1))
    assert found.worker_setup.task.name == "regression"


def test_workers_are_no_more_than_chains() -> None:
    assert built(workers=3).workers() == 3
    method = replace(named("fedavg"), planner=Grouped(Constant(1), Random(), 1.0))
    config = RunConfig(run=RunSection(workers="auto"), method=method)
    assert RunBuilder(federation(), linear).build(config).workers() == 1


class TestIdentity:
    def test_it_is_of_what_was_prepared(self) -> None:
        assert identity_of(built()) == identity_of(built(rounds=9, workers=1))

    @pytest.mark.parametrize(
        "other",
        [
            {"data": federation(each=11)},
            {"model": lambda: nn.Linear(4, 3, bias=False)},
            {"seed": 3},
            {"task": Task("robust", classification().loss, {})},
        ],
    )
    def test_objects_given_in_python_are_part_of_it(self, other: dict[str, Any]) -> None:
        """Going on with another loss than before must not pass unnoticed."""
        assert identity_of(built(**other)) != identity_of(built())


class TestForecast:
    def test_steps_traffic_and_shapes(self) -> None:
        found = forecast(built("fedavg", rounds=4))
        # floor(0.3 * 12) = 3 clients a round of 9 training samples: 2 steps each
        assert found.steps == 4 * 3 * 2
        assert found.model_bytes == 4 * (4 * 3 + 3)
        assert found.bytes == 4 * 3 * 2 * found.model_bytes
        assert [(row["round"], row["groups"], row["sampled"], row["trained"]) for row in found.schedule] == [(1, 12, 3, 3)]
        assert found.seconds > 0
        assert found.memory > 1e8

    @pytest.mark.parametrize("method", ["fd", "hybrid-fl", "feddc"])
    def test_the_traffic_is_what_is_really_sent(self, method: str) -> None:
        found = forecast(built(method, rounds=2))
        real = fedgsp.train(method, federation(), linear, rounds=2, workers=0)
        assert found.bytes == real.history[-1]["bytes_total"]

    def test_live_models_take_memory(self) -> None:
        one, many = forecast(built("fedavg", rounds=2)), forecast(built("feddc", rounds=2))
        assert many.memory - one.memory == 3 * 12 * one.model_bytes

    def test_a_row_for_every_change(self) -> None:
        assert [row["round"] for row in forecast(built("fedgsp", rounds=5)).schedule] == [1, 2]  # 10 groups, then all 12

    def test_it_does_not_disturb_anything(self) -> None:
        torch.manual_seed(5)
        expected, threads = torch.rand(3), torch.get_num_threads()
        torch.manual_seed(5)
        made = built()
        before = digest(made.initial_model)
        forecast(made)
        assert torch.equal(torch.rand(3), expected)
        assert torch.get_num_threads() == threads
        assert digest(made.initial_model) == before


def test_clients_without_training_samples_never_train_but_are_evaluated() -> None:
    data = tiny.federation()
    rows = [np.empty(0, np.int64) if k == 3 else data.train[k] for k in range(len(data))]
    partial = replace(data, train=Split.of(rows))
    result = fedgsp.train(tiny.static(7), partial, tiny.linear, rounds=2, workers=0)
    assert 3 not in result.run.participants
    assert result.history[-1]["clients"] == 7
    assert result.history[-1]["test_clients"] == int((data.test.sizes > 0).sum())
    assert any("only evaluated" in note for note in result.run.notes)
