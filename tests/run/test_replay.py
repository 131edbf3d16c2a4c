"""Replay: a result is a pure function of configuration, data and event log."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedgsp
from fedgsp.core.errors import InputError
from tests.support import tiny


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    source = str(tiny.write_npz(tmp_path / "data.npz"))
    fedgsp.train("fedgsp", source, tiny.LINEAR, rounds=3, workers=0, out=tmp_path / "run", lr=0.05, holdout_clients=2)
    return tmp_path / "run"


def test_an_honest_run_agrees_to_the_bit(finished: Path) -> None:
    verdict = fedgsp.replay(finished, workers=0)
    assert (verdict.rounds, verdict.differs) == (3, None)


def test_a_changed_journal_line_is_found(finished: Path) -> None:
    history = finished / "journal.jsonl"
    lines = history.read_bytes().splitlines(keepends=True)
    at = lines[1].index(b'"state":"') + len(b'"state":"')
    digit = b"0" if lines[1][at : at + 1] != b"0" else b"1"
    lines[1] = lines[1][:at] + digit + lines[1][at + 1 :]
    history.write_bytes(b"".join(lines))
    verdict = fedgsp.replay(finished, workers=0)
    assert verdict.rounds == 1
    assert "'state'" in (verdict.differs or "")


def test_a_changed_model_file_is_found(finished: Path) -> None:
    other = finished.parent / "other"
    fedgsp.train("fedgsp", str(finished.parent / "data.npz"), tiny.LINEAR, rounds=3, workers=0, out=other, seed=9)
    (finished / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    assert "model.safetensors differs" in (fedgsp.replay(finished, workers=0).differs or "")


def test_a_run_without_a_round_is_refused(finished: Path) -> None:
    for checkpoint in (finished / "checkpoint").iterdir():
        checkpoint.unlink()
    with pytest.raises(InputError, match="has not finished a round"):
        fedgsp.replay(finished)


def test_timings_are_exempt_and_everything_else_is_not(finished: Path) -> None:
    history = finished / "journal.jsonl"
    content = history.read_bytes()
    at = content.index(b'"plan":') + len(b'"plan":')
    history.write_bytes(content[:at] + b"9" + content[at + 1 :])
    assert fedgsp.replay(finished, workers=0).differs is None
