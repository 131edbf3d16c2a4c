"""Whole runs of every method: they learn, resume to the bit, agree over workers, and fall back on FedAvg where they must."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedgsp
from fedgsp.client import MMD, SGD, Fusion, Moon, Prox, Scaffold
from fedgsp.core.state import GLOBAL, beside
from fedgsp.data.batches import gather
from fedgsp.method import Method
from fedgsp.methods import METHODS, decode_method, named
from fedgsp.plan import Grouped, Mediators, Random, Singletons, Superclients, Switch
from fedgsp.prepare import FAugGAN, ShareData
from fedgsp.server import IDA, Clustered, FedExP, FusionServer, Mean, ModelRotation, Momentum, Nova, ScaffoldServer
from tests.support.small_federations import bits, fedavg, images

COMBINED = (
    "fedgsp+yogi", "fedgsp+prox+adam", "fedgsp+fusion-multi+momentum", "stp-kl+mmd+ida-intrac", "fedgsp+scaffold+yogi",
    "fedgsp+dyn", "fedgsp+moon", "fedgsp+uga+meta", "astraea+scaffold", "fedgsp+per-fedavg", "fedgsp+nova", "fedgsp+exp",
    "fedgsp+hand-on",
)  # fmt: skip
EVERY = (*METHODS, *COMBINED)
DATA = images(each=12)
LARGER = images(each=20)


def tiny(name: str) -> Method:
    """A method on fewer groups, so that twelve clients still form chains of several."""
    method = named(name)
    growth = getattr(method.planner, "growth", None)
    if growth is not None and hasattr(growth, "beta"):
        method = replace(method, planner=replace(method.planner, growth=replace(growth, beta=2), kappa=0.6))  # type: ignore[type-var]
    elif growth is not None and hasattr(growth, "count"):
        method = replace(method, planner=replace(method.planner, growth=replace(growth, count=3), kappa=0.6))  # type: ignore[type-var]
    elif isinstance(method.planner, Mediators):
        method = replace(method, planner=replace(method.planner, gamma=2))
    elif isinstance(method.planner, Superclients):
        method = replace(method, planner=Superclients(kappa=0.8, most_clients=3, least_samples=25))
    elif isinstance(method.planner, Switch):
        method = replace(method, planner=replace(method.planner, rounds=1))
    if isinstance(method.preparation, FAugGAN):
        method = replace(method, preparation=FAugGAN(epochs=2, per_class=8))
    elif isinstance(method.preparation, ShareData):
        method = replace(method, preparation=ShareData(donors=0.2))
    if isinstance(method.server, Clustered):  # one that splits at once
        method = replace(method, server=Clustered(eps1=100.0, eps2=1e-6, gamma=-1.0, first_round=1))
    return replace(method, local=replace(method.local, lr=0.05))


def run(method: Method | str, rounds: int = 2, workers: int = 0, **options: Any) -> fedgsp.RunResult:
    return fedgsp.train(tiny(method) if isinstance(method, str) else method, DATA, rounds=rounds, workers=workers, **options)


@pytest.mark.parametrize("name", EVERY)
def test_every_method_runs_and_is_repeatable_and_its_config_says_all(name: str) -> None:
    first = run(name)
    assert np.isfinite(first.history[-1]["loss"])
    assert first.rounds == 2
    spelled = decode_method(tiny(name).encode())
    assert spelled == tiny(name)
    assert run(spelled).state.digest() == first.state.digest()


@pytest.fixture(scope="module")
def glyphs(tmp_path_factory: pytest.TempPathFactory) -> fedgsp.FederatedData:
    """The data that comes with the package, four writers of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDGSP_CACHE", str(tmp_path_factory.mktemp("cache")))
        return fedgsp.load("glyphs:clients=4")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs_two_rounds_on_tiny_glyphs(name: str, glyphs: fedgsp.FederatedData) -> None:
    method = named(name)
    if isinstance(method.preparation, FAugGAN):  # minutes of training a GAN, else
        method = replace(method, preparation=replace(method.preparation, epochs=1, per_class=20))
    result = fedgsp.train(method, glyphs, rounds=2, workers=0, batch_size=20)
    assert result.rounds == 2
    assert 0 < result.history[-1]["loss"] < 6


LEARNERS = {
    "fedavg": 0.1, "fedprox": 0.1, "fedmmd": 0.1, "fedfusion": 0.1, "fedfusion-multi": 0.1, "fedfusion-single": 0.1, "ida": 0.1,
    "ida-intrac-fedavg": 0.1, "fedadagrad": 0.05, "fedadam": 0.2, "fedyogi": 0.2, "fedavgm": 0.05, "astraea": 0.05,
    "astraea-zscore": 0.05, "stp-random": 0.1, "stp-kl": 0.1, "fedgsp+yogi": 0.05, "fedgsp+prox": 0.1, "scaffold": 0.1,
    "fednova": 0.1, "fedexp": 0.1, "feddyn": 0.1, "moon": 0.1, "per-fedavg": 0.1, "fedgsp+scaffold": 0.1,
    "fedgsp+dyn": 0.05, "fedgsp+moon": 0.1,
    "fedseq": 0.1, "fedseq-inter": 0.1, "cwt": 0.05, "cyclic-fl": 0.1, "feddc": 0.1, "cfl": 0.1, "fedgsp+hand-on": 0.1,
    "data-sharing": 0.1, "hybrid-fl": 0.1, "faug": 0.1, "faug-oversample": 0.1, "fd": 0.1,
}  # fmt: skip


@pytest.mark.parametrize("name", LEARNERS)
def test_a_short_run_learns(name: str) -> None:
    method = tiny(name)
    method = replace(method, local=replace(method.local, lr=LEARNERS[name], epochs=2))
    result = fedgsp.train(method, LARGER, rounds=10, workers=0)
    first, last = result.history[0], result.history[-1]
    assert last["loss"] < 0.75 * first["loss"] or last["accuracy"] > 0.9, (first["loss"], last["loss"], last["accuracy"])


@pytest.mark.parametrize(("name", "step"), [("fedmeta-uga", 0.5), ("fedgsp+uga", 0.1)])
def test_unbiased_gradients_learn(name: str, step: float) -> None:
    """One gradient step a visit, so it takes a larger step and more rounds than SGD."""
    method = tiny(name)
    local = replace(method.local, lr=0.01, step=step)  # type: ignore[call-arg]
    result = fedgsp.train(replace(method, local=local), LARGER, rounds=20, workers=0)
    assert result.history[-1]["accuracy"] > 0.8


@pytest.mark.parametrize("name", EVERY)
def test_a_resumed_run_has_the_bits_of_one_never_stopped(name: str, tmp_path: Path) -> None:
    method = tiny(name)
    fedgsp.train(method, DATA, rounds=1, workers=0, out=tmp_path / "run")
    resumed = fedgsp.resume(tmp_path / "run", rounds=2, data=DATA)
    whole = run(method, rounds=2)
    assert resumed.state.digest() == whole.state.digest()
    assert resumed.state.extra == whole.state.extra
    skip = {"timings"}
    for ours, theirs in zip(resumed.history, whole.history, strict=True):
        assert {k: v for k, v in ours.items() if k not in skip} == {k: v for k, v in theirs.items() if k not in skip}


@pytest.mark.parametrize(
    "name",
    [
        "fedgsp+fusion-multi+adam", "stp-kl+prox+ida-intrac", "cfl", "fedseq-inter", "astraea+scaffold", "per-fedavg", "fd",
    ],
)  # fmt: skip
def test_workers_cannot_change_a_bit(name: str) -> None:
    assert_same_with_workers(name)


@pytest.mark.slow
@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", EVERY)
def test_workers_cannot_change_a_bit_of_any_method(name: str) -> None:
    assert_same_with_workers(name)


def assert_same_with_workers(name: str) -> None:
    alone, pooled = run(name), run(name, workers=2)
    assert alone.state.digest() == pooled.state.digest()
    assert alone.history[-1]["loss"] == pooled.history[-1]["loss"]


@pytest.mark.parametrize(
    "method",
    [
        fedavg(local=Prox(lr=0.05, mu=0.0)),
        fedavg(local=Prox(lr=0.05, mu=0.0, anchor="global")),
        fedavg(local=MMD(lr=0.05, lam=0.0)),
        fedavg(server=Momentum(lr=1.0, beta=0.0)),
        fedavg(server=ModelRotation(period=1)),
        fedavg(local=SGD(lr=0.05, report_accuracy=True)),
        fedavg(local=Moon(lr=0.05, mu=0.0)),
        fedavg(local=SGD(lr=0.05, report_steps=True), server=Nova()),
    ],
    ids=[
        "mu=0",
        "mu=0 global",
        "lam=0",
        "server lr 1",
        "averaged every round",
        "reporting",
        "moon mu=0",
        "nova, equal steps",
    ],
)
def test_limit_cases_are_fedavg_to_the_bit(method: Method) -> None:
    plain: dict[str, Any] = {"rounds": 3, "fast": "off"}  # bits are those of one kernel, and not every rule has the fast one
    assert bits(run(method, **plain).state.model) == bits(run(fedavg(), **plain).state.model)


@pytest.mark.parametrize(
    "method",
    [fedavg(IDA("ida")), fedavg(ScaffoldServer(), Scaffold(lr=0.05)), fedavg(FedExP())],
    ids=["ida", "scaffold", "fedexp"],
)
def test_with_one_client_it_is_fedavg_to_the_bit(method: Method) -> None:
    one = images(clients=1)
    plain, other = (fedgsp.train(chosen, one, rounds=4, workers=0, fast="off") for chosen in (fedavg(), method))
    assert bits(plain.state.model) == bits(other.state.model)


def test_with_clients_alike_scaffold_is_fedavg_to_the_bit() -> None:
    """Four clients with the same one sample: c = c_k at all times, and corrections vanish."""
    same = fedgsp.from_arrays(
        np.ones((4, 2), dtype=np.float32), np.ones(4, dtype=np.int64), np.arange(4), test_fraction=0, classes=2
    )
    planner = Grouped(Singletons(), Random(), kappa=1.0)
    methods = (Method(planner, SGD(lr=0.05), Mean()), Method(planner, Scaffold(lr=0.05), ScaffoldServer()))
    plain, other = (fedgsp.train(m, same, lambda: nn.Linear(2, 2), rounds=4, workers=0, seed=1) for m in methods)
    assert bits(plain.state.model) == bits(other.state.model)


def test_on_single_clients_the_anchor_does_not_matter() -> None:
    for rule in (Prox(lr=0.05, mu=0.3), MMD(lr=0.05, lam=0.3), Fusion(lr=0.05, operator="multi")):
        handed, anchored = (run(fedavg(local=replace(rule, anchor=a)), rounds=2) for a in ("handed", "global"))
        assert bits(handed.state.model) == bits(anchored.state.model)
        assert handed.history[-1]["bytes_total"] == anchored.history[-1]["bytes_total"]


def test_in_chains_the_global_anchor_costs_a_model_for_every_client_but_the_first() -> None:
    base = tiny("fedgsp+prox")
    handed = run(base).history[0]
    anchored = run(replace(base, local=replace(base.local, anchor="global"))).history[0]  # type: ignore[call-arg]
    model_bytes = handed["bytes"] // (2 * handed["clients"])
    assert anchored["bytes"] - handed["bytes"] == model_bytes * (handed["clients"] - handed["chains"])
    assert handed["clients"] > handed["chains"]


@pytest.mark.parametrize(
    ("name", "factor", "more"),
    [("scaffold", 4, 0), ("fednova", 2, 4), ("fedexp", 2, 0), ("feddyn", 2, 0), ("moon", 2, 0), ("per-fedavg", 2, 0),
     ("fedmeta-uga", 2, 0)],
)  # fmt: skip
def test_traffic_is_what_is_sent(name: str, factor: int, more: int) -> None:
    result = run(name, rounds=1)
    model_bytes = sum(t.numel() * 4 for t in result.state.model.values())
    assert result.history[0]["bytes"] == (factor * model_bytes + more) * result.history[0]["clients"]


def test_intrac_sends_four_bytes_more_for_every_client() -> None:
    plain, intrac = run("ida", rounds=1).history[0], run("ida-intrac", rounds=1).history[0]
    assert intrac["bytes"] - plain["bytes"] == 4 * plain["clients"]


def test_astraea_moves_a_model_down_and_up_on_every_pass_and_counts_its_preparation() -> None:
    result = run("astraea")
    entry = result.history[0]
    model_bytes = sum(t.numel() * 4 for t in result.state.model.values())
    assert entry["bytes"] == 2 * 2 * model_bytes * entry["clients"]
    assert entry["bytes_total"] == entry["bytes"] + 2 * 4 * 4 * len(DATA)
    assert any("augmentation added" in note for note in result.run.notes)


def test_astraea_is_judged_on_the_data_as_it_came() -> None:
    result = run("astraea")
    assert result.run.data is not result.run.worker_setup.data
    assert result.history[0]["test_samples"] == len(DATA.test.rows)


@pytest.mark.parametrize("reference", ["prev", "new"])
def test_fedfusion_is_evaluated_with_the_reference_it_says(reference: Any) -> None:
    """The test loss against the fused forward pass written out here."""
    method = replace(tiny("fedfusion-multi"), server=FusionServer(keep=0.0, eval_ref=reference))
    result = run(replace(method, local=replace(method.local, lr=0.2)), rounds=2)
    model, before = result.state.model, run(result.run.config.method, rounds=1).state.model
    if reference == "prev":
        assert torch.equal(result.state.slots[beside(GLOBAL)]["features.0.weight"], before["features.0.weight"])
    old = before if reference == "prev" else model

    def features(w: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        for layer, pool in ((0, 2), (3, 4)):
            x = functional.conv2d(x, w[f"features.{layer}.weight"], w[f"features.{layer}.bias"], padding=2)
            x = functional.max_pool2d(functional.relu(x), pool)
        return x

    x, y = gather(DATA, DATA.test.rows)
    gamma = model["fusion.gamma"].reshape(1, -1, 1, 1)
    centred = x - x.mean(dim=(1, 2), keepdim=True)  # small_cnn standardises each image
    seen = (centred / (centred.square().mean(dim=(1, 2), keepdim=True).sqrt() + 0.01))[:, None]
    fused = gamma * features(old, seen) + (1 - gamma) * features(model, seen)
    logits = functional.linear(fused.flatten(1), model["classifier.1.weight"], model["classifier.1.bias"])
    assert gamma.abs().max() > 1e-4
    assert result.history[-1]["loss_plain"] == pytest.approx(functional.cross_entropy(logits, y).item(), abs=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(result.model()(x), logits, atol=1e-5, rtol=1e-5)
