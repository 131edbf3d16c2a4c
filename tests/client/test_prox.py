"""FedProx: steps worked out by hand, its limits, its two anchors and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from fedgsp.client import SGD, Prox
from fedgsp.core.chain import Chain
from fedgsp.core.errors import InputError
from fedgsp.models import small_cnn
from tests.support.small_federations import bits, images, pairs, walk, weight

A = [(1.0, 2.0), (1.0, 2.0)]
"""Loss (w - 2)^2, gradient 2 (w - 2); twice, so that two steps are taken whatever the order."""
B = [(1.0, 0.0), (1.0, 0.0)]


def test_two_steps_by_hand() -> None:
    # w = 0: g = -4 + .5 * 0 -> w = .4;  then g = -3.2 + .5 * .4 = -3 -> w = .7
    tensors, hops = walk(Prox(mu=0.5, lr=0.1, batch_size=1), pairs(A), lambda: weight(0.0), Chain((0,)))
    assert tensors["weight"].item() == pytest.approx(0.7, abs=1e-6)
    assert hops[0].metrics["loss"] == pytest.approx((4 + 1.6**2) / 2, abs=1e-6), "the term is no part of the reported loss"


def test_in_a_chain_the_anchor_is_the_handed_model() -> None:
    # B starts at .7: g = 1.4 -> .56; g = 1.12 + .5 (.56 - .7) = 1.05 -> .455
    tensors, hops = walk(Prox(mu=0.5, lr=0.1, batch_size=1), pairs(A, B), lambda: weight(0.0), Chain((0, 1)))
    assert tensors["weight"].item() == pytest.approx(0.455, abs=1e-6)
    assert [(h.bytes_down, h.bytes_up) for h in hops] == [(4, 4), (4, 4)]


def test_the_global_anchor_is_downloaded_by_every_client_but_the_first() -> None:
    # B starts at .7, anchor 0: g = 1.4 + .35 -> .525; g = 1.05 + .2625 -> .39375
    rule = Prox(mu=0.5, lr=0.1, batch_size=1, anchor="global")
    tensors, hops = walk(rule, pairs(A, B), lambda: weight(0.0), Chain((0, 1)))
    assert tensors["weight"].item() == pytest.approx(0.39375, abs=1e-6)
    assert [(h.bytes_down, h.bytes_up) for h in hops] == [(4, 4), (8, 4)]


def test_the_global_anchor_is_downloaded_again_on_a_second_pass() -> None:
    rule = Prox(mu=0.5, lr=0.1, batch_size=1, anchor="global")
    _, hops = walk(rule, pairs(A), lambda: weight(0.0), Chain((0,), passes=2))
    assert [h.bytes_down for h in hops] == [4, 8]


def test_a_client_left_with_the_start_model_downloads_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgsp.core.seeds import Seeds
    from fedgsp.engine.base import WorkerSetup
    from fedgsp.engine.chain_runner import ChainRunner
    from fedgsp.models import regression
    from fedgsp.models.catalog import ModelSpec

    rule = Prox(mu=0.5, lr=0.1, anchor="global")
    job = WorkerSetup(ModelSpec("test", lambda: weight(0.0)), rule, regression(), pairs(A, B), Seeds(0))
    start = dict(weight(0.0).state_dict())
    _, hops = ChainRunner.of(job).run(1, Chain((0, 1)), start, {}, frozenset({0}))
    assert [(h.client, h.bytes_down) for h in hops] == [(1, 4)]


def test_mu_zero_is_sgd_to_the_bit() -> None:
    data, chain = images(2), Chain((0, 1))
    start = dict(small_cnn((8, 8), 4).state_dict())
    plain, _ = walk(SGD(lr=0.05), data, lambda: small_cnn((8, 8), 4), chain, start)
    prox, _ = walk(Prox(mu=0.0, lr=0.05, anchor="global"), data, lambda: small_cnn((8, 8), 4), chain, start)
    pulled, _ = walk(Prox(mu=0.1, lr=0.05), data, lambda: small_cnn((8, 8), 4), chain, start)
    assert bits(plain) == bits(prox)
    assert bits(plain) != bits(pulled)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"mu": -0.1}, "mu must be a number of at least 0, not -0.1"),
        ({"mu": float("nan")}, "mu must be a number of at least 0"),
        ({"anchor": "local"}, "anchor must be 'handed' or 'global', not 'local'"),
        ({"lr": 0.0}, "learning rate must be a positive number"),
    ],
)
def test_wrong_parameters(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Prox(**wrong)
