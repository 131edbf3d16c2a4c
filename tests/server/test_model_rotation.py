"""Models handed on between rounds: the walk of every model done by hand, weights, resting models, and what is evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedgsp
from fedgsp.client import SGD
from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.plan import Grouped, OneChain, Random, Singletons
from fedgsp.server import Mean, ModelRotation, View
from tests.support.small_federations import bits, images, pairs, vector, walk, weight
from tests.support.tiny import federation

LR = 0.05
CLIENTS = ([(1.0, 2.0)], [(2.0, -1.0), (1.0, 1.0)], [(1.0, 0.5)])


class Plans(fedgsp.Callback):
    """Remembers the plans, with the models that their chains begin with."""

    def __init__(self) -> None:
        self.seen: list[Plan] = []

    def on_round_start(self, plan: Plan) -> None:
        self.seen.append(plan)


def trained(w: float, client: int) -> float:
    """One full-batch step of the mean squared error."""
    grads = [2 * (w * x - y) * x for x, y in CLIENTS[client]]
    return w - LR * sum(grads) / len(grads)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_four_rounds_by_hand(weights: Any) -> None:
    """Three clients, averaged every third round: rounds 1-3 are a daisy chain, round 4 begins from the average."""
    rule = ModelRotation(weights, period=3, judge="own")
    method = Method(Grouped(Singletons(), Random(), kappa=1.0), SGD(lr=LR, batch_size=8), rule)
    plans = Plans()
    options: dict[str, Any] = {"model": lambda: weight(1.0), "workers": 0, "callbacks": [plans]}
    result = fedgsp.train(method, pairs(*CLIENTS), rounds=4, **options)
    live = {"global": (1.0, 0)}
    for plan in plans.seen:
        begin = dict(live)
        after = []
        for chain in plan.chains:
            w, samples = begin[chain.start]
            (client,) = chain.clients
            after.append((trained(w, client), samples + len(CLIENTS[client])))
        shares = np.array([s if weights == "samples" else 1 for _, s in after], dtype=float)
        mean = float(np.dot([w for w, _ in after], shares) / shares.sum())
        live = {"global": (mean, 0)}
        if plan.round % 3:
            live |= {f"live-{i}": pair for i, pair in enumerate(after)}
    assert [sorted({c.start for c in plan.chains}) for plan in plans.seen] == [
        ["global"], ["live-0", "live-1", "live-2"], ["live-0", "live-1", "live-2"], ["global"],
    ]  # fmt: skip
    assert any(plan.chains[i].start != f"live-{i}" for plan in plans.seen[1:3] for i in range(3)), "models do move"
    found = {name: float(tensors["weight"]) for name, tensors in result.state.models.items()}
    assert found == pytest.approx({name: w for name, (w, _) in live.items()}, abs=1e-6)


def finished(
    state: ServerState, starts: list[str], models: list[float], samples: list[int], rule: ModelRotation
) -> ServerState:
    chains = tuple(Chain((10 + i,), start=start) for i, start in enumerate(starts))
    update = rule.start(state, Plan(state.round + 1, chains, len(chains)), samples)
    for i in reversed(range(len(chains))):
        hop = HopReport(10 + i, 0, 0, samples[i], 1, 0, 0, 0.0)
        update.add(ChainResult(i, chains[i], vector(models[i]), (hop,)))
    return update.finish()


def test_fewer_chains_let_models_rest_and_more_begin_with_the_mean() -> None:
    rule = ModelRotation(period=9)
    first = finished(rule.init(vector(0.0)), ["global"] * 2, [1.0, 5.0], [1, 3], rule)
    assert first.model["w"].item() == 4.0
    one = rule.route(first, Plan(2, (Chain((7,)),), 1), Seeds(0))
    assert one.chains[0].start == "live-0"
    second = finished(first, ["live-0"], [9.0], [4], rule)
    assert second.model["w"].item() == (9 * (1 + 4) + 5 * 3) / 8
    assert {name: t["w"].item() for name, t in second.models.items() if name != "global"} == {"live-0": 9.0, "live-1": 5.0}
    three = rule.route(second, Plan(3, tuple(Chain((k,)) for k in range(3)), 3), Seeds(0))
    assert sorted(chain.start for chain in three.chains) == ["global", "live-0", "live-1"]


def test_what_is_evaluated_between_averagings() -> None:
    own, mean = ModelRotation(period=2, judge="own"), ModelRotation(period=2)
    between = finished(own.init(vector(0.0)), ["global"] * 2, [1.0, 5.0], [1, 3], own)
    assert own.views(between) == (View(), View("live-0", (10,)), View("live-1", (11,)))
    assert mean.views(between) == (View(),)
    averaged = finished(between, ["live-0", "live-1"], [2.0, 6.0], [1, 3], own)
    assert list(averaged.models) == ["global"]
    assert own.views(averaged) == (View(),)
    assert (own.yields, mean.yields, ModelRotation(period=1, judge="own").yields) == ("several", "one", "one")


def test_each_client_is_judged_on_the_model_it_holds() -> None:
    """The test losses of a run against those of the models, client by client."""
    data = federation()
    method = replace(named("feddc"), local=SGD(lr=0.05, batch_size=3))
    result = fedgsp.train(method, data, "tests.support.tiny:linear", rounds=1, workers=0)
    losses, sizes = [], []
    for facts, name in ((facts, name) for name, facts in result.state.extra["live"].items()):
        (client,) = facts["clients"]
        rows = data.test[client]
        if len(rows):
            outputs = result.model(name)(torch.from_numpy(data.features[rows]))
            losses.append(torch.nn.functional.cross_entropy(outputs, torch.from_numpy(data.labels[rows])).item())
            sizes.append(int(data.sizes[client]))
    assert result.history[0]["test_clients"] == len(losses)
    assert result.history[0]["loss"] == pytest.approx(np.average(losses, weights=sizes), rel=1e-5)


def test_one_model_handed_on_is_one_chain_to_the_bit() -> None:
    """A single client a round, its model handed on for ever: the same bits as walking on without any server rule."""
    data = images(clients=4, each=8)
    plans = Plans()
    planner = Grouped(Singletons(), Random(), kappa=0.25)
    found = {
        bits(fedgsp.train(Method(planner, SGD(lr=0.05), server), data, rounds=3, workers=0, callbacks=[plans]).state.model)
        for server in (ModelRotation(period=50), ModelRotation(period=50, judge="own"), Mean())
    }
    assert len(found) == 1
    assert len({plan.chains[0].clients for plan in plans.seen[:3]}) > 1


def test_cyclic_weight_transfer_is_one_walk_to_the_bit() -> None:
    data = images(clients=5, each=8)
    local = SGD(lr=0.05)
    run = fedgsp.train(Method(OneChain(order="fixed"), local, Mean()), data, rounds=1, workers=0, fast="off")
    (chain,) = OneChain(order="fixed").plan(1, data.profiles(), Seeds(0)).chains
    tensors, hops = walk(local, data, run.run.worker_setup.model.build, chain, run.run.initial_model)
    assert bits(tensors) == bits(run.state.model)
    assert run.history[0]["bytes"] == sum(hop.bytes_down + hop.bytes_up for hop in hops)


def test_every_model_goes_down_and_up_once_a_round() -> None:
    result = fedgsp.train("feddc", images(clients=6, each=8), rounds=2, workers=0)
    model_bytes = sum(t.numel() * 4 for t in result.state.model.values())
    assert [entry["bytes"] for entry in result.history] == [2 * 6 * model_bytes] * 2


def test_files_of_live_models_come_and_go(tmp_path: Path) -> None:
    method = replace(named("feddc"), server=ModelRotation("uniform", period=2, judge="own"))
    data = images(clients=3, each=8)
    fedgsp.train(method, data, rounds=1, workers=0, out=tmp_path / "run")
    assert sorted(f.name for f in (tmp_path / "run").glob("model*")) == [
        "model-live-0.safetensors", "model-live-1.safetensors", "model-live-2.safetensors", "model.safetensors",
    ]  # fmt: skip
    assert fedgsp.replay(tmp_path / "run", workers=0, data=data).differs is None
    fedgsp.resume(tmp_path / "run", rounds=2, data=data)
    assert [f.name for f in (tmp_path / "run").glob("model*")] == ["model.safetensors"]


def test_live_models_that_do_not_fit_in_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgsp.run import checks

    data = images(clients=6, each=8)
    model_bytes = sum(t.numel() * 4 for t in fedgsp.train("fedavg", data, rounds=1, workers=0).state.model.values())
    monkeypatch.setattr(checks, "memory_bytes", lambda: 3 * 6 * model_bytes - 1)
    fedgsp.train(replace(named("feddc"), server=ModelRotation(period=1)), data, rounds=1, workers=0)
    with pytest.raises(InputError, match="the server holds the live models of all chains between rounds"):
        fedgsp.train("feddc", data, rounds=1, workers=0)


@pytest.mark.parametrize(
    ("wrong", "sentence"), [({"period": 0}, "period must be at least 1"), ({"judge": "all"}, "judge must be 'mean' or 'own'")]
)
def test_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ModelRotation(**wrong)
    with pytest.raises(InputError, match="cannot go around a rule with several live ones"):
        named("feddc+fusion")
