from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from fedgsp.client import SGD, UGA
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Chain, Hop
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Seeds
from fedgsp.data.arrays import from_arrays
from fedgsp.models import Task
from fedgsp.models.state import model_tensors
from fedgsp.server import Mean
from tests.support.hand_computed import START, THREE, slope, trained
from tests.support.small_federations import pairs, walk, weight


def by_hand(x: float, y: float, count: int, w: float, lr: float, through: int | None) -> float:
    """d (loss after `count` steps) / dw for one repeated sample: of a parabola, so each step's factor is 1 - 2 lr x^2."""
    v = w
    for _ in range(count):
        v -= lr * slope(x, y, v)
    steps = count if through is None else min(count, through)
    return float(slope(x, y, v) * (1 - 2 * lr * x * x) ** steps)


@pytest.mark.parametrize(
    ("options", "through"), [({}, None), ({"first_order": True}, 0), ({"trace": 1}, 1), ({"trace": 99}, None)]
)
def test_the_gradient_of_a_parabola(options: dict[str, Any], through: int | None) -> None:
    lr, step = 0.05, 0.2
    rule = UGA(lr=lr, step=step, batch_size=1, **options)
    after, hops = walk(rule, pairs([(1.5, 2.0)] * 3), lambda: weight(0.5), Chain((0,)))
    assert after["weight"].item() == pytest.approx(0.5 - step * by_hand(1.5, 2.0, 3, 0.5, lr, through), rel=1e-5)
    assert hops[0].bytes_up == 4


def test_rounds_against_the_algorithm_written_out() -> None:
    lr, step, w = 0.03, 0.1, START
    for _ in range(3):
        w -= step * sum(n * by_hand(x, y, n, w, lr, None) for x, y, n in THREE) / 7
    assert trained(UGA(lr=lr, step=step, batch_size=1), Mean(), rounds=3) == pytest.approx(w, abs=1e-5)


def test_against_a_graph_kept_through_all_steps() -> None:
    """A net that is no parabola: the steps are written out with torch.func and differentiated as one function of the start."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 3)).astype(np.float32), rng.integers(0, 3, 7)
    data = from_arrays(x, y, np.zeros(7, dtype=np.int64), classes=3, test_fraction=0)

    def make() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))

    lr, step, epochs, size = 0.2, 0.5, 2, 3
    after, _ = walk(UGA(lr=lr, step=step, batch_size=size, epochs=epochs), data, make, Chain((0,)))
    net = make()
    start = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    now = dict(start)
    hop, rows = Hop(0, 0, 0), data.train[0]
    for epoch in range(epochs):
        order = Seeds(0).batches(1, hop.client, hop.repeat, epoch).permutation(7)
        for at in range(0, 7, size):
            chosen = torch.from_numpy(rows[order[at : at + size]])
            loss = nn.functional.cross_entropy(functional_call(net, now, (inputs[chosen],)), labels[chosen])
            slopes = torch.autograd.grad(loss, list(now.values()), create_graph=True)
            now = {name: p - lr * g for (name, p), g in zip(now.items(), slopes, strict=True)}
    end = nn.functional.cross_entropy(functional_call(net, now, (inputs,)), labels)
    for (name, p), g in zip(start.items(), torch.autograd.grad(end, list(start.values())), strict=True):
        torch.testing.assert_close(after[name], (p - step * g).detach(), atol=2e-6, rtol=1e-5)


def test_dropout_is_the_same_on_the_way_back_and_batch_norm_counts_training_only() -> None:
    data = pairs([(1.0, 2.0), (2.0, 1.0), (0.5, 1.0), (3.0, 2.0)])

    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))

    exact, plain = (walk(rule, data, make, Chain((0,)))[0] for rule in (UGA(lr=0.05, batch_size=2), SGD(lr=0.05, batch_size=2)))
    again = walk(UGA(lr=0.05, batch_size=2), data, make, Chain((0,)))[0]
    assert exact["1.num_batches_tracked"].item() == 2
    assert torch.equal(exact["1.running_mean"], plain["1.running_mean"])
    assert all(torch.equal(exact[name], again[name]) for name in exact)


def test_weight_decay_is_part_of_the_trace() -> None:
    lr, step, decay, x, y, w = 0.1, 1.0, 0.5, 1.0, 2.0, 0.5
    v = w - lr * (slope(x, y, w) + decay * w)
    gradient = (slope(x, y, v) + decay * v) * (1 - lr * (2 * x * x + decay))
    after, _ = walk(UGA(lr=lr, step=step, weight_decay=decay), pairs([(x, y)]), lambda: weight(w), Chain((0,)))
    assert after["weight"].item() == pytest.approx(w - step * gradient, rel=1e-5)


def test_with_hardly_any_local_step_it_is_one_step_of_full_gradient() -> None:
    rule = UGA(lr=1e-9, step=0.1, first_order=True)
    after, _ = walk(rule, pairs([(1.0, 2.0), (2.0, 2.0)]), lambda: weight(1.0), Chain((0,)))
    assert after["weight"].item() == pytest.approx(1.0 - 0.1 * (slope(1, 2, 1.0) + slope(2, 2, 1.0)) / 2, rel=1e-6)


def test_a_loss_that_does_not_bend() -> None:
    """loss = w x: the gradient is x wherever it is taken."""
    straight = Task("straight", loss=lambda outputs, y: outputs.squeeze(1))
    model = weight(0.5)
    rule = UGA(lr=0.1, step=0.5)
    Trainer(model, rule, straight, pairs([(3.0, 0.0)]), torch.device("cpu"), Seeds(0)).train(1, Hop(0, 0, 0), {}, {})
    assert model_tensors(model)["weight"].item() == pytest.approx(0.5 - 0.5 * 3.0)


def test_refusals() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"step": 0.0}, "step must be a positive number"),
        ({"trace": -1}, "trace must be at least 0 steps"),
        ({"momentum": 0.5}, "differentiates through plain steps, so momentum must be 0"),
    ]
    for options, sentence in wrong:
        with pytest.raises(InputError, match=sentence):
            UGA(**options)
