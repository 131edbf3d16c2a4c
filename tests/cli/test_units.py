"""What is shown while units run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.cli import units
from fedgsp.cli.units import UnitLines, watcher
from tests.support import tiny


class Live(fedgsp.Callback):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in ("on_run_start", "on_round_start", "on_hop_end", "on_evaluate_start", "on_round_end", "on_run_end", "close"):
            return lambda *_: self.told.append(name)
        return super().__getattribute__(name)


def train(out: Path, callback: fedgsp.Callback, rounds: int = 2) -> None:
    fedgsp.train(tiny.static(2), tiny.federation(), tiny.linear, rounds=rounds, workers=0, out=out, callbacks=[callback])


def test_a_line_at_the_beginning_and_one_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lines,) = watcher(7, quiet=False)("fedgsp, seed 0")
    train(tmp_path / "a", lines)
    out, err = capsys.readouterr()
    assert out == ""
    first, last = err.splitlines()
    assert first == "[1/7] fedgsp, seed 0: 2 rounds"
    assert last.startswith("    accuracy 0.")
    assert watcher(7, quiet=True)("fedgsp") == []


def test_a_line_a_minute(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "LINE_EVERY", 0.0)
    train(tmp_path / "a", UnitLines("u", lambda: "1/1"))
    assert "    round 1 of 2, accuracy" in capsys.readouterr().err


def test_a_live_display_lies_between_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = Live()
    train(tmp_path / "a", UnitLines("u", lambda: "1/1", live), rounds=1)
    assert live.told[:2] == ["on_run_start", "on_round_start"]
    assert live.told[-3:] == ["on_evaluate_start", "on_round_end", "close"]
    assert len(capsys.readouterr().err.splitlines()) == 2
