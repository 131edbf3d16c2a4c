"""Hybrid-FL: what is uploaded, the server as one more client for which nothing is sent, and that it is just that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedgsp
from fedgsp.client import SGD
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Seeds
from fedgsp.data.federated import Split
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.plan import Grouped, Random, Singletons, WithPool
from fedgsp.prepare import PoolData
from fedgsp.server import Mean
from tests.support.small_federations import bits, images, pairs

DATA = images(clients=10, each=20)
FEDAVG = Grouped(Singletons(), Random(), kappa=1.0)


def hybrid(kappa: float = 1.0, p: float = 0.2) -> Method:
    planner = WithPool(Grouped(Singletons(), Random(), kappa=kappa))
    return Method(planner, SGD(lr=0.05), Mean(), preparation=PoolData(p=p))


def test_the_pool_is_balanced_and_what_was_uploaded_is_counted() -> None:
    prepared = PoolData(p=0.3).prepare(DATA, np.arange(10), 0)
    pool = prepared.data.train[10]
    owners = [k for k in range(10) if set(DATA.train[k].tolist()) & set(pool.tolist())]
    assert len(owners) == 3
    uploaded = DATA.train.take(owners).rows
    there = np.bincount(DATA.labels[uploaded], minlength=4)
    middle = int(np.median(there[there > 0]))
    assert np.bincount(DATA.labels[pool], minlength=4).tolist() == np.minimum(there, middle).tolist()
    assert prepared.bytes == len(uploaded) * (64 + 4)
    assert prepared.data.clients[10] == "server pool"
    assert [len(part) for part in (prepared.data.train, prepared.data.validation, prepared.data.test)] == [11] * 3
    assert all(np.array_equal(prepared.data.train[k], DATA.train[k]) for k in range(10)), "who uploaded goes on training"
    assert prepared.at_server == (10,)


def test_it_is_fedavg_with_one_more_client_to_the_bit() -> None:
    """The pool as a client of an ordinary federation, everybody training: the same model, but for free."""
    ours = fedgsp.train(hybrid(), DATA, rounds=2, workers=0)
    pool = ours.run.worker_setup.data.train[10]
    nothing = [pool[:0]]
    wide = replace(
        DATA,
        clients=(*DATA.clients, "pool"),
        train=Split.of([*DATA.train, pool]),
        test=Split.of([*DATA.test, *nothing]),
        validation=Split.of([*DATA.validation, *nothing]),
    )
    theirs = fedgsp.train(Method(FEDAVG, SGD(lr=0.05), Mean()), wide, rounds=2, workers=0)
    assert bits(ours.state.model) == bits(theirs.state.model)
    model_bytes = sum(t.numel() * 4 for t in ours.state.model.values())
    assert theirs.history[0]["bytes"] - ours.history[0]["bytes"] == 2 * model_bytes
    assert ours.history[0]["bytes_total"] == ours.history[0]["bytes"] + ours.run.prepared_bytes
    assert ours.history[0]["test_samples"] == len(DATA.test.rows)


def test_the_server_trains_every_round_whoever_else_does() -> None:
    profiles = PoolData(p=0.2).prepare(DATA, np.arange(10), 0).data.profiles()
    planner = WithPool(Grouped(Singletons(), Random(), kappa=0.3))
    inside = Grouped(Singletons(), Random(), kappa=0.3)
    for round_ in (1, 2, 3):
        plan = planner.plan(round_, profiles, Seeds(0))
        assert plan.chains[-1].clients == (10,)
        assert plan.chains[:-1] == inside.plan(round_, DATA.profiles(), Seeds(0)).chains
    expected = planner.schedule(1, 11)
    assert (expected.sampled, expected.trained, expected.groups) == (4, 4, 11)


def test_names_files_and_two_workers(tmp_path: Path) -> None:
    ours = fedgsp.train(hybrid(0.5), DATA, rounds=2, workers=2, out=tmp_path / "run")
    assert ours.state.digest() == fedgsp.train(hybrid(0.5), DATA, rounds=2, workers=0).state.digest()
    assert '"server pool"' in (tmp_path / "run" / "plans.jsonl").read_text().splitlines()[0]
    assert fedgsp.replay(tmp_path / "run", workers=0, data=DATA).differs is None


def test_halves_of_it_are_refused() -> None:
    for half in (replace(hybrid(), preparation=None), replace(named("fedavg"), preparation=PoolData())):
        with pytest.raises(InputError, match="'with-pool' and the preparation 'pool-data' belong together"):
            fedgsp.train(half, DATA, rounds=1, workers=0)
    with pytest.raises(InputError, match="p must be above 0"):
        PoolData(p=0.0)
    with pytest.raises(InputError, match="this data has none"):
        PoolData().prepare(pairs([(1.0, 1.0)]), np.arange(1), 0)
