from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import fedgsp
from fedgsp.client import SGD, Moon
from fedgsp.client.client_state import ClientStates
from fedgsp.client.moon import contrast
from fedgsp.core.chain import Chain
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import clone
from fedgsp.data.arrays import from_arrays
from fedgsp.engine.base import WorkerSetup
from fedgsp.engine.chain_runner import ChainRunner
from fedgsp.models import classification, initial_tensors, small_cnn
from fedgsp.models.catalog import ModelSpec
from fedgsp.parts import decode, encode
from tests.support.small_federations import bits, fedavg, images, walk

Array = NDArray[np.float64]


def test_the_term_on_paper() -> None:
    """cos 1 and 0 over 0.5: -log(e^2 / (e^2 + 1)) = log(1 + e^-2); the batch's second row is the other way round."""
    z = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    near, far = torch.tensor([[2.0, 0.0], [5.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    wanted = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2))) / 2
    assert contrast(z, near, far, 0.5).item() == pytest.approx(wanted, rel=1e-6)


class Net(nn.Module):
    """Two linear halves with given weights."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(2, 2, bias=False)
        self.classifier = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.features.weight.copy_(torch.tensor([[1.0, -0.5], [0.25, 0.75]]))
            self.classifier.weight.copy_(torch.tensor([[0.5, -1.0], [1.0, 0.5]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.classifier(self.features(x))
        return out


X, LAST = np.array([1.0, 2.0]), np.array([[0.5, 0.5], [-1.0, 0.3]])


def loss(features: Array, classifier: Array, near: Array, mu: float, tau: float, last: Array = LAST) -> float:
    """CE of class 1 plus the contrast, for the one sample X, in NumPy."""
    z = features @ X
    logits = classifier @ z

    def cosine(a: Array, b: Array) -> float:
        return float(a @ b / np.sqrt((a @ a) * (b @ b)))

    towards, away = cosine(z, near @ X) / tau, cosine(z, last @ X) / tau
    entropy = math.log(np.exp(logits).sum()) - float(logits[1])
    return entropy + mu * -math.log(math.exp(towards) / (math.exp(towards) + math.exp(away)))


def slope(f: Any, at: Array) -> Array:
    found = np.zeros_like(at)
    for index in np.ndindex(*at.shape):
        step = np.zeros_like(at)
        step[index] = 1e-6
        found[index] = (f(at + step) - f(at - step)) / 2e-6
    return found


@pytest.mark.parametrize(("mu", "tau"), [(0.7, 0.5), (3.0, 1.0)])
def test_a_step_against_the_loss_written_out(mu: float, tau: float) -> None:
    data = from_arrays(X[None].astype(np.float32), np.array([1]), np.zeros(1, dtype=np.int64), classes=2, test_fraction=0)
    client_states, lr, net = ClientStates(), 0.1, Net()
    client_states.in_memory[0] = {"features.weight": torch.tensor(LAST, dtype=torch.float32)}
    after, hops = walk(Moon(lr=lr, mu=mu, tau=tau), data, Net, Chain((0,)), client_states=client_states)
    f = net.features.weight.detach().double().numpy()
    c = net.classifier.weight.detach().double().numpy()
    wanted_f = f - lr * slope(lambda at: loss(at, c, f, mu, tau), f)
    wanted_c = c - lr * slope(lambda at: loss(f, at, f, mu, tau), c)
    np.testing.assert_allclose(after["features.weight"].numpy(), wanted_f, atol=1e-5)
    np.testing.assert_allclose(after["classifier.weight"].numpy(), wanted_c, atol=1e-5)
    assert hops[0].metrics["loss"] == pytest.approx(loss(f, c, f, 0.0, tau), rel=1e-5), "the plain loss is reported"
    assert torch.equal(client_states.in_memory[0]["features.weight"], after["features.weight"]), "and the new extractor kept"


class Drawn(Net):
    """The same, drawn at random where it is built."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.features.weight.normal_()


@pytest.mark.parametrize("round_", [1, 2])
@pytest.mark.parametrize("first_visit", ["handed", "untrained"])
def test_a_first_hop(round_: int, first_visit: Any) -> None:
    """Plain SGD, but "untrained" from round 2 on: then away from weights that the client draws for itself."""
    data = from_arrays(X[None].astype(np.float32), np.array([1]), np.zeros(1, dtype=np.int64), classes=2, test_fraction=0)
    lr, mu, tau, net = 0.1, 3.0, 0.5, Net()
    spec, rule = ModelSpec("drawn", Drawn), Moon(lr=lr, mu=mu, tau=tau, first_visit=first_visit)
    runner, client_states = ChainRunner.of(WorkerSetup(spec, rule, classification(), data, Seeds(7))), ClientStates()
    start = clone(dict(net.state_dict()))
    after, _ = runner.run(round_, Chain((0,)), start, {}, frozenset(), client_states=client_states)
    drawn = initial_tensors(spec, Seeds(7).untrained(0))["features.weight"].double().numpy()
    f, c = (tensor.double().numpy() for tensor in start.values())
    pushed = round_ > 1 and first_visit == "untrained"
    wanted = f - lr * slope(lambda at: loss(at, c, f, mu if pushed else 0.0, tau, drawn), f)
    np.testing.assert_allclose(after["features.weight"].numpy(), wanted, atol=1e-5)
    last = clone(after)
    again, _ = runner.run(3, Chain((0,)), start, {}, frozenset(), client_states=client_states)
    own = last["features.weight"].double().numpy()
    wanted = f - lr * slope(lambda at: loss(at, c, f, mu, tau, own), f)
    np.testing.assert_allclose(again["features.weight"].numpy(), wanted, atol=1e-5, err_msg="the second is away from its own")


def test_runs_that_begin_untrained_are_the_same_on_any_number_of_workers() -> None:
    def run(first_visit: Any, workers: int) -> str:
        method = fedavg(local=Moon(lr=0.05, mu=5.0, first_visit=first_visit))
        return fedgsp.train(method, images(clients=6, each=8), "small_cnn", rounds=3, workers=workers).state.digest()

    assert run("untrained", 0) == run("untrained", 2)
    assert run("untrained", 0) != run("handed", 0)


DATA = images(clients=3, each=8)


def net() -> nn.Module:
    torch.manual_seed(0)
    return small_cnn((8, 8), 4)


def test_a_first_hop_is_plain_sgd_and_a_second_is_not() -> None:
    once = [walk(rule, DATA, net, Chain((0,)))[0] for rule in (SGD(lr=0.05, batch_size=20), Moon(lr=0.05, batch_size=20))]
    for name, tensor in once[0].items():
        torch.testing.assert_close(once[1][name], tensor, atol=1e-6, rtol=1e-5)
    twice = [walk(rule, DATA, net, Chain((0, 1), passes=2))[0] for rule in (SGD(lr=0.05), Moon(lr=0.05, mu=5.0))]
    assert any(not torch.allclose(twice[0][name], twice[1][name], atol=1e-5) for name in twice[0])


def test_mu_of_zero_is_plain_sgd_to_the_bit_and_keeps_nothing() -> None:
    plain, moon = (walk(rule, DATA, net, Chain((0, 1), passes=2)) for rule in (SGD(lr=0.05), Moon(lr=0.05, mu=0.0)))
    assert bits(plain[0]) == bits(moon[0])
    assert Moon(mu=0.0).initial_client_state(net()) == {}


def test_the_default_is_not_written_down() -> None:
    assert "first_visit" not in encode(Moon())
    assert decode("local", encode(Moon(first_visit="untrained")), "local") == Moon(first_visit="untrained")


def test_only_the_extractor_is_kept() -> None:
    kept = Moon().initial_client_state(net())
    assert kept
    assert all(name.startswith("features.") for name in kept)


def test_refusals() -> None:
    with pytest.raises(InputError, match="mu must be a number of at least 0"):
        Moon(mu=-1.0)
    with pytest.raises(InputError, match="tau must be a positive number"):
        Moon(tau=0.0)
    with pytest.raises(InputError, match="first_visit must be 'handed' or 'untrained', not 'global'"):
        Moon(first_visit="global")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'moon' needs a model that says where its features end"):
        walk(Moon(), DATA, lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), Chain((0,)))
