from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedgsp.core.tensors import clone, digest
from fedgsp.data.arrays import from_arrays
from fedgsp.data.federated import FederatedData
from fedgsp.evaluate import evaluate_rows, forward
from fedgsp.models import classification, regression

CPU = torch.device("cpu")


def federation(samples: int = 23) -> FederatedData:
    rng = np.random.default_rng(0)
    return from_arrays(rng.normal(size=(samples, 4)).astype(np.float32), np.arange(samples) % 3, np.zeros(samples, dtype=int))


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))


def test_one_value_for_every_row_in_the_order_asked_for() -> None:
    data, net = federation(), model()
    rows = np.array([5, 0, 22, 5])
    found = evaluate_rows(net, classification(), data, rows, CPU)
    net.eval()
    outputs = net(torch.from_numpy(data.features[rows]))
    losses = nn.functional.cross_entropy(outputs, torch.from_numpy(data.labels[rows]), reduction="none")
    np.testing.assert_allclose(found.loss, losses.detach().numpy(), rtol=1e-6)
    assert found.metrics["accuracy"].tolist() == (outputs.argmax(1).numpy() == data.labels[rows]).astype(float).tolist()


@pytest.mark.parametrize("chunk", [1, 7, 22, 23, 24])
def test_chunks_do_not_change_the_scores(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data, net, rows = federation(), model(), np.arange(23)
    whole = evaluate_rows(net, classification(), data, rows, CPU)
    monkeypatch.setattr(forward, "CHUNK", chunk)
    parts = evaluate_rows(net, classification(), data, rows, CPU)
    np.testing.assert_allclose(parts.loss, whole.loss, rtol=1e-6)
    assert parts.metrics["accuracy"].tolist() == whole.metrics["accuracy"].tolist()


def test_evaluation_changes_nothing_in_the_model() -> None:
    net = model()
    net.train()
    before = digest(clone(dict(net.state_dict())))
    one = evaluate_rows(net, classification(), federation(), np.arange(23), CPU)
    assert digest(clone(dict(net.state_dict()))) == before  # no BatchNorm statistics
    other = evaluate_rows(net, classification(), federation(), np.arange(23), CPU)
    assert one.loss.tolist() == other.loss.tolist()  # no dropout


def test_no_rows_no_values() -> None:
    found = evaluate_rows(model(), classification(), federation(), np.empty(0, dtype=np.int64), CPU)
    assert found.loss.shape == (0,)
    assert found.metrics["accuracy"].shape == (0,)


def test_regression_reports_its_own_metrics() -> None:
    data = from_arrays(np.zeros((3, 1), dtype=np.float32), np.array([0.5, 1.5, -1.0]), np.zeros(3, dtype=int))
    net = nn.Linear(1, 1)
    nn.init.zeros_(net.bias)
    found = evaluate_rows(net, regression(), data, np.arange(3), CPU)
    assert found.loss.tolist() == [0.25, 2.25, 1.0]
    assert found.metrics["absolute_error"].tolist() == [0.5, 1.5, 1.0]
