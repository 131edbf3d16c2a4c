"""IDA: the oracle, all four variants worked out apart from the code, its limits, and that order cannot matter."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.errors import Diverged, InputError
from fedgsp.core.state import Setting
from fedgsp.core.tensors import Tensors
from fedgsp.server import IDA, Mean
from fedgsp.server.ida import chain_accuracy, l1_distance
from tests.support.small_federations import aggregate, bits, vector

MODELS = [vector(0.0, 0.0), vector(0.0, 0.0), vector(3.0, 0.0)]


def test_the_oracle_of_the_specs() -> None:
    state = IDA().init(vector(0.0, 0.0))
    result = aggregate(IDA(), state, MODELS, [1, 1, 1]).model["w"]
    assert result.tolist() == pytest.approx([0.6, 0.0], abs=1e-7)


@pytest.mark.parametrize("center", ["mean", "fedavg"])
@pytest.mark.parametrize("variant", ["ida", "ida_fedavg", "ida_intrac", "ida_intrac_fedavg"])
def test_every_variant_against_numpy(variant: Any, center: Any) -> None:
    rng = np.random.default_rng(1)
    w = rng.normal(size=(4, 6)).astype(np.float32)
    samples, accuracy, classes = np.array([3, 10, 7, 1]), np.array([0.9, 0.05, 0.5, 0.2]), 5
    share = samples / samples.sum() if center == "fedavg" else np.full(4, 0.25)
    distance = np.abs(share @ w.astype(np.float64) - w).sum(axis=1)
    alpha = 1 / (distance + 1e-8)
    if "intrac" in variant:
        alpha = alpha / np.maximum(accuracy, 1 / classes)
    if "fedavg" in variant:
        alpha = alpha * samples
    expected = (alpha / alpha.sum()) @ w.astype(np.float64)
    rule = IDA(variant, center)
    state = rule.init({"w": torch.zeros(6)}, Setting(classes=classes))
    found = aggregate(rule, state, [{"w": torch.tensor(row)} for row in w], samples.tolist(), accuracy=accuracy.tolist())
    np.testing.assert_allclose(found.model["w"].numpy(), expected, rtol=1e-6, atol=1e-7)
    assert found.round == 1


def random_models(count: int) -> list[Tensors]:
    generator = torch.Generator().manual_seed(0)
    return [{"a": torch.randn(40, generator=generator), "b": torch.randn(3, 7, generator=generator)} for _ in range(count)]


def test_one_client_and_equal_clients_give_their_model_to_the_bit() -> None:
    model = random_models(1)[0]
    state = IDA().init(random_models(2)[1])
    assert bits(aggregate(IDA(), state, [model], [5]).model) == bits(model)
    assert bits(aggregate(IDA(), state, [model] * 3, [5, 1, 2]).model) == bits(model)


def test_two_clients_are_equally_far_so_it_is_the_uniform_mean() -> None:
    models = random_models(2)
    state = IDA().init(models[0])
    ida = aggregate(IDA(), state, models, [9, 1]).model
    uniform = aggregate(Mean("uniform"), state, models, [9, 1]).model
    for name, tensor in uniform.items():
        torch.testing.assert_close(ida[name], tensor, rtol=1e-6, atol=1e-7)


def test_arrival_cannot_change_a_bit() -> None:
    models = random_models(4)
    rule = IDA("ida_fedavg")
    state = rule.init(models[0])
    chains = tuple(Chain((k,)) for k in range(4))
    found = set()
    for order in permutations(range(4)):
        update = rule.start(state, Plan(1, chains, 4), [2, 3, 4, 5])
        for k in order:
            hop = HopReport(k, 0, 0, k + 2, 1, 0, 0, 0.0, {"loss": 0.0})
            scratch = {name: t.clone() for name, t in models[k].items()}
            update.add(ChainResult(k, chains[k], scratch, (hop,)))
            for tensor in scratch.values():
                tensor.fill_(float("nan"))  # a result is only valid until the next one is asked for
        found.add(bits(update.finish().model))
    assert len(found) == 1


def test_a_chain_without_samples_does_not_count() -> None:
    state = IDA().init(vector(0.0, 0.0))
    models = [*MODELS, vector(50.0, 50.0)]
    assert aggregate(IDA(), state, models, [1, 1, 1, 0]).model["w"].tolist() == pytest.approx([0.6, 0.0], abs=1e-7)
    with pytest.raises(Diverged, match="nothing to average"):
        aggregate(IDA(), state, models, [0, 0, 0, 0])


def test_whole_number_buffers_are_averaged_but_are_no_distance() -> None:
    models = [{"w": m["w"], "count": torch.tensor(1000 * k)} for k, m in enumerate(MODELS)]
    state = IDA().init({"w": torch.zeros(2), "count": torch.tensor(0)})
    found = aggregate(IDA(), state, models, [1, 1, 1]).model
    assert found["w"].tolist() == pytest.approx([0.6, 0.0], abs=1e-7)
    assert found["count"].item() == 800  # .4 * 0 + .4 * 1000 + .2 * 2000


def test_what_nobody_trains_is_no_distance() -> None:
    """w = 0, 0, 3 gives distances 1, 1, 2 and alpha 1, 1, 1/2: w = 0.6. The running variances 0, 10^6, 0 count for none of it:
    their mean is 1 / 2.5 of 10^6. With them in the distance the second client alone would have counted less."""
    start = {"w": torch.zeros(1), "running_var": torch.ones(1)}
    models = [{"w": torch.tensor([w]), "running_var": torch.tensor([v])} for w, v in ((0.0, 0.0), (0.0, 1e6), (3.0, 0.0))]
    state = replace(IDA().init(start), trained=frozenset({"w"}))
    found = aggregate(IDA(), state, models, [1, 1, 1]).model
    assert found["w"].tolist() == pytest.approx([0.6], abs=1e-7)
    assert found["running_var"].tolist() == pytest.approx([4e5], rel=1e-6)


def test_the_distance_of_a_large_model_is_exact() -> None:
    center = {"w": torch.zeros(100_000, dtype=torch.float64)}
    assert l1_distance(center, {"w": torch.full((100_000,), -0.5)}) == 50_000


def test_a_chains_accuracy_is_its_clients_last_reports_weighed_by_samples() -> None:
    hops = [
        HopReport(0, 0, 0, 10, 1, 0, 0, 0.0, {"accuracy": 0.1}),
        HopReport(1, 1, 0, 30, 1, 0, 0, 0.0, {"accuracy": 0.2}),
        HopReport(0, 2, 1, 10, 1, 0, 0, 0.0, {"accuracy": 0.6}),
    ]
    assert chain_accuracy(hops) == pytest.approx((0.6 * 10 + 0.2 * 30) / 40)


def test_intrac_needs_classes() -> None:
    with pytest.raises(InputError, match="weighs training accuracies, so it needs data with classes"):
        IDA("ida_intrac").init(vector(0.0), Setting(classes=0))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"variant": "intrac"}, "variant must be one of ida, ida_fedavg, ida_intrac, ida_intrac_fedavg, not 'intrac'"),
        ({"center": "median"}, "center must be 'mean' or 'fedavg', not 'median'"),
        ({"eps": 0.0}, "eps must be a positive number, not 0.0"),
    ],
)
def test_wrong_parameters(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        IDA(**wrong)
