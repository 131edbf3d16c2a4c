from __future__ import annotations

import pytest
import torch
from byhand import START, THREE, slope, trained
from rivals import aggregate, pairs, vector, walk, weight

from fedgsp.client import Scaffold
from fedgsp.client.keep import Bag
from fedgsp.core.chain import Chain
from fedgsp.core.errors import InputError
from fedgsp.core.state import GLOBAL, ServerState, Setting
from fedgsp.server import Controls, Mean, Momentum

NAME = "control.weight"


def control(value: float) -> dict[str, torch.Tensor]:
    return {NAME: torch.full((1, 1), value)}


def test_a_step_on_paper() -> None:
    """w = 0, c = 0.5, c_k = 0: the slope is -4, so w = 0 - 0.1 (-4 + 0.5) = 0.35 and Delta = -3.5 - 0.5 = -4 = the slope."""
    bag = Bag()
    after, hops = walk(
        Scaffold(lr=0.1), pairs([(1.0, 2.0)]), lambda: weight(0.0), Chain((0,)), shared=control(0.5), bag=bag
    )  # fmt: skip
    assert after["weight"].item() == pytest.approx(0.35)
    assert bag.sent[NAME].item() == pytest.approx(-4.0, abs=1e-5)
    assert bag.states[0][NAME].item() == pytest.approx(-4.0, abs=1e-5)
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
    assert trained(Scaffold(lr=lr, batch_size=1, epochs=2), Controls(), rounds=4) == pytest.approx(w, abs=1e-5)


def test_in_a_chain_every_client_corrects_the_model_it_was_handed_and_the_server_gets_the_sum() -> None:
    data, bag, lr, c = pairs([(1.0, 2.0)], [(2.0, 2.0)]), Bag(), 0.1, 0.25
    after, _ = walk(Scaffold(lr=lr), data, lambda: weight(1.0), Chain((0, 1), passes=2), shared=control(c), bag=bag)
    w, own, total = 1.0, [0.0, 0.0], 0.0
    for k in (0, 1, 0, 1):
        x, y = ((1.0, 2.0), (2.0, 2.0))[k]
        v = w - lr * (slope(x, y, w) - own[k] + c)
        delta = (w - v) / lr - c
        own[k], total, w = own[k] + delta, total + delta, v
    assert after["weight"].item() == pytest.approx(w)
    assert bag.sent[NAME].item() == pytest.approx(total, abs=1e-4)
    assert [bag.states[k][NAME].item() for k in (0, 1)] == pytest.approx(own, abs=1e-4)


def test_the_servers_control_moves_by_the_share_of_all_clients() -> None:
    """Two of K = 5 clients sent 1 and 4: c = 0 + (1 + 4) / 5 = 1, whatever their samples."""
    rule = Controls()
    state = rule.init(vector(0.0), Setting(clients=5))
    sent = [{"control.w": torch.tensor([value], dtype=torch.float64)} for value in (1.0, 4.0)]
    after = aggregate(rule, state, [vector(1.0), vector(3.0)], [1, 3], sent)
    assert after.shared["control.w"].tolist() == [1.0]
    assert after.model["w"].tolist() == [2.5]
    assert after.shared["control.w"].dtype == torch.float32


def test_buffers_have_no_control() -> None:
    model = {"w": torch.zeros(2), "mean": torch.zeros(2), "count": torch.zeros((), dtype=torch.int64)}
    state = Controls().init(model, Setting(clients=1, trained=frozenset({"w"})))
    assert set(state.shared) == {"control.w"}


def test_the_rule_inside_has_its_way_with_the_models() -> None:
    rule = Controls(Momentum(lr=0.5, beta=0.0))
    state = rule.init(vector(0.0), Setting(clients=1))
    after = aggregate(rule, state, [vector(2.0)], [1], [{"control.w": torch.zeros(1, dtype=torch.float64)}])
    assert after.model["w"].tolist() == [1.0]


def test_refusals() -> None:
    with pytest.raises(InputError, match="'scaffold' reads the mean gradient off the way it went, so momentum must be 0"):
        Scaffold(momentum=0.9)
    with pytest.raises(InputError, match="halves of two methods"):
        Controls(Controls())


def test_a_server_without_clients_that_sent_something_finds_out() -> None:
    rule = Controls(Mean())
    state: ServerState = rule.init(vector(0.0), Setting(clients=1))
    with pytest.raises(ValueError, match=r"other tensors than the model has: control\.w"):
        aggregate(rule, state, [vector(1.0)], [1])
    assert GLOBAL in state.models
