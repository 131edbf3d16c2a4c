from __future__ import annotations

from typing import Any

import pytest
import torch

import fedgsp
from fedgsp.client import Dyn
from fedgsp.client.client_state import ClientStates
from fedgsp.core.chain import Chain
from fedgsp.core.errors import InputError
from fedgsp.core.state import Setting
from fedgsp.method import Method
from fedgsp.parts import decode
from fedgsp.plan import OneChain
from fedgsp.server import DynServer
from tests.support.hand_computed import START, THREE, slope, trained
from tests.support.small_federations import aggregate, pairs, vector, walk, weight

NAME = "memory.weight"


def test_two_visits_on_paper() -> None:
    """alpha = 0.5, lr = 0.1, (x, y) = (1, 2), w = 0: to 0.4 with h = -0.2; then slope -3.2 + 0.2 = -3: to 0.7, h = -0.35."""
    client_states = ClientStates()
    after, _ = walk(
        Dyn(lr=0.1, alpha=0.5), pairs([(1.0, 2.0)]), lambda: weight(0.0), Chain((0,), passes=2), client_states=client_states
    )  # fmt: skip
    assert after["weight"].item() == pytest.approx(0.7)
    assert client_states.in_memory[0][NAME].item() == pytest.approx(-0.35)


def test_rounds_against_the_algorithm_written_out() -> None:
    lr, alpha, w, h, own = 0.05, 0.3, START, 0.0, [0.0, 0.0, 0.0]
    for _ in range(4):
        ends = []
        for k, (x, y, count) in enumerate(THREE):
            v = w
            for _ in range(2 * count):
                v -= lr * (slope(x, y, v) - own[k] + alpha * (v - w))
            own[k] -= alpha * (v - w)
            ends.append(v)
        h -= alpha / 3 * sum(v - w for v in ends)
        w = sum(ends) / 3 - h / alpha
        assert h == pytest.approx(sum(own) / 3), "h is the mean of all h_k"
    found = trained(Dyn(lr=lr, alpha=alpha, batch_size=1, epochs=2), DynServer(), rounds=4)
    assert found == pytest.approx(w, abs=1e-5)


def test_a_chains_memories_add_up_to_what_the_server_sees() -> None:
    alpha, client_states = 0.2, ClientStates()
    data = pairs([(1.0, 2.0)], [(2.0, 2.0)], [(-1.0, 3.0)])
    after, hops = walk(
        Dyn(lr=0.05, alpha=alpha), data, lambda: weight(1.0), Chain((2, 0, 1), passes=2), client_states=client_states
    )
    memories = sum(client_states.in_memory[k][NAME].item() for k in range(3))
    assert memories == pytest.approx(-alpha * (after["weight"].item() - 1.0), abs=1e-6)
    assert {hop.bytes_up for hop in hops} == {4}, "nothing is sent beside the model"


def test_the_server_on_paper() -> None:
    """K = 4, w = 1; results 2 and 4: s = 1 + 3 = 4, w = 3 + 4/4 = 4; then 4 and 6: s = 6, w = 5 + 6/4 = 6.5."""
    rule = DynServer()
    state = rule.init(vector(1.0), Setting(clients=4))
    state = aggregate(rule, state, [vector(2.0), vector(4.0)], [1, 9])
    assert state.model["w"].tolist() == [4.0]
    state = aggregate(rule, state, [vector(4.0), vector(6.0)], [1, 9])
    assert state.model["w"].tolist() == [6.5]


def test_with_many_rounds_a_client_alone_finds_its_minimum_and_remembers_no_slope() -> None:
    assert trained(Dyn(lr=0.1, alpha=0.1), DynServer(), rounds=150, clients=[(1.0, 2.0, 1)]) == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize(("weights", "wanted"), [("uniform", 0.0), ("samples", -4 / 9)])
def test_where_it_ends_is_what_it_says_it_minimises(weights: Any, wanted: float) -> None:
    """(w - 2)^2 with 10 samples, (2 w + 1)^2 with 110: their plain mean is least at 0, the loss over all samples at -4/9."""
    clients = ((1.0, 2.0, 10), (2.0, -1.0, 110))
    local = Dyn(lr=0.05, alpha=0.5, batch_size=200, epochs=3)
    assert trained(local, DynServer(weights), rounds=150, clients=clients) == pytest.approx(wanted, abs=2e-4)
    method = Method(OneChain(kappa=1.0), local, DynServer(weights))
    data = pairs(*[[(x, y)] * count for x, y, count in clients])
    chained = fedgsp.train(method, data, lambda: weight(0.5), rounds=150, workers=0).state.model["weight"].item()
    assert chained == pytest.approx(wanted, abs=2e-4), "and in a chain of both"


def test_by_samples_a_client_with_fewer_has_a_larger_alpha() -> None:
    """1 sample of 4 in the mean: alpha = 0.125 * 4 = 0.5, so both hops are those on paper above."""
    client_states, shared = ClientStates(), {"mean samples": torch.tensor([4.0])}
    chain = Chain((0,), passes=2)
    after, _ = walk(
        Dyn(lr=0.1, alpha=0.125), pairs([(1.0, 2.0)]), lambda: weight(0.0), chain, shared=shared, client_states=client_states
    )
    assert after["weight"].item() == pytest.approx(0.7)
    assert client_states.in_memory[0][NAME].item() == pytest.approx(-0.35)


def test_the_models_mean_is_plain_also_by_samples() -> None:
    rule = DynServer("samples")
    state = aggregate(rule, rule.init(vector(1.0), Setting(clients=4, samples=40)), [vector(2.0), vector(4.0)], [1, 9])
    assert state.model["w"].tolist() == [4.0]
    assert state.shared["mean samples"].tolist() == [10.0]


def test_buffers_are_averaged() -> None:
    rule = DynServer()
    model = {"w": torch.zeros(1), "mean": torch.zeros(1)}
    state = rule.init(model, Setting(clients=1, trained=frozenset({"w"})))
    after = aggregate(rule, state, [{"w": torch.ones(1), "mean": torch.ones(1)}], [3])
    assert (after.model["w"].item(), after.model["mean"].item()) == (2.0, 1.0)


def test_refusals() -> None:
    with pytest.raises(InputError, match="alpha must be a positive number, not 0"):
        Dyn(alpha=0.0)
    with pytest.raises(InputError, match="'dyn': weights must be 'samples' or 'uniform', not 'sizes'"):
        DynServer("sizes")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"server\.weights must be one of 'samples', 'uniform', not 'sizes'"):
        decode("server", {"kind": "dyn", "weights": "sizes"}, "server")
