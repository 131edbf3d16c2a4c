from __future__ import annotations

from typing import Any

import pytest
import torch

import fedgsp
from fedgsp.cli.options import build_config
from fedgsp.client import SGD, Scaffold
from fedgsp.client.client_state import ClientStates
from fedgsp.core.chain import Chain
from fedgsp.core.errors import InputError
from fedgsp.core.state import GLOBAL, ServerState, Setting
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.parts import decode, encode
from fedgsp.plan import OneChain
from fedgsp.server import Mean, Momentum, ScaffoldServer
from fedgsp.study.grid import parse_grid
from tests.support.hand_computed import START, THREE, slope, trained
from tests.support.small_federations import aggregate, pairs, vector, walk, weight

NAME = "control.weight"


def control(value: float) -> dict[str, torch.Tensor]:
    return {NAME: torch.full((1, 1), value)}


def test_a_step_on_paper() -> None:
    """w = 0, c = 0.5, c_k = 0: the slope is -4, so w = 0 - 0.1 (-4 + 0.5) = 0.35 and Delta = -3.5 - 0.5 = -4 = the slope."""
    client_states = ClientStates()
    after, hops = walk(
        Scaffold(lr=0.1), pairs([(1.0, 2.0)]), lambda: weight(0.0), Chain((0,)), shared=control(0.5),
        client_states=client_states
    )  # fmt: skip
    assert after["weight"].item() == pytest.approx(0.35)
    assert client_states.sent[NAME].item() == pytest.approx(-4.0, abs=1e-5)
    assert client_states.in_memory[0][NAME].item() == pytest.approx(-4.0, abs=1e-5)
    assert (hops[0].bytes_down, hops[0].bytes_up) == (8, 8), "c beside the model down, Delta beside it up"


def test_rounds_against_the_algorithm_written_out() -> None:
    lr, w, c, own = 0.05, START, 0.0, [0.0, 0.0, 0.0]
    for _ in range(4):
        ends, deltas = [], []
        for k, (x, y, count) in enumerate(THREE):
            v = w
            for _ in range(2 * count):
                v -= lr * (slope(x, y, v) - own[k] + c)
            deltas.append((w - v) / (2 * count * lr) - c)
            ends.append(v)
        own = [before + delta for before, delta in zip(own, deltas, strict=True)]
        w = sum(n * v for (_, _, n), v in zip(THREE, ends, strict=True)) / 7
        c += sum(deltas) / 3
        assert c == pytest.approx(sum(own) / 3), "c is the mean of all c_k"
    assert trained(Scaffold(lr=lr, batch_size=1, epochs=2), ScaffoldServer(), rounds=4) == pytest.approx(w, abs=1e-5)


def test_in_a_chain_every_client_corrects_the_model_it_was_handed_and_the_server_gets_the_sum() -> None:
    data, client_states, lr, c = pairs([(1.0, 2.0)], [(2.0, 2.0)]), ClientStates(), 0.1, 0.25
    after, _ = walk(
        Scaffold(lr=lr), data, lambda: weight(1.0), Chain((0, 1), passes=2), shared=control(c), client_states=client_states
    )
    w, own, total = 1.0, [0.0, 0.0], 0.0
    for k in (0, 1, 0, 1):
        x, y = ((1.0, 2.0), (2.0, 2.0))[k]
        v = w - lr * (slope(x, y, w) - own[k] + c)
        delta = (w - v) / lr - c
        own[k], total, w = own[k] + delta, total + delta, v
    assert after["weight"].item() == pytest.approx(w)
    assert client_states.sent[NAME].item() == pytest.approx(total, abs=1e-4)
    assert [client_states.in_memory[k][NAME].item() for k in (0, 1)] == pytest.approx(own, abs=1e-4)


UNEVEN = ((1.0, 2.0, 10), (2.0, -1.0, 110))
"""F_1 = (w - 2)^2 with 10 samples, F_2 = (2 w + 1)^2 with 110. Their mean is least where 2 (w - 2) + 4 (2 w + 1) = 0, at 0;
the loss over all samples where 10 * 2 (w - 2) + 110 * 4 (2 w + 1) = 0, at -400 / 900."""
PLAIN, BY_SAMPLES = 0.0, -4 / 9


@pytest.mark.parametrize(("weights", "wanted"), [("uniform", PLAIN), ("samples", BY_SAMPLES)])
@pytest.mark.parametrize("inside", ["samples", "uniform"])
def test_where_it_ends_is_what_it_says_it_minimises(weights: Any, wanted: float, inside: Any) -> None:
    """Whatever the models' own weights in the mean."""
    server = ScaffoldServer(Mean(inside), weights)
    local = Scaffold(lr=0.05, batch_size=200, epochs=3)
    assert trained(local, server, rounds=60, clients=UNEVEN) == pytest.approx(wanted, abs=2e-4)


def test_fedavg_in_single_steps_ends_where_samples_do() -> None:
    assert trained(SGD(lr=0.05, batch_size=200), Mean(), rounds=60, clients=UNEVEN) == pytest.approx(BY_SAMPLES, abs=1e-4)


@pytest.mark.parametrize(("weights", "wanted"), [("uniform", PLAIN), ("samples", BY_SAMPLES)])
def test_a_chain_of_both_ends_there_as_well(weights: Any, wanted: float) -> None:
    data = pairs(*[[(x, y)] * count for x, y, count in UNEVEN])
    method = Method(OneChain(kappa=1.0), Scaffold(lr=0.05, batch_size=200), ScaffoldServer(weights=weights))
    state = fedgsp.train(method, data, lambda: weight(0.5), rounds=100, workers=0).state
    assert state.model["weight"].item() == pytest.approx(wanted, abs=2e-4)


def test_by_samples_a_step_on_paper() -> None:
    """As above, Delta = -4; 1 sample of 4 in the mean: it is sent as -1 and kept as -4; c moves by a K-th of what is sent."""
    client_states, shared = ClientStates(), {**control(0.5), "mean samples": torch.tensor([4.0])}
    _, hops = walk(
        Scaffold(lr=0.1), pairs([(1.0, 2.0)]), lambda: weight(0.0), Chain((0,)), shared=shared, client_states=client_states
    )
    assert client_states.sent[NAME].item() == pytest.approx(-1.0, abs=1e-5)
    assert client_states.in_memory[0][NAME].item() == pytest.approx(-4.0, abs=1e-5)
    assert hops[0].bytes_down == 12, "4 bytes more than c and the model"
    state = ScaffoldServer(weights="samples").init(vector(0.0), Setting(clients=5, samples=20))
    assert state.shared["mean samples"].tolist() == [4.0]
    sent = [{"control.w": torch.tensor([value], dtype=torch.float64)} for value in (1.0, 4.0)]
    after = aggregate(ScaffoldServer(weights="samples"), state, [vector(1.0), vector(3.0)], [1, 3], sent)
    assert after.shared["control.w"].tolist() == [1.0]
    assert after.shared["mean samples"].tolist() == [4.0]


def test_the_word_is_spelled_in_files_and_options_and_left_out_where_it_is_the_default() -> None:
    assert "weights" not in encode(ScaffoldServer())
    assert encode(ScaffoldServer(weights="samples"))["weights"] == "samples"
    assert decode("server", {"kind": "scaffold", "weights": "samples"}, "server") == ScaffoldServer(weights="samples")
    config = build_config(None, {"method": "scaffold"}, ["method.server.weights=samples"])
    assert config.method.server == ScaffoldServer(weights="samples")
    (axis,) = parse_grid(["server_weights=samples,uniform"], named("scaffold"))
    assert axis.path == ("server", "weights")
    with pytest.raises(InputError, match=r"server\.weights must be one of 'samples', 'uniform', not 'sizes'"):
        decode("server", {"kind": "scaffold", "weights": "sizes"}, "server")
    with pytest.raises(InputError, match="'scaffold': weights must be 'samples' or 'uniform', not 'sizes'"):
        ScaffoldServer(weights="sizes")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs to know how many samples the clients have"):
        ScaffoldServer(weights="samples").init(vector(0.0), Setting(clients=5))


def test_the_servers_control_moves_by_the_share_of_all_clients() -> None:
    """Two of K = 5 clients sent 1 and 4: c = 0 + (1 + 4) / 5 = 1, whatever their samples."""
    rule = ScaffoldServer()
    state = rule.init(vector(0.0), Setting(clients=5))
    sent = [{"control.w": torch.tensor([value], dtype=torch.float64)} for value in (1.0, 4.0)]
    after = aggregate(rule, state, [vector(1.0), vector(3.0)], [1, 3], sent)
    assert after.shared["control.w"].tolist() == [1.0]
    assert after.model["w"].tolist() == [2.5]
    assert after.shared["control.w"].dtype == torch.float32


def test_buffers_have_no_control() -> None:
    model = {"w": torch.zeros(2), "mean": torch.zeros(2), "count": torch.zeros((), dtype=torch.int64)}
    state = ScaffoldServer().init(model, Setting(clients=1, trained=frozenset({"w"})))
    assert set(state.shared) == {"control.w"}


def test_the_rule_inside_has_its_way_with_the_models() -> None:
    rule = ScaffoldServer(Momentum(lr=0.5, beta=0.0))
    state = rule.init(vector(0.0), Setting(clients=1))
    after = aggregate(rule, state, [vector(2.0)], [1], [{"control.w": torch.zeros(1, dtype=torch.float64)}])
    assert after.model["w"].tolist() == [1.0]


def test_refusals() -> None:
    with pytest.raises(InputError, match="'scaffold' reads the mean gradient off the way it went, so momentum must be 0"):
        Scaffold(momentum=0.9)
    with pytest.raises(InputError, match="halves of two methods"):
        ScaffoldServer(ScaffoldServer())


def test_a_server_without_clients_that_sent_something_finds_out() -> None:
    rule = ScaffoldServer(Mean())
    state: ServerState = rule.init(vector(0.0), Setting(clients=1))
    with pytest.raises(ValueError, match=r"other tensors than the model has: control\.w"):
        aggregate(rule, state, [vector(1.0)], [1])
    assert GLOBAL in state.models
