from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedgsp
from fedgsp.client import SGD, Scaffold
from fedgsp.core.errors import InputError
from fedgsp.method import Method
from fedgsp.methods import decode_method, named
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.prepare import MetaSet
from fedgsp.server import Mean, Meta, ScaffoldServer
from tests.support.hand_computed import START, THREE, slope
from tests.support.small_federations import images, pairs, weight

DATA = pairs(*[[(x, y)] * count for x, y, count in THREE])


def method(server: Meta | Mean, share: float | None = 1.0) -> Method:
    planner = Grouped(Singletons(), Random(), kappa=1.0)
    preparation = None if share is None else MetaSet(share)
    return Method(planner, SGD(lr=0.05, batch_size=1), server, preparation=preparation)


def test_rounds_against_the_algorithm_written_out() -> None:
    """With every sample on the server, each round ends with two steps of full gradient."""
    w = START
    for _ in range(3):
        ends = []
        for x, y, n in THREE:
            v = w
            for _ in range(n):
                v -= 0.05 * slope(x, y, v)
            ends.append(n * v)
        w = sum(ends) / 7
        for _ in range(2):
            w -= 0.02 * sum(n * slope(x, y, w) for x, y, n in THREE) / 7
    result = fedgsp.train(method(Meta(lr=0.02, steps=2)), DATA, lambda: weight(START), rounds=3, workers=0)
    assert result.state.model["weight"].item() == pytest.approx(w, abs=1e-5)


def test_the_set_is_sent_once_and_said_to_be_raw() -> None:
    result = fedgsp.train(method(Meta(), 0.5), DATA, lambda: weight(START), rounds=2, workers=0)
    entry = result.history[0]
    assert entry["bytes_total"] - entry["bytes"] == 4 * (4 + 4), "half of seven, rounded: four samples of two float32"
    assert any("the server holds 4 training samples of the clients'" in note for note in result.run.notes)


def test_around_scaffold() -> None:
    chosen = replace(method(Meta(ScaffoldServer())), local=Scaffold(lr=0.05))
    chosen.check()
    result = fedgsp.train(chosen, DATA, lambda: weight(START), rounds=2, workers=0)
    assert np.isfinite(result.state.model["weight"].item())
    assert result.state.shared


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        (
            method(Meta(), None),
            "'meta' trains on samples of the server's own, and there are none; give the method a preparation",
        ),
        (method(Mean(), 0.5), "'meta-set' brings samples to the server, which the server rule 'mean' has no use for"),
    ],
)
def test_data_and_rule_go_together(chosen: Method, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        fedgsp.train(chosen, DATA, lambda: weight(START), rounds=1, workers=0)


def test_the_named_method() -> None:
    chosen = named("fedmeta-uga")
    assert isinstance(chosen.server, Meta)
    assert decode_method(chosen.encode()) == chosen
    assert "bench" not in chosen.encode()["server"]


def test_refusals() -> None:
    with pytest.raises(InputError, match="lr must be a positive number"):
        Meta(lr=0.0)
    with pytest.raises(InputError, match="steps must be at least 1"):
        Meta(steps=0)


class TestMetaSet:
    DATA = images(clients=6, each=20)

    def test_a_share_of_all_training_samples_drawn_once(self) -> None:
        clients = np.arange(4)
        prepared = MetaSet(0.1).prepare(self.DATA, clients, 0)
        theirs = np.concatenate([self.DATA.train[int(k)] for k in clients])
        assert len(prepared.server_rows) == round(0.1 * len(theirs))
        assert np.isin(prepared.server_rows, theirs).all()
        assert len(np.unique(prepared.server_rows)) == len(prepared.server_rows)
        assert prepared.data is self.DATA
        assert np.array_equal(MetaSet(0.1).prepare(self.DATA, clients, 0).server_rows, prepared.server_rows)
        assert not np.array_equal(MetaSet(0.1).prepare(self.DATA, clients, 1).server_rows, prepared.server_rows)

    def test_uniform_classes(self) -> None:
        rows = MetaSet(0.25, classes="uniform").prepare(self.DATA, np.arange(6), 0).server_rows
        _, counts = np.unique(self.DATA.labels[rows], return_counts=True)
        assert len(counts) == 4
        assert len(set(counts)) == 1

    def test_refusals(self) -> None:
        with pytest.raises(InputError, match="share must be above 0"):
            MetaSet(0.0)
        with pytest.raises(InputError, match="needs data with classes"):
            MetaSet(1.0, classes="uniform").prepare(DATA, np.arange(3), 0)
