from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.errors import Diverged, InputError
from fedgsp.core.state import ServerState
from fedgsp.core.tensors import Tensors, clone, digest
from fedgsp.server import Mean, View

START: Tensors = {"w": torch.tensor([1.0, -1.0])}


def hop(client: int, samples: int, visit: int = 0) -> HopReport:
    return HopReport(client, 0, visit, samples, 1, 8, 8, 0.1)


def result(index: int, tensors: Tensors, *hops: HopReport, passes: int = 1) -> ChainResult:
    return ChainResult(index, Chain(tuple(dict.fromkeys(h.client for h in hops)), passes=passes), tensors, hops)


def chain(index: int, values: list[float], samples: int) -> ChainResult:
    return result(index, {"w": torch.tensor(values)}, hop(index, samples))


def finished(
    results: Sequence[ChainResult], rule: Mean | None = None, start: Tensors = START, planned: Sequence[int] | None = None
) -> ServerState:
    rule = rule or Mean()
    plan = Plan(4, tuple(r.chain for r in results), groups=len(results))
    update = rule.start(rule.init(start), plan, [r.samples for r in results] if planned is None else planned)
    for one in results:
        update.add(one)
    return update.finish()


def test_golden_numbers_weighed_by_samples() -> None:
    state = finished([chain(0, [1.0, 10.0], 30), chain(1, [2.0, 20.0], 10), chain(2, [4.0, 0.0], 60)])
    assert state.model["w"].tolist() == pytest.approx([2.9, 5.0], rel=1e-7)  # (30 + 20 + 240) / 100, (300 + 200) / 100
    assert state.round == 4


def test_golden_numbers_uniform() -> None:
    state = finished([chain(0, [1.0, 10.0], 30), chain(1, [2.0, 20.0], 10), chain(2, [6.0, 0.0], 60)], Mean("uniform"))
    assert state.model["w"].tolist() == [3.0, 10.0]


def test_the_sampled_groups_alone_are_the_whole() -> None:
    """Dividing by f(r) as printed would shrink the model to kappa of itself."""
    results = [chain(0, [2.0, 4.0], 5), chain(1, [2.0, 4.0], 5)]
    rule = Mean("uniform")
    update = rule.start(rule.init(START), Plan(1, tuple(r.chain for r in results), groups=10), [5, 5])
    for one in results:
        update.add(one)
    assert update.finish().model["w"].tolist() == [2.0, 4.0]


def test_a_chain_weighs_what_was_really_trained_not_what_was_planned() -> None:
    skipped = result(0, {"w": torch.tensor([1.0, 1.0])}, hop(0, 10))  # its second client with 30 samples was not there
    whole = result(1, {"w": torch.tensor([5.0, 5.0])}, hop(2, 10), hop(3, 20))
    assert finished([skipped, whole], planned=[40, 30]).model["w"].tolist() == [4.0, 4.0]


def test_passes_count_once() -> None:
    twice = result(0, {"w": torch.tensor([0.0, 0.0])}, hop(0, 10), hop(1, 20), hop(0, 10, 1), hop(1, 20, 1), passes=2)
    assert finished([twice, chain(2, [4.0, 8.0], 10)]).model["w"].tolist() == [1.0, 2.0]


def test_the_order_of_arrival_does_not_matter() -> None:
    torch.manual_seed(0)
    results = [result(i, {"w": torch.randn(2) * 10.0 ** (i - 2)}, hop(i, 7 * i + 3)) for i in range(4)]
    seen = {finished(list(order), planned=[24] * 4).digest() for order in itertools.permutations(results)}
    assert len(seen) == 1


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_equal_models_average_to_that_model_to_the_bit(weights: str) -> None:
    torch.manual_seed(1)
    model = clone(dict(nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5)).state_dict()))
    results = [result(i, model, hop(i, n)) for i, n in enumerate([1, 17, 300, 4095])]
    state = finished(results, Mean(weights), start=model)  # type: ignore[arg-type]
    assert digest(state.model) == digest(model)


def test_one_chain_is_its_model() -> None:
    assert digest(finished([chain(0, [0.1, -0.3], 77)]).model) == digest({"w": torch.tensor([0.1, -0.3])})


def test_batch_norm_statistics_are_averaged_and_counters_rounded() -> None:
    start = clone(dict(nn.BatchNorm1d(2).state_dict()))
    one, other = clone(start), clone(start)
    one["running_mean"], other["running_mean"] = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 2.0])
    one["num_batches_tracked"], other["num_batches_tracked"] = torch.tensor(10), torch.tensor(21)
    mean = finished([result(0, one, hop(0, 30)), result(1, other, hop(1, 10))], start=start).model
    assert mean["running_mean"].tolist() == [2.0, 2.0]
    assert mean["num_batches_tracked"].dtype == torch.int64
    assert mean["num_batches_tracked"].item() == 13  # 12.75
    assert mean["running_var"].tolist() == [1.0, 1.0]


def test_a_round_does_not_change_the_state_it_began_with() -> None:
    before = digest(START)
    finished([chain(0, [9.0, 9.0], 5)])
    assert digest(START) == before


def test_the_first_state_is_the_initial_model_and_everybody_is_shown_it() -> None:
    rule = Mean()
    state = rule.init(START)
    assert state.round == 0
    assert digest(state.model) == digest(START)
    assert rule.views(state) == (View("global", None),)


def test_nobody_trained() -> None:
    with pytest.raises(Diverged, match="no chain of this round trained a single sample"):
        finished([], planned=[])


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e9])
def test_divergence_names_chain_and_round(value: float) -> None:
    with pytest.raises(Diverged, match=r"chain 1 of round 4.*tensor 'w'"):
        finished([chain(0, [1.0, 1.0], 5), chain(1, [value, 1.0], 5)])


def test_unknown_weights() -> None:
    with pytest.raises(InputError, match=r"weights must be 'samples' or 'uniform', not 'size'\."):
        Mean("size")  # type: ignore[arg-type]
