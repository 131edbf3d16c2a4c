from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fedgsp
from fedgsp.client import SGD, Fusion
from fedgsp.core.errors import InputError
from fedgsp.core.state import Setting
from fedgsp.core.tensors import digest
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.server import Adam, Averaged, Clustered, DistillServer, FusionServer, Mean, ModelRotation, Momentum
from fedgsp.server.averaged import AVERAGE
from tests.support.small_federations import aggregate, images, vector


def averages(rule: Averaged, models: list[float]) -> list[float]:
    """The average after each of these models, each of them a round's mean."""
    state, found = rule.init(vector(100.0), Setting(clients=1)), []
    for value in models:
        state = aggregate(rule, state, [vector(value)], [1])
        assert state.model["w"].item() == value, "training goes on from the last model"
        found.append(state.slots[AVERAGE]["w"].item())
    return found


def test_by_decay_on_paper() -> None:
    """d = 1/2: 8; (4 + 2/1 ...): weights 1, 1/2, 1/4 over their sum. The initial model does not count."""
    assert averages(Averaged(decay=0.5), [8.0, 2.0, 9.0]) == pytest.approx([8.0, (4 + 2) / 1.5, (2 + 1 + 9) / 1.75])


def test_the_mean_of_the_last_k_on_paper() -> None:
    assert averages(Averaged(last=2), [8.0, 2.0, 9.0]) == [8.0, 5.0, 5.5]
    assert averages(Averaged(last=3), [9.0, 3.0, 6.0, 0.0]) == [9.0, 6.0, 6.0, 3.0]


@pytest.mark.parametrize("rule", [Averaged(decay=0.0), Averaged(last=1)])
def test_no_memory_is_the_rule_inside(rule: Averaged) -> None:
    assert averages(rule, [8.0, 2.0, 9.0]) == [8.0, 2.0, 9.0]


def test_counters_are_the_last_models_and_running_means_are_averaged() -> None:
    rule, one = Averaged(decay=0.5), {"w": torch.tensor([4.0]), "mean": torch.tensor([2.0]), "count": torch.tensor(3)}
    state = rule.init({name: torch.zeros_like(t) for name, t in one.items()}, Setting(clients=1, trained=frozenset({"w"})))
    state = aggregate(rule, state, [one], [1])
    state = aggregate(rule, state, [{"w": torch.tensor([1.0]), "mean": torch.tensor([5.0]), "count": torch.tensor(7)}], [1])
    average = state.slots[AVERAGE]
    assert (average["w"].item(), average["mean"].item(), average["count"].item()) == (2.0, 4.0, 7)
    assert average["count"].dtype == torch.int64


def test_training_is_the_same_to_the_bit_and_the_average_is_handed_out(tmp_path: Path) -> None:
    data, plain = images(clients=6), named("fedadam")
    averaged = replace(plain, server=Averaged(plain.server), name="mine")
    alone = fedgsp.train(plain, data, rounds=3, workers=0)
    result = fedgsp.train(averaged, data, rounds=3, workers=0, out=tmp_path / "run")
    assert digest(result.state.model) == digest(alone.state.model)
    handed = load_file(tmp_path / "run" / "model.safetensors")
    assert digest(handed) == digest(result.state.slots[AVERAGE]) != digest(result.state.model)
    assert result.history[-1]["loss"] != alone.history[-1]["loss"]
    again = fedgsp.train(averaged, data, rounds=1, workers=0, out=tmp_path / "short")
    assert again.state.round == 1
    longer = fedgsp.resume(tmp_path / "short", rounds=3, data=data, method=averaged)
    assert longer.state.digest() == result.state.digest()
    assert fedgsp.replay(tmp_path / "run", data=data, method=averaged).differs is None


def test_what_a_model_is_evaluated_with_goes_with_its_average() -> None:
    method = Method(Grouped(Singletons(), Random(), 0.5), Fusion(lr=0.05), Averaged(FusionServer(Mean())), "fusion")
    result = fedgsp.train(method, images(clients=4), "small_cnn", rounds=2, workers=0)
    slots = result.state.slots
    assert digest(slots[f"beside {AVERAGE}"]) == digest(slots["beside global"])


def test_names_put_it_around_whatever_the_server_does() -> None:
    assert named("fedgsp+averaged").server == Averaged(Mean())
    assert named("fedavgm+averaged").server == Averaged(Momentum())
    assert named("fedgsp+averaged+adam").server == Averaged(Adam()), "in any order"
    assert named("fedgsp+averaged").local == SGD()


def test_refusals() -> None:
    with pytest.raises(InputError, match="decay must be from 0 up to 1"):
        Averaged(decay=1.0)
    with pytest.raises(InputError, match="last must be a whole number of at least 0"):
        Averaged(last=-1)
    with pytest.raises(InputError, match="cannot go around itself"):
        Averaged(Averaged())
    for several in (ModelRotation(), Clustered()):
        with pytest.raises(InputError, match="about one global model"):
            Averaged(several)
    with pytest.raises(InputError, match="ends with none"):
        Averaged(DistillServer())
