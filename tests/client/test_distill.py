"""Federated distillation: tables and losses by hand, its limits, what is sent, and that each is judged on its own model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.client import SGD, Distill, LocalContext
from fedgsp.client.client_state import ClientStore
from fedgsp.core.errors import InputError
from fedgsp.core.state import Setting
from fedgsp.core.tensors import Tensors
from fedgsp.data import FederatedData
from fedgsp.fast import Mode
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.models import classification
from fedgsp.plan import Constant, Grouped, Random, Singletons
from fedgsp.run.reader import latest_checkpoint
from fedgsp.server import DistillServer, Mean, View
from tests.support import tiny
from tests.support.small_federations import bits, images


def fd(rule: Distill | None = None, kappa: float = 1.0) -> Method:
    return Method(Grouped(Singletons(), Random(), kappa=kappa), rule or Distill(lr=0.05, batch_size=64), DistillServer())


def own_models(folder: Path) -> dict[int, Tensors]:
    """Every client's model and table, from the files of the last checkpoint."""
    found = latest_checkpoint(folder)
    assert found is not None
    store = ClientStore(folder / "clients")
    return {client: store.read(client, mark) for client, mark in found[0].client_versions.items()}


@pytest.mark.parametrize("match", ["cross-entropy", "mse"])
def test_three_rounds_of_logistic_regression_in_numpy(match: Any, tmp_path: Path) -> None:
    """Full batches, so that every step can be written down: each client's weights after three rounds."""
    data, lr, gamma = tiny.federation(5), 0.1, 0.7
    rule = Distill(lr=lr, batch_size=64, gamma=gamma, match=match)
    out = tmp_path / "run"
    result = fedgsp.train(fd(rule), data, tiny.linear, rounds=3, workers=0, out=out)
    start = {name: t.double().numpy() for name, t in result.run.initial_model.items()}
    models = {k: (start["weight"].copy(), start["bias"].copy()) for k in range(5)}
    tables: dict[int, tuple[Any, Any]] = {}
    for _ in range(3):
        new_tables = {}
        for k in range(5):
            x, y = data.features[data.train[k]].astype(float), data.labels[data.train[k]]
            others = [table for j, table in tables.items() if j != k]
            w, b = models[k]
            logits = x @ w.T + b
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            grad = (p - np.eye(3)[y]) / len(y)
            for i, label in enumerate(y):
                said = [table[label] for table, has in others if has[label]]
                if not said:
                    continue
                target = np.mean(said, axis=0)
                if match == "mse":
                    grad[i] += gamma * 2 * (logits[i] - target) / 3 / len(y)
                else:
                    soft = np.exp(target - target.max())
                    grad[i] += gamma * (p[i] - soft / soft.sum()) / len(y)
            has = np.bincount(y, minlength=3) > 0
            new_tables[k] = (np.array([logits[y == c].mean(axis=0) if has[c] else np.zeros(3) for c in range(3)]), has)
            models[k] = (w - lr * grad.T @ x, b - lr * grad.sum(axis=0))
        tables = new_tables
    kept = own_models(out)
    assert sorted(kept) == list(range(5))
    for k, (w, b) in models.items():
        np.testing.assert_allclose(kept[k]["model.weight"].numpy(), w, atol=2e-5)
        np.testing.assert_allclose(kept[k]["model.bias"].numpy(), b, atol=2e-5)
        np.testing.assert_allclose(kept[k]["distill.table"].numpy(), tables[k][0], atol=2e-4)
    np.testing.assert_allclose(
        result.state.shared["distill.sum"].numpy(), sum(table for table, _ in tables.values()), atol=1e-3
    )
    assert result.state.shared["distill.count"].tolist() == sum(has.astype(int) for _, has in tables.values()).tolist()


def began(shared: Tensors, state: Tensors) -> dict[str, Any]:
    rule = Distill()
    model = rule.wrap_model(nn.Linear(2, 2), torch.zeros(1, 2))
    ctx = LocalContext(model, classification(), 2, 0, 0, 0.1, torch.device("cpu"), {}, shared)
    ctx.state = {**rule.initial_client_state(model), **state}
    rule.begin(ctx)
    return ctx.memo


def test_a_client_takes_its_own_table_out_only_where_it_was_among_them() -> None:
    shared = {
        "distill.sum": torch.tensor([[6.0, 2.0], [5.0, 1.0]]),
        "distill.count": torch.tensor([3, 1], dtype=torch.int32),
        "distill.round": torch.tensor(1),
    }
    own = {"distill.table": torch.tensor([[2.0, 4.0], [5.0, 1.0]]), "distill.has": torch.tensor([1, 1], dtype=torch.uint8)}
    last = began(shared, {**own, "distill.round": torch.tensor(1)})
    assert last["said"][0].tolist() == [2.0, -1.0]
    assert last["known"].tolist() == [True, False], "nobody else reported the second label"
    older = began(shared, {**own, "distill.round": torch.tensor(0)})
    assert older["said"].tolist() == [[2.0, pytest.approx(2 / 3)], [5.0, 1.0]]
    assert older["known"].tolist() == [True, True]


@pytest.mark.parametrize("fast", ["off", "auto"])
def test_with_gamma_zero_everybody_trains_alone_to_the_bit(tmp_path: Path, fast: Mode) -> None:
    """Client 0's model is that of a federation of client 0 only, under FedAvg."""
    data = images(clients=3, each=12)
    fedgsp.train(fd(Distill(lr=0.05, gamma=0.0)), data, rounds=3, workers=0, out=tmp_path / "run", fast=fast)
    alone = Method(Grouped(Singletons(), Random(), kappa=1.0), SGD(lr=0.05), Mean())
    theirs = fedgsp.train(alone, data.select([0]), rounds=3, workers=0, fast=fast)
    ours = {n.removeprefix("model."): t for n, t in own_models(tmp_path / "run")[0].items() if n.startswith("model.")}
    assert bits(ours) == bits(theirs.state.model)


@pytest.mark.parametrize("fast", ["off", "auto"])
def test_one_client_has_nobody_to_listen_to(tmp_path: Path, fast: Mode) -> None:
    data = images(clients=1, each=12)
    fedgsp.train(fd(Distill(lr=0.05, gamma=5.0)), data, rounds=2, workers=0, out=tmp_path / "run", fast=fast)
    plain = Method(Grouped(Singletons(), Random(), kappa=1.0), SGD(lr=0.05), Mean())
    theirs = fedgsp.train(plain, data, rounds=2, workers=0, fast=fast)
    ours = {n.removeprefix("model."): t for n, t in own_models(tmp_path / "run")[0].items() if n.startswith("model.")}
    assert bits(ours) == bits(theirs.state.model)


def test_only_tables_are_sent() -> None:
    data = tiny.federation(5)
    entry = fedgsp.train(fd(), data, tiny.linear, rounds=1, workers=0).history[0]
    down, up = 4 * 9 + 4 * 3 + 8, 4 * 9 + 3
    assert entry["bytes"] == entry["bytes_total"] == 5 * (down + up)


def test_everybody_is_judged_on_its_own_model(tmp_path: Path, data: FederatedData, loss_of: Callable[..., float]) -> None:
    result = fedgsp.train(fd(kappa=0.5), data, tiny.linear, rounds=2, workers=0, out=tmp_path / "run")
    kept = own_models(tmp_path / "run")
    assert 4 <= len(kept) < 8, "some have not trained yet: they have the weights that all begin with"
    initial = {f"model.{name}": t for name, t in result.run.initial_model.items()}
    losses = [loss_of(kept.get(k, initial), k) for k in range(8)]
    weights = data.sizes.astype(float)
    assert result.history[-1]["loss"] == pytest.approx(np.average(losses, weights=weights), rel=1e-5)
    assert result.facts["yields"] == "none"
    assert DistillServer().views(result.state) == (View("initial"),)
    with pytest.raises(InputError, match="this run has no model 'global': it yields none"):
        result.model()


@pytest.fixture
def data() -> FederatedData:
    return tiny.federation(8)


@pytest.fixture
def loss_of(data: FederatedData) -> Callable[..., float]:
    def loss(model: Tensors, client: int) -> float:
        rows = data.test[client]
        logits = torch.from_numpy(data.features[rows]) @ model["model.weight"].T + model["model.bias"]
        return float(nn.functional.cross_entropy(logits, torch.from_numpy(data.labels[rows])))

    return loss


def test_held_out_clients_have_no_model_and_are_not_judged(data: FederatedData) -> None:
    result = fedgsp.train(fd(), data, tiny.linear, rounds=1, workers=0, holdout_clients=2)
    assert "holdout" not in result.history[0]
    assert any("held out" in note for note in result.run.notes)


@pytest.mark.parametrize("workers", [0, 2])
def test_resumed_replayed_and_evaluated(tmp_path: Path, workers: int) -> None:
    source = str(tiny.write_npz(tmp_path / "data.npz", clients=6))
    options: dict[str, Any] = {"workers": workers}
    method = fd(Distill(lr=0.05, batch_size=4, gamma=0.5), kappa=0.7)
    fedgsp.train(method, source, "tests.support.tiny:linear", rounds=1, out=tmp_path / "run", **options)
    resumed = fedgsp.resume(tmp_path / "run", rounds=3, **options)
    whole = fedgsp.train(method, source, "tests.support.tiny:linear", rounds=3, workers=0)
    assert resumed.state.digest() == whole.state.digest()
    assert resumed.history[-1]["loss"] == whole.history[-1]["loss"]
    assert fedgsp.replay(tmp_path / "run", workers=0).differs is None
    told = tiny.cli("evaluate", str(tmp_path / "run"), "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["loss"] == whole.history[-1]["loss"]
    other = tiny.cli("evaluate", str(tmp_path / "run"), "--data", str(tiny.write_npz(tmp_path / "other.npz", clients=4)))
    assert other.returncode == 2
    assert "every client keeps a model of its own" in other.stderr


def test_listening_to_others_teaches_labels_that_a_client_does_not_have() -> None:
    """It learns, and better than alone on clients with few samples each."""
    data = images(clients=8, each=20)
    local = replace(named("fd").local, lr=0.1)
    result = fedgsp.train(replace(named("fd"), local=local), data, rounds=8, workers=0)
    assert result.history[-1]["loss"] < 0.75 * result.history[0]["loss"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Distill(gamma=-1.0), "gamma must be a number of at least 0"),
        (lambda: Distill(match="kl"), "match must be 'cross-entropy' or 'mse'"),  # type: ignore[arg-type]
        (lambda: DistillServer().init({}, Setting()), "needs data with classes"),
        (lambda: replace(fd(), server=Mean()).check(), "it needs the server rule 'distill'"),
        (lambda: replace(fd(), local=SGD()).check(), "it needs the local rule 'distill'"),
    ],
)
def test_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


def test_chains_are_refused_before_anything_starts(data: FederatedData) -> None:
    chained = replace(fd(), planner=Grouped(Constant(2), Random(), kappa=1.0))
    with pytest.raises(InputError, match="every client must train alone"):
        fedgsp.train(chained, data, tiny.linear, rounds=1, workers=0)
