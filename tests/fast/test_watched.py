"""Rules with terms of outputs, features, weights or a hop's constants: by the kernels as by plain PyTorch steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.client import MMD, SGD, Distill, Dyn, Fusion, Moon, Prox, Scaffold
from fedgsp.client.client_state import ClientStates
from fedgsp.client.context import GradientTerm, LocalContext
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Hop, HopReport
from fedgsp.core.native import Library
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, clone, digest
from fedgsp.data.arrays import from_arrays
from fedgsp.data.federated import FederatedData
from fedgsp.fast import PLAIN, Kernel
from fedgsp.fast.build import library
from fedgsp.models import classification, leaf_cnn, small_cnn
from fedgsp.models.split import BatchOutputs, Level
from fedgsp.models.state import model_tensors
from tests.support.hops import choose, compiled

CLOSE = 1e-5
"""The largest difference, relative to the largest change that the epoch made."""
CLASSES = 10

pytestmark = pytest.mark.skipif(not isinstance(library(), Library), reason="there is no C compiler here")


@dataclass(frozen=True, kw_only=True)
class PulledFusion(Fusion):
    """What no rule of the package combines: an operator, a term of features and outputs, a pull and a drift."""

    def loss_term(self, ctx: LocalContext, seen: BatchOutputs, y: torch.Tensor) -> torch.Tensor | None:
        assert seen.features is not None
        return 0.3 * (seen.features - seen.frozen["reference"]).square().mean() + 0.1 * seen.outputs.square().mean()

    def gradient_term(self, ctx: LocalContext) -> GradientTerm:
        return GradientTerm(
            0.5, clone(model_tensors(ctx.model)), {n: 0.1 * t for n, t in clone(model_tensors(ctx.model)).items()}
        )


RULES: dict[str, SGD] = {
    "mmd": MMD(lr=0.02, lam=0.1),
    "mmd on features": MMD(lr=0.02, lam=0.02, on="features"),
    "mmd with decay": MMD(lr=0.02, lam=0.1, weight_decay=0.01, batch_size=4),
    "mmd, lam=0": MMD(lr=0.02, lam=0.0),
    "fusion conv": Fusion(lr=0.02),
    "fusion multi": Fusion(lr=0.02, operator="multi", weight_decay=0.1),
    "fusion single": Fusion(lr=0.02, operator="single", batch_size=7),
    "fusion, pulled": PulledFusion(lr=0.02),
    "moon": Moon(lr=0.02, mu=5.0),
    "distill": Distill(lr=0.02, gamma=1.0),
    "distill by squares": Distill(lr=0.02, gamma=1.0, match="mse", epochs=2),
    "dyn": Dyn(lr=0.02, alpha=0.1),
    "scaffold": Scaffold(lr=0.02),
    "scaffold with decay": Scaffold(lr=0.02, weight_decay=0.1),
}
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "leaf_cnn": (lambda: leaf_cnn((16, 16), CLASSES), (16, 16)),
    "small_cnn": (lambda: small_cnn((16, 16), CLASSES), (16, 16)),
    "perceptron": (lambda: Perceptron(), (5, 6)),
}


class Perceptron(nn.Module):
    """Features that are flat and end in a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(30, 23), nn.ReLU(), nn.Linear(23, 17), nn.ReLU())
        self.classifier = nn.Sequential(nn.Linear(17, 12), nn.ReLU(), nn.Linear(12, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.features(x))
        return logits


def federation(shape: tuple[int, ...], samples: int, seed: int = 0) -> FederatedData:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, *shape)).astype(np.float32)
    return from_arrays(x, rng.integers(0, CLASSES, samples), np.zeros(samples, int), ["one"], classes=CLASSES, test_fraction=0)


def shared_for(rule: SGD, model: nn.Module) -> Tensors:
    """What a server could have sent along."""
    generator = torch.Generator().manual_seed(5)
    if isinstance(rule, Scaffold):
        return {name: 0.1 * torch.randn(t.shape, generator=generator) for name, t in rule.initial_client_state(model).items()}
    if isinstance(rule, Distill):
        said = torch.randn(CLASSES, CLASSES, generator=generator)
        return {"distill.sum": said, "distill.count": torch.arange(CLASSES) % 3, "distill.round": torch.tensor(0)}
    return {}


def visited(model: nn.Module, rule: SGD, data: FederatedData, kernel: Kernel) -> tuple[Tensors, Tensors, HopReport]:
    """(the model after a hop, what the client keeps then, the report).

    It is the client's second: after the first, by plain steps, the model went half the way back, so that it is not the one that
    the client knows, and what it keeps is something.
    """
    turn, client_states, shared = trainer(model, rule, data, PLAIN), ClientStates(), shared_for(rule, model)
    turn.train(1, Hop(0, 0, 0), clone(model_tensors(model)), shared, client_states=client_states)
    start = {name: (t + turn.tensors()[name]) / 2 for name, t in model_tensors(model).items()}
    again = trainer(model, rule, data, kernel)
    again.load(start)
    report = again.train(2, Hop(0, 0, 0), start, shared, client_states=client_states)
    return clone(again.tensors()), client_states.in_memory.get(0, {}), report


def trainer(model: nn.Module, rule: SGD, data: FederatedData, kernel: Kernel) -> Trainer:
    return Trainer(copy.deepcopy(model), rule, classification(), data, torch.device("cpu"), Seeds(3), kernel)


def equipped(name: str, rule: SGD, data: FederatedData) -> tuple[nn.Module, Kernel]:
    example = torch.from_numpy(np.asarray(data.features[:2]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = rule.wrap_model(MODELS[name][0](), example[:1])
    if isinstance(rule, Fusion) and rule.operator != "conv":
        nn.init.uniform_(next(model.fusion.parameters()), 0.2, 0.4)  # type: ignore[union-attr]
    return model, compiled(model, rule, data)


SHAKY = [("perceptron", "mmd on features")]
"""Left out below: MMD's narrowest kernel (variance 1e-6) amplifies rounding, and with these features 5.9e-5 was found. For the
same reason the weight of MMD's term is small in all cases; docs/performance.md says so."""


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n in MODELS for k in RULES if (n, k) not in SHAKY])
def test_the_weights_and_what_is_kept_are_those_of_plain_steps(name: str, kind: str) -> None:
    rule, data = RULES[kind], federation(MODELS[name][1], 33)
    model, kernel = equipped(name, rule, data)
    before = clone(model_tensors(model))
    plain, fast = (visited(model, rule, data, chosen) for chosen in (PLAIN, kernel))
    change = max(float((plain[0][n] - before[n]).abs().max()) for n in before)
    assert max(float((plain[0][n] - fast[0][n]).abs().max()) for n in before) <= CLOSE * change
    assert plain[1].keys() == fast[1].keys()
    for n, kept in plain[1].items():
        torch.testing.assert_close(fast[1][n], kept, rtol=1e-4, atol=1e-4 * float(kept.float().abs().max()))
    assert fast[2].metrics["loss"] == pytest.approx(plain[2].metrics["loss"], rel=1e-5)
    assert replace(fast[2], seconds=0.0, metrics={}) == replace(plain[2], seconds=0.0, metrics={})


@pytest.mark.parametrize("kind", RULES)
def test_the_bits_are_the_same_every_time(kind: str) -> None:
    rule, data = RULES[kind], federation((16, 16), 17)
    model, kernel = equipped("small_cnn", rule, data)
    assert len({digest(visited(model, rule, data, kernel)[0]) for _ in range(2)}) == 1


@pytest.mark.parametrize("kind", [kind for kind in RULES if kind != "mmd, lam=0"])
def test_every_rule_makes_another_model_than_plain_sgd(kind: str) -> None:
    """Or the comparison above would say nothing about its term."""
    rule, data = RULES[kind], federation((16, 16), 33)
    model, kernel = equipped("small_cnn", rule, data)
    plain = SGD(lr=rule.lr, batch_size=rule.batch_size, epochs=rule.epochs)
    bare, bare_kernel = equipped("small_cnn", plain, data)
    ours, theirs = visited(model, rule, data, kernel)[0], visited(bare, plain, data, bare_kernel)[0]
    assert max(float((ours[n] - theirs[n]).abs().max()) for n in theirs) > 1e-3


@pytest.mark.parametrize("rule", [MMD(lam=0.0), Moon(mu=0.0)], ids=["mmd", "moon"])
def test_without_weight_a_term_leaves_plain_sgd_to_the_bit(rule: SGD) -> None:
    data = federation((16, 16), 33)
    model, kernel = equipped("small_cnn", rule, data)
    bare, bare_kernel = equipped("small_cnn", SGD(), data)
    assert digest(visited(model, rule, data, kernel)[0]) == digest(visited(bare, SGD(), data, bare_kernel)[0])


@pytest.mark.parametrize("method", ["fedmmd", "fedfusion"])
def test_any_number_of_workers_gives_the_same_bits(method: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 8, 8)).astype(np.float32), rng.integers(0, 4, 60)
    data = from_arrays(x, y, np.arange(60) % 6, [*"abcdef"], classes=4)
    runs = [fedgsp.train(method, data, "small_cnn", rounds=2, workers=workers, fast="on") for workers in (0, 2)]
    assert len({run.state.digest() for run in runs}) == 1


def test_a_model_without_halves_and_one_whose_halves_are_unknown_say_why() -> None:
    class Odd(Perceptron):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Flatten())
            self.classifier = nn.Sequential(nn.Linear(30, CLASSES))

    kernel = choose("auto", Odd(), federation((5, 6), 7), Moon())
    assert kernel.name == "plain"
    assert "its features have no layer" in kernel.why
    assert "Moon looks at the model's features" in kernel.why


@dataclass(frozen=True, kw_only=True)
class Cheating(SGD):
    """Its term uses a weight, which the kernels know nothing of."""

    def looks_at(self) -> Level:
        return "logits"

    def loss_term(self, ctx: LocalContext, seen: BatchOutputs, y: torch.Tensor) -> torch.Tensor:
        return next(ctx.model.parameters()).square().sum()


def test_a_term_of_more_than_is_seen_is_found_out() -> None:
    data = federation((16, 16), 7)
    model, kernel = equipped("small_cnn", Cheating(), data)
    with pytest.raises(RuntimeError, match=r"Cheating\.loss_term uses more than it sees"):
        visited(model, Cheating(), data, kernel)


def test_several_epochs_and_large_clients_see_the_frozen_model_of_the_same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgsp.client.train.GATHER_ROWS", 10)
    for rule in (MMD(lr=0.02, lam=0.1, epochs=3), Moon(lr=0.02, mu=5.0, epochs=2)):
        data = federation((16, 16), 33)
        model, kernel = equipped("small_cnn", rule, data)
        plain, fast = (visited(model, rule, data, chosen)[0] for chosen in (PLAIN, kernel))
        change = max(float((plain[n] - t).abs().max()) for n, t in model_tensors(model).items())
        assert max(float((plain[n] - fast[n]).abs().max()) for n in plain) <= CLOSE * change


def test_a_chain_with_the_global_anchor_pays_for_the_reference_as_before() -> None:
    data = federation((16, 16), 12)
    for rule in (MMD(anchor="global"), Fusion(anchor="global"), Prox(anchor="global")):
        model, kernel = equipped("small_cnn", rule, data)
        turns = [trainer(model, rule, data, chosen) for chosen in (PLAIN, kernel)]
        reports = [turn.train(1, Hop(1, 0, 0), clone(model_tensors(model)), {}, first=False) for turn in turns]
        plain, fast = (replace(report, seconds=0.0, metrics={}) for report in reports)
        assert plain == fast
        assert reports[0].bytes_down > reports[0].bytes_up
