"""Resuming: exact, and refused with a sentence where it could not be."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.core.errors import Diverged, InputError, RunFailed
from fedgsp.data import load
from fedgsp.run.directory import RunDirectory
from fedgsp.run.reader import latest_checkpoint
from tests.support import tiny
from tests.support.faulty_rules import Raises


def start(out: Path, rounds: int = 3, **options: Any) -> fedgsp.RunResult:
    source = str(tiny.write_npz(out.parent / "data.npz"))
    return fedgsp.train("fedgsp", source, tiny.LINEAR, rounds=rounds, workers=0, out=out, lr=0.05, **options)


def model_bits(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def test_more_rounds_give_the_bits_of_a_run_that_had_them_from_the_start(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    start(whole, rounds=5)
    start(parts, rounds=2)
    result = fedgsp.resume(parts, rounds=5, workers=0)
    assert result.rounds == 5
    assert tiny.bits(result.state.model) == tiny.bits(start(tmp_path / "again", rounds=5).state.model)
    assert [entry["state"] for entry in result.history] == [
        json.loads(line)["state"] for line in (whole / "journal.jsonl").read_text().splitlines()
    ]
    assert "rounds = 5" in (parts / "config.toml").read_text()


def test_a_finished_run_says_so_and_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    start(out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    result = fedgsp.resume(out, workers=0)
    assert result.status == "finished"
    assert not result.trained_now
    after = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert after == before


def test_fewer_rounds_than_trained_are_refused(tmp_path: Path) -> None:
    start(tmp_path / "run")
    with pytest.raises(InputError, match="already trained 3 rounds"):
        fedgsp.resume(tmp_path / "run", rounds=2)


def newest(out: Path) -> Path:
    return sorted((out / "checkpoint").iterdir())[-1]


def test_a_damaged_checkpoint_is_refused_and_the_one_before_offered(tmp_path: Path) -> None:
    out = tmp_path / "run"
    start(out)
    good = model_bits(out)
    content = bytearray(newest(out).read_bytes())
    content[-3] ^= 1
    newest(out).write_bytes(content)
    with pytest.raises(InputError, match=r"damaged.*round 2.*`previous=True`"):
        fedgsp.resume(out, workers=0)
    fedgsp.resume(out, previous=True, workers=0)
    assert model_bits(out) == good
    assert len((out / "journal.jsonl").read_text().splitlines()) == 3


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    start(tmp_path / "one")
    start(tmp_path / "two", seed=1)
    foreign = newest(tmp_path / "two")
    newest(tmp_path / "one").unlink()
    (tmp_path / "one" / "checkpoint" / foreign.name).write_bytes(foreign.read_bytes())
    with pytest.raises(InputError, match="not what it was when the checkpoint was made"):
        fedgsp.resume(tmp_path / "one", workers=0)


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgsp.run.checkpoint.SCHEMA", 2)
    start(tmp_path / "run")
    monkeypatch.undo()
    with pytest.raises(InputError, match="schema 2; this version of fedgsp reads schema 1"):
        fedgsp.resume(tmp_path / "run", workers=0)


def test_a_deleted_data_file_is_one_sentence(tmp_path: Path) -> None:
    start(tmp_path / "run")
    (tmp_path / "data.npz").unlink()
    with pytest.raises(InputError, match=r"there is no data file .*data\.npz"):
        fedgsp.resume(tmp_path / "run", rounds=4)


def test_a_changed_data_file_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    start(out)
    good = model_bits(out)
    tiny.write_npz(tmp_path / "data.npz", seed=1)
    with pytest.raises(InputError, match="data or its configuration is not what it was"):
        fedgsp.resume(out, rounds=4)
    tiny.write_npz(tmp_path / "data.npz")
    assert model_bits(out) == good
    assert fedgsp.resume(out, rounds=4, workers=0).rounds == 4


def test_other_numerics_are_refused_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path / "run")
    monkeypatch.setattr("torch.__version__", "99.0")
    with pytest.raises(InputError, match=r"torch .*\(now 99.0\).*`other_numerics=True`"):
        fedgsp.resume(tmp_path / "run", rounds=4)
    assert fedgsp.resume(tmp_path / "run", rounds=4, other_numerics=True, workers=0).rounds == 4


def test_a_shortened_journal_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    start(out)
    (out / "journal.jsonl").write_bytes((out / "journal.jsonl").read_bytes()[:-10])
    with pytest.raises(InputError, match="shorter than its checkpoint says"):
        fedgsp.resume(out, rounds=4)


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run directory"):
        fedgsp.resume(tmp_path)


def test_a_second_process_in_one_directory_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    start(out)
    holder = RunDirectory.open(out)
    try:
        with pytest.raises(InputError, match=rf"in use by another process \({os.getpid()}\)"):
            fedgsp.resume(out, rounds=4)
    finally:
        holder.close()
    assert fedgsp.resume(out, rounds=4, workers=0).rounds == 4


def test_a_used_directory_is_not_overwritten(tmp_path: Path) -> None:
    start(tmp_path / "run")
    with pytest.raises(InputError, match="not empty; resume it"):
        start(tmp_path / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(InputError, match="not empty; choose another"):
        start(tmp_path / "full")


def test_divergence_stops_with_a_message_and_keeps_the_last_good_model(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Diverged, match="smaller learning rate") as error:
        _diverging(out)
    assert f"kept in {out}" in str(error.value)
    result = json.loads((out / "result.json").read_text())
    assert result["status"] == "failed"
    state, _ = latest_checkpoint(out) or (None, None)
    assert state is not None
    assert state.round == result["rounds"]
    assert all(bool(tensor.isfinite().all()) for tensor in state.model.values())


def _diverging(out: Path) -> fedgsp.RunResult:
    method = tiny.static(2)
    wild = replace(method, local=replace(method.local, lr=1e30))
    return fedgsp.train(wild, tiny.federation(), tiny.linear, rounds=5, workers=0, out=out)


def test_a_failing_client_ends_the_run_with_its_name_and_a_whole_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(RunFailed, match=r"site-04.*a bug in a rule.*kept in"):
        fedgsp.train(tiny.static(2, Raises(at=4)), tiny.federation(), tiny.linear, rounds=2, workers=0, out=out)
    healthy = tiny.static(2, Raises(at=-1))
    with pytest.raises(InputError, match="not what it was"):
        fedgsp.resume(out, data=tiny.federation(), model=tiny.linear, method=healthy, workers=0)


def test_data_in_memory_must_be_given_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.LINEAR, rounds=1, workers=0, out=out)
    with pytest.raises(InputError, match="data in memory"):
        fedgsp.resume(out, rounds=2)
    assert fedgsp.resume(out, rounds=2, data=tiny.federation(), workers=0).rounds == 2


def test_a_loaded_federation_is_recorded_by_its_source(tmp_path: Path) -> None:
    data = load(str(tiny.write_npz(tmp_path / "data.npz")), data_seed=7)
    fedgsp.train(tiny.chains(), data, tiny.LINEAR, rounds=1, workers=0, out=tmp_path / "run")
    assert fedgsp.resume(tmp_path / "run", rounds=2, workers=0).rounds == 2


def test_stopping_at_the_target_returns_that_rounds_model_and_stays_stopped(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = start(out, rounds=50, target_accuracy=0.6, stop_at_target=True)
    assert result.status == "target"
    assert result.figures.reached == result.rounds < 50
    again = fedgsp.resume(out, workers=0)
    assert again.rounds == result.rounds
    assert not again.trained_now
