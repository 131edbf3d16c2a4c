"""Rules over all results of a round: ten lines each, the same bits for any workers, every tensor in its own type."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import fedgsp
from fedgsp.client import SGD
from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.errors import Diverged, RunFailed
from fedgsp.core.state import GLOBAL, ServerState, Setting
from fedgsp.core.tensors import Tensors
from fedgsp.server import Combine, Models, ScaffoldServer
from fedgsp.server import combine as module
from fedgsp.server.combine import CombineUpdate
from tests.support.small_federations import aggregate, vector
from tests.support.tiny import bits, chains, federation, linear, normed


@dataclass(frozen=True)
class Trimmed(Combine):
    cut: int = 1

    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        cut = min(self.cut, (len(models) - 1) // 2)
        return models.coordinatewise(lambda values: values.sort(dim=0).values[cut : len(values) - cut].mean(dim=0))


@dataclass(frozen=True)
class Median(Combine):
    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        return models.coordinatewise(lambda values: values.median(dim=0).values)


@dataclass(frozen=True)
class Krum(Combine):
    liars: int = 1

    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        nearest = models.squared_distances().sort(dim=1).values[:, 1 : len(models) - self.liars - 1]
        return models[int(nearest.sum(dim=1).argmin())]


@dataclass(frozen=True)
class Geometric(Combine):
    """RFA: Weiszfeld's steps from the mean to the geometric median."""

    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        point = models.mean(weights)
        for _ in range(100):
            point = models.mean(weights / models.squared_distances(point).sqrt().clamp_min(1e-9))
        return point


@dataclass(frozen=True)
class BySamples(Combine):
    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        return models.mean(weights)


WHOLE = SGD(lr=0.05, batch_size=100)
"""No batch of one sample, which a batch norm cannot train on."""


def start(rule: Combine, model: Tensors, trained: frozenset[str] | None = None) -> ServerState:
    return rule.init(model, Setting(trained=trained))


def after(rule: Combine, *values: float, samples: list[int] | None = None) -> float:
    """What becomes of models of one number."""
    models = [vector(value) for value in values]
    state = aggregate(rule, start(rule, vector(0.0)), models, samples or [1] * len(models))
    return float(state.model["w"].item())


def test_worked_out_by_hand() -> None:
    assert after(Trimmed(cut=1), 1.0, 100.0, 2.0, 6.0, -50.0) == 3.0
    assert after(Trimmed(cut=0), 1.0, 2.0, 6.0) == 3.0
    assert after(Median(), 1.0, 7.0, 2.0) == 2.0
    assert after(Krum(liars=1), 1.0, 1.5, 1.25, 1.375, 90.0) == 1.375, ".0156 + .0156 to its two neighbours"
    assert after(BySamples(), 1.0, 5.0, samples=[3, 1]) == 2.0
    assert after(Geometric(), 0.0, 1.0, 50.0) == pytest.approx(1.0, abs=1e-6), "in one dimension it is the median"


def test_results_of_nobody_are_left_out() -> None:
    assert after(Median(), 1.0, 7.0, 50.0, 2.0, 60.0, samples=[1, 1, 0, 1, 0]) == 2.0
    with pytest.raises(Diverged, match="nothing to combine"):
        after(Median(), 1.0, samples=[0])


@pytest.mark.parametrize("wrong", [math.inf, -math.inf, math.nan, 1e30])
def test_a_model_that_is_not_finite_is_far_from_all(wrong: float) -> None:
    assert after(Krum(liars=1), 1.0, 1.5, 1.25, 1.375, wrong) == 1.375
    assert after(Krum(liars=1), wrong, 1.0, 1.5, 1.25, 1.375) == 1.375


def test_distances_are_those_of_the_trained_tensors() -> None:
    rng = torch.Generator().manual_seed(0)
    rows = [{"w": torch.randn(3, 5, generator=rng), "mean": torch.randn(2, generator=rng)} for _ in range(4)]
    models = Models(rows, rows[0], frozenset({"w"}), [])
    expected = torch.stack([torch.stack([(a["w"] - b["w"]).double().square().sum() for b in rows]) for a in rows])
    assert torch.allclose(models.squared_distances(), expected, rtol=1e-6, atol=1e-12)
    assert torch.allclose(models.squared_distances(rows[2]), expected[2], rtol=1e-6)
    assert models.stacked("mean").shape == (4, 2)


def test_blocks_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(1)
    rows = [{"w": torch.randn(7, 11, generator=rng), "n": torch.randint(9, (), generator=rng)} for _ in range(5)]
    whole = [aggregate(rule, start(rule, rows[0]), rows, [1] * 5).model for rule in (Trimmed(), Median())]
    monkeypatch.setattr(module, "BLOCK_BYTES", 8 * 5 * 4)  # four columns at a time
    parts = [aggregate(rule, start(rule, rows[0]), rows, [1] * 5).model for rule in (Trimmed(), Median())]
    assert [bits(model) for model in whole] == [bits(model) for model in parts]
    assert torch.equal(whole[1]["w"], torch.stack([row["w"] for row in rows]).median(dim=0).values)


@pytest.mark.parametrize("rule", [Median(), Krum(), Trimmed(), BySamples()])
def test_every_tensor_comes_out_in_its_own_type_and_memory(rule: Combine) -> None:
    def model(value: float) -> Tensors:
        return {
            "half": torch.full((2,), value, dtype=torch.float16), "count": torch.tensor(int(10 * value)),
            "flag": torch.tensor(value > 1), "none": torch.empty(0),
        }  # fmt: skip

    rows = [model(value) for value in (1.0, 2.0, 2.0, 2.0)]
    state = aggregate(rule, start(rule, rows[0]), rows, [1] * 4)
    assert {name: tensor.dtype for name, tensor in state.model.items()} == {name: t.dtype for name, t in rows[0].items()}
    assert state.model["flag"].item() is True
    kept = state.model["half"].clone()
    for row in rows:
        row["half"].zero_()
    assert torch.equal(state.model["half"], kept)


@pytest.mark.parametrize("rule", [Trimmed(), Krum(), Geometric()])
def test_workers_and_arrival_do_not_change_a_bit(rule: Combine) -> None:
    method = replace(chains(rule=WHOLE), server=rule)
    found = {bits(fedgsp.train(method, federation(), normed, rounds=3, workers=workers).state.model) for workers in (0, 1, 2)}
    assert len(found) == 1


def test_a_rule_knows_who_trained_and_what_the_round_began_with() -> None:
    seen: list[Any] = []

    @dataclass(frozen=True)
    class Looks(Combine):
        def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
            seen.append((models, weights))
            return models[0]

    method = replace(chains(rule=WHOLE), server=Looks())
    result = fedgsp.train(method, federation(), normed, rounds=1, workers=0)
    models, weights = seen[0]
    assert torch.equal(models.start["1.weight"], result.run.initial_model["1.weight"])
    assert models.trained == {"0.weight", "0.bias", "1.weight", "1.bias"}, "neither running means nor the counter"
    assert [one.index for one in models.results] == [0, 1]
    assert (
        weights.tolist() == [one.samples for one in models.results] == [sum(h.samples for h in r.hops) for r in models.results]
    )


def test_it_learns_what_one_liar_keeps_the_mean_from_learning() -> None:
    rule = Trimmed()
    honest = [vector(1.0 + k / 100) for k in range(9)]
    state = aggregate(rule, start(rule, vector(0.0)), [*honest, vector(1e6)], [1] * 10)
    assert 1.0 < state.model["w"].item() < 1.1


def test_it_goes_inside_other_rules_and_waits_for_nothing_else() -> None:
    scaffold = fedgsp.named("scaffold")
    fedgsp.train(replace(scaffold, server=ScaffoldServer(Trimmed())), federation(), linear, rounds=2, workers=0)


@dataclass(frozen=True)
class Broken(Combine):
    how: str = ""

    def combine(self, models: Models, weights: torch.Tensor) -> Any:
        whole = dict(models[0])
        if self.how == "missing":
            whole.pop("w")
        if self.how == "shape":
            whole["w"] = torch.zeros(3)
        if self.how == "more":
            whole["extra"] = torch.zeros(3)
        if self.how == "rows":
            return models.coordinatewise(lambda values: values.mean(dim=1))
        if self.how == "number":
            return models.coordinatewise(lambda values: 3.0)  # type: ignore[arg-type, return-value]
        return list(whole) if self.how == "list" else whole


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("missing", "'combine' returned in round 1 has no tensor 'w'"),
        ("shape", r"'combine' returned in round 1 has a tensor 'w' of shape \(3,\), and the model's is of shape \(1,\)"),
        ("more", "'combine' returned in round 1 has a tensor 'extra', which the model has not"),
        ("list", "'combine' returned in round 1 is list, not a dict of tensors"),
        ("rows", r"must make \(1,\) of values of shape \(2, 1\), one for each column, and made \(2,\); choose along dim 0"),
        ("number", "one for each column, and made float"),
    ],
)
def test_what_is_no_model_is_refused_with_the_rules_name_and_file(how: str, told: str) -> None:
    with pytest.raises(RunFailed, match=told) as caught:
        after(Broken(how), 1.0, 2.0)
    assert "test_combine.py:" in str(caught.value)


def test_a_whole_model_that_is_chosen_is_copied_out_of_the_file() -> None:
    rule, chain = Krum(liars=0), Chain((0,))
    update = CombineUpdate(rule, start(rule, vector(0.0)), Plan(1, (chain,), 1))
    update.add(ChainResult(0, chain, vector(3.0), (HopReport(0, 0, 0, 1, 1, 0, 0, 0.0),)))
    model = update.finish().models[GLOBAL]
    update._spool.put(0, vector(9.0))
    assert model["w"].item() == 3.0
