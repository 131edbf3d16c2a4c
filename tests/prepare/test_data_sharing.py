"""Data sharing: whose samples are shared with whom, what it costs, the warm-up, and its limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fedgsp
from fedgsp.client import SGD
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Seeds
from fedgsp.data.federated import FederatedData
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.models import regression
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.prepare import ShareData, WarmUp
from fedgsp.prepare.preparation import level_for
from fedgsp.prepare.warm_up import warmed_up
from fedgsp.server import Mean
from tests.support.small_federations import bits, images, pairs, weight

DATA = images(clients=10, each=20)
EVERYBODY: NDArray[np.int64] = np.arange(10)


def labels_of(data: FederatedData, rows: NDArray[np.int64]) -> list[int]:
    return sorted(np.asarray(data.labels[rows]).tolist())


@pytest.mark.parametrize(
    ("counts", "budget", "level"),
    [
        ([5, 5, 5], 9, 3),
        ([5, 5, 5], 100, 5),
        ([1, 5, 9], 9, 4),
        ([1, 5, 9], 11, 5),
        ([1, 5, 9], 13, 7),
        ([0, 4], 3, 3),
        ([3, 3], 1, 0),
    ],
)
def test_the_level_that_fits_the_budget(counts: list[int], budget: int, level: int) -> None:
    assert level_for(np.array(counts), budget) == level
    assert np.minimum(counts, level).sum() <= budget


def test_the_shared_set_is_class_uniform_disjoint_and_within_its_budget() -> None:
    prepared = ShareData(alpha=0.5, beta=0.1, donors=0.3).prepare(DATA, EVERYBODY, 0)
    assert len(prepared.set_aside) == 3
    assert prepared.warm_up is not None
    shared = prepared.warm_up.rows
    donors = DATA.train.take(prepared.set_aside).rows
    assert set(shared.tolist()) <= set(donors.tolist())
    rest = np.setdiff1d(EVERYBODY, prepared.set_aside)
    budget = 0.1 * DATA.train.sizes[rest].sum()
    counts = np.bincount(DATA.labels[shared], minlength=4)
    there = np.bincount(DATA.labels[donors], minlength=4)
    level = counts.max()
    assert counts.tolist() == np.minimum(there, level).tolist()
    assert budget - 4 < len(shared) <= budget
    each = len(shared) // 2
    for client in rest:
        own, now = DATA.train[client], prepared.data.train[client]
        assert now[: len(own)].tolist() == own.tolist()
        assert len(set(now[len(own) :].tolist())) == each
        assert set(now[len(own) :].tolist()) <= set(shared.tolist())
    parts = {tuple(prepared.data.train[k][len(DATA.train[k]) :].tolist()) for k in rest}
    assert len(parts) > 1, "every client has a share of its own"
    assert prepared.bytes == len(rest) * each * (64 + 4)
    assert prepared.data.test is DATA.test
    again = ShareData(alpha=0.5, beta=0.1, donors=0.3).prepare(DATA, EVERYBODY, 0)
    assert again.data.fingerprint == prepared.data.fingerprint
    assert ShareData(alpha=0.5, beta=0.1, donors=0.3).prepare(DATA, EVERYBODY, 1).set_aside != prepared.set_aside


def test_the_warm_up_by_hand() -> None:
    """Three epochs of full batches on y = w x, on two rows of the second client."""
    data = pairs([(1.0, 1.0)], [(1.0, 2.0), (2.0, 1.0), (9.0, 9.0)])
    rows = data.train[1][data.features[data.train[1], 0] < 5]
    local = SGD(lr=0.05, batch_size=8, epochs=7)
    initial = {"weight": torch.tensor([[0.5]])}
    found = warmed_up(WarmUp(rows, 3), initial, lambda: weight(0.0), local, regression(), data, Seeds(0), "cpu")
    w = 0.5
    for _ in range(3):
        w -= 0.05 * ((w - 2) * 2 * 1 + (2 * w - 1) * 2 * 2) / 2
    assert found["weight"].item() == pytest.approx(w, abs=1e-6)
    assert initial["weight"].item() == 0.5


def method(**changes: Any) -> Method:
    planner = Grouped(Singletons(), Random(), kappa=0.5)
    return Method(planner, SGD(lr=0.05), Mean(), preparation=ShareData(**changes))


def test_sharing_nothing_is_fedavg_without_the_donors_to_the_bit() -> None:
    ours = fedgsp.train(method(alpha=0.0, warm_up=0, donors=0.2), DATA, rounds=3, workers=0)
    donors = np.setdiff1d(EVERYBODY, ours.run.participants)
    assert len(donors) == 2
    train = [rows[:0] if k in donors else rows for k, rows in enumerate(DATA.train)]
    test = [rows[:0] if k in donors else rows for k, rows in enumerate(DATA.test)]
    without = replace(DATA, train=DATA.train.of(train), test=DATA.test.of(test))
    theirs = fedgsp.train(replace(method(), preparation=None), without, rounds=3, workers=0)
    assert bits(ours.state.model) == bits(theirs.state.model)
    assert ours.history[-1]["bytes_total"] == theirs.history[-1]["bytes_total"]
    assert ours.history[-1]["test_samples"] == theirs.history[-1]["test_samples"]


def test_the_run_starts_warm_is_counted_and_resumes(tmp_path: Path) -> None:
    ours = fedgsp.train(method(warm_up=4, donors=0.4, beta=0.25), DATA, rounds=1, workers=0, out=tmp_path / "run")
    cold = fedgsp.train(method(warm_up=0, donors=0.4, beta=0.25), DATA, rounds=1, workers=0)
    assert bits(ours.run.initial_model) != bits(cold.run.initial_model)
    assert ours.history[0]["train_loss"] < cold.history[0]["train_loss"]
    sent = ours.history[0]["bytes_total"] - ours.history[0]["bytes"]
    assert sent == ours.run.prepared_bytes > 0
    more = fedgsp.resume(tmp_path / "run", rounds=2, data=DATA)
    whole = fedgsp.train(method(warm_up=4, donors=0.4, beta=0.25), DATA, rounds=2, workers=0)
    assert more.state.digest() == whole.state.digest()
    assert fedgsp.replay(tmp_path / "run", workers=0, data=DATA).differs is None


def test_it_goes_with_any_other_part() -> None:
    combined = replace(named("fedgsp+fusion-multi+adam"), preparation=ShareData())
    assert np.isfinite(fedgsp.train(combined, DATA, rounds=1, workers=0).history[0]["loss"])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"alpha": 1.1}, "alpha must be from 0 to 1"),
        ({"beta": 0.0}, "beta must be above 0 and below 1"),
        ({"donors": 1.0}, "donors must be above 0 and below 1"),
        ({"warm_up": -1}, "warm_up must be at least 0"),
    ],
)
def test_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ShareData(**wrong)


def test_refused_on_data_that_cannot_be_shared() -> None:
    with pytest.raises(InputError, match="this data has none"):
        ShareData().prepare(pairs([(1.0, 1.0)], [(1.0, 1.0)]), np.arange(2), 0)
    with pytest.raises(InputError, match="there is only one"):
        ShareData().prepare(DATA, EVERYBODY[:1], 0)
    with pytest.raises(InputError, match=r"leaves room for 1 shared samples of .* take a larger beta"):
        ShareData(beta=0.01).prepare(DATA, EVERYBODY, 0)
