"""Clustered FL: the bipartition against all bipartitions, the split by hand, the second level, and its limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedgsp
from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState, Setting
from fedgsp.core.tensors import Tensors
from fedgsp.methods import named
from fedgsp.server import Clustered, Mean, View
from fedgsp.server import clustered as module
from fedgsp.server.clustered import bipartition, gram, norm
from tests.support.small_federations import bits, images, vector

SPLITS = Clustered(eps1=0.5, eps2=0.5, gamma=0.0, first_round=1)


@pytest.mark.parametrize("seed", range(8))
def test_single_linkage_is_the_best_of_all_bipartitions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(7, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = vectors @ vectors.T
    best = min(
        cosine[np.ix_(list(side), [i for i in range(7) if i not in side])].max()
        for size in (1, 2, 3)
        for side in combinations(range(7), size)
    )
    left, right = bipartition(cosine, "single")
    assert sorted(left + right) == list(range(7))
    assert 0 in left
    assert cosine[np.ix_(left, right)].max() == pytest.approx(best)


def test_complete_linkage_is_another_split() -> None:
    """A string of points, each near the next: single linkage cuts off the one at its end, complete linkage halves it."""
    angles = np.array([0.0, 0.3, 0.6, 0.9, 1.2, 1.55])
    cosine = np.cos(angles[:, None] - angles[None])
    assert bipartition(cosine, "single") == ([0, 1, 2, 3, 4], [5])
    assert len(bipartition(cosine, "complete")[0]) < 5


def test_the_gram_matrix_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COLUMNS", 3)
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(4, 11)).astype(np.float32)
    before = rng.normal(size=11).astype(np.float32)
    models = [[torch.tensor(row[:7]), torch.tensor(row[7:])] for row in whole]
    moved = (whole - before).astype(np.float64)
    np.testing.assert_allclose(gram(models, [torch.tensor(before[:7]), torch.tensor(before[7:])]), moved @ moved.T, rtol=1e-12)
    assert norm({"a": torch.tensor(before[:7]), "b": torch.tensor(before[7:])}) == pytest.approx(np.linalg.norm(before))


def after(
    rule: Clustered, state: ServerState, clients: Sequence[int], models: Sequence[Tensors], samples: Sequence[int]
) -> ServerState:
    """A round in which `clients` come back with `models`, in reverse order."""
    plan = rule.route(state, Plan(state.round + 1, tuple(Chain((k,)) for k in clients), len(clients)), Seeds(0))
    update = rule.start(state, plan, samples)
    for i in reversed(range(len(clients))):
        hop = HopReport(clients[i], 0, 0, samples[i], 1, 0, 0, 0.0)
        update.add(ChainResult(i, plan.chains[i], models[i], (hop,)))
    return update.finish()


def test_a_split_by_hand_and_one_below_it() -> None:
    """Four directions; the second split is of client numbers, not of places in the cluster (the trap of the notebook)."""
    clients = [40, 30, 20, 10, 50, 60]
    start = vector(0.0, 0.0)
    models = [vector(1.0, 0.1), vector(-1.0, 0.1), vector(1.0, -0.1), vector(-1.0, -0.1), vector(1.0, 0.0), vector(-1.0, 0.0)]
    first = after(SPLITS, SPLITS.init(start), clients, models, [1, 1, 3, 1, 1, 1])
    assert first.extra["norms"] == {"global": [pytest.approx(math.hypot(2 / 8, 0.2 / 8)), pytest.approx(math.hypot(1, 0.1))]}
    assert first.extra["clusters"] == {"global.0": [20, 40, 50], "global.1": [10, 30, 60]}
    assert first.models["global.0"]["w"].tolist() == pytest.approx([1.0, (0.1 - 0.3) / 5])
    assert first.models["global.1"]["w"].tolist() == pytest.approx([-1.0, 0.0], abs=1e-7)
    assert SPLITS.views(first) == (View("global.0"), View("global.1", (10, 30, 60)))
    up, down = vector(1.0, 1.0), vector(1.0, -1.04)
    others = [vector(-1.0, 0.0)] * 3
    second = after(SPLITS, first, [50, 20, 40, 10, 30, 60], [up, down, up, *others], [1, 2, 1, 1, 1, 1])
    assert second.extra["clusters"] == {"global.0.0": [40, 50], "global.0.1": [20], "global.1": [10, 30, 60]}
    assert second.models["global.0.1"]["w"].tolist() == pytest.approx([1.0, -1.04])
    routed = SPLITS.route(second, Plan(3, (Chain((20,)), Chain((60,)), Chain((99,))), 3), Seeds(0))
    assert [chain.start for chain in routed.chains] == ["global.0.1", "global.1", "global.1"]
    assert SPLITS.views(second)[0] == View("global.1"), "clients that never trained are judged on the largest cluster's model"


@pytest.mark.parametrize(
    ("change", "splits"),
    [
        ({}, True),
        ({"eps1": 0.01}, False),
        ({"eps2": 2.0}, False),
        ({"first_round": 2}, False),
        ({"keep": 4}, False),
        ({"gamma": 1.0}, True),  # the halves point apart: their cosine is below 0
    ],
)
def test_every_condition_of_the_split(change: dict[str, Any], splits: bool) -> None:
    rule = replace(SPLITS, **change)
    models = [vector(1.0, 0.1), vector(-1.0, 0.1), vector(1.0, 0.1), vector(-0.9, 0.1)]
    state = after(rule, rule.init(vector(0.0, 0.0)), [0, 1, 2, 3], models, [1, 1, 1, 1])
    assert (len(state.models) == 2) is splits


def test_gamma_keeps_together_what_is_alike() -> None:
    """Halves at a right angle have the cosine 0: allowed up to gamma < 1, sqrt((1 - gamma) / 2) being above 0."""
    models = [vector(1.0, 0.0), vector(1.0, 0.0), vector(0.0, 1.0), vector(0.0, 1.0)]
    for gamma, clusters in ((-1.0, 2), (0.9, 2), (1.0, 1)):
        rule = replace(SPLITS, eps1=9.0, gamma=gamma)
        state = after(rule, rule.init(vector(0.0, 0.0)), [0, 1, 2, 3], models, [1, 1, 1, 1])
        assert len(state.models) == clusters
    assert Clustered(gamma=0.0).accepts(0.70)
    assert not Clustered(gamma=0.0).accepts(0.71)


def test_a_client_that_does_not_move_divides_nothing_by_zero() -> None:
    models = [vector(1.0), vector(-1.0), vector(0.0), vector(1.0)]
    state = after(SPLITS, SPLITS.init(vector(0.0)), [0, 1, 2, 3], models, [1, 1, 1, 1])
    assert sorted(map(sorted, state.extra["clusters"].values())) == [[0, 3], [1, 2]]


def test_only_trained_tensors_are_compared() -> None:
    rule = replace(SPLITS, eps2=5.0)
    start = {"w": torch.zeros(1), "running": torch.zeros(1)}
    models = [{"w": torch.tensor([s]), "running": torch.tensor([100.0])} for s in (1.0, -1.0, 1.0, -1.0)]
    state = after(rule, rule.init(start, Setting(trained=frozenset({"w"}))), [0, 1, 2, 3], models, [1, 1, 1, 1])
    assert list(state.models) == ["global"]
    assert state.extra["norms"]["global"] == [0.0, 1.0]


def test_without_a_split_it_is_fedavg_with_everybody_to_the_bit() -> None:
    data = images(clients=5, each=8)
    cfl = replace(named("cfl"), server=Clustered(eps1=1e-12, first_round=1))
    plain = replace(cfl, server=Mean())
    ours, theirs = (fedgsp.train(m, data, rounds=3, workers=0, lr=0.05) for m in (cfl, plain))
    assert bits(ours.state.model) == bits(theirs.state.model)
    assert ours.history[-1]["loss"] == theirs.history[-1]["loss"]
    assert ours.history[-1]["bytes_total"] == theirs.history[-1]["bytes_total"]


def test_two_populations_are_told_apart_and_each_learns_better_than_together(tmp_path: Path) -> None:
    """Half of the clients call every class by another name: one model cannot serve both."""
    data = images(clients=8, each=24)
    labels = data.labels.copy()
    for client in range(0, 8, 2):
        for part in (data.train, data.test):
            labels[part[client]] = 3 - labels[part[client]]
    mixed = replace(data, labels=labels)
    local = replace(named("cfl").local, lr=0.1)
    cfl = replace(named("cfl"), local=local, server=Clustered(eps1=0.5, eps2=0.1, first_round=4))
    ours = fedgsp.train(cfl, mixed, rounds=14, workers=0, out=tmp_path / "run")
    together = fedgsp.train(replace(cfl, server=Mean()), mixed, rounds=14, workers=0)
    even = {0, 2, 4, 6}
    assert all(set(members) <= even or not set(members) & even for members in ours.state.extra["clusters"].values())
    assert ours.accuracy is not None
    assert together.accuracy is not None
    assert ours.history[-1]["accuracy"] > together.history[-1]["accuracy"] + 0.1
    assert ours.facts["yields"] == "several"
    with pytest.raises(InputError, match="this run has no model 'global': it yields several"):
        ours.model()
    assert fedgsp.replay(tmp_path / "run", workers=0, data=mixed).differs is None


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"eps1": 0.0}, "eps1 must be a positive number"),
        ({"gamma": 1.5}, "gamma must be from -1 to 1"),
        ({"linkage": "average"}, "linkage must be 'single' or 'complete'"),
        ({"keep": 0}, "first_round and keep must be at least 1"),
    ],
)
def test_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Clustered(**wrong)
