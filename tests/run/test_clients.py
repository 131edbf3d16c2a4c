"""What a run directory keeps of its clients: enough for a report without the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedgsp
from fedgsp.run.clients import read_client_facts
from tests.support import tiny


def train(out: Path, rounds: int = 3, **options: Any) -> fedgsp.RunResult:
    return fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=rounds, workers=0, out=out, **options)


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "scores.jsonl").read_text().splitlines()]


def test_the_facts_are_those_of_the_data(tmp_path: Path) -> None:
    data = tiny.federation()
    train(tmp_path / "run", holdout_clients=2)
    facts = read_client_facts(tmp_path / "run")
    assert facts is not None
    expected = np.array([[int((data.labels[data.train[k]] == c).sum()) for c in range(tiny.CLASSES)] for k in range(8)])
    np.testing.assert_array_equal(facts.counts, expected)
    np.testing.assert_array_equal(facts.train, [len(data.train[k]) for k in range(8)])
    np.testing.assert_array_equal(facts.test, [len(data.test[k]) for k in range(8)])
    assert facts.held_out.sum() == 2
    np.testing.assert_array_equal(facts.trains, ~facts.held_out)
    assert (facts.score, facts.classes, facts.shape, facts.fingerprint) == ("accuracy", 3, (4,), data.fingerprint)
    assert facts.parameters == tiny.FEATURES * tiny.CLASSES + tiny.CLASSES
    assert facts.flops_per_sample == 3 * 2 * tiny.FEATURES * tiny.CLASSES


def test_scores_are_the_clients_own_accuracies(tmp_path: Path) -> None:
    result = train(tmp_path / "run", eval_every=2, rounds=4)
    assert [line["round"] for line in lines(tmp_path / "run")] == [2, 4]
    data, model = tiny.federation(), result.model()
    for k, value in enumerate(lines(tmp_path / "run")[-1]["values"]):
        rows = data.test[k]
        if len(rows) == 0:
            assert value is None
            continue
        right = model(torch.from_numpy(data.features[rows])).argmax(dim=1).numpy() == data.labels[rows]
        assert value == pytest.approx(right.mean(), abs=5e-5)


def test_resuming_from_the_checkpoint_before_cuts_the_scores_back(tmp_path: Path) -> None:
    train(tmp_path / "whole", rounds=4)
    train(tmp_path / "run", rounds=3)
    fedgsp.resume(tmp_path / "run", rounds=4, previous=True, data=tiny.federation(), model=tiny.linear)
    assert lines(tmp_path / "run") == lines(tmp_path / "whole")


def test_a_run_of_an_earlier_version_gets_its_facts_when_it_goes_on(tmp_path: Path) -> None:
    train(tmp_path / "run")
    whole = (tmp_path / "run" / "clients.safetensors").read_bytes()
    (tmp_path / "run" / "clients.safetensors").unlink()
    assert read_client_facts(tmp_path / "run") is None
    fedgsp.resume(tmp_path / "run", rounds=4, data=tiny.federation(), model=tiny.linear)
    assert (tmp_path / "run" / "clients.safetensors").read_bytes() == whole


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "clients.safetensors").write_bytes(b"nonsense")
    with pytest.raises(fedgsp.InputError, match="is not one that fedgsp wrote"):
        read_client_facts(tmp_path)
