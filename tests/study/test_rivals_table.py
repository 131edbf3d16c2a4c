"""The script behind the measured table, on a tiny federation: it resumes, and its budgets cut where they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rivals import images

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "rivals.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_rivals", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["benchmark_rivals"] = module
    spec.loader.exec_module(module)
    return module


def test_budgets_are_cut_where_they_are_reached(script: Any) -> None:
    journal = [{"round": r, "serial_steps_total": 10 * r, "accuracy": r / 10} for r in range(1, 8)]
    assert script.cut(journal, "round", 4) == (pytest.approx(0.3), True)  # rounds 2, 3, 4
    assert script.cut(journal, "serial_steps_total", 35) == (pytest.approx(0.2), True)  # rounds 1, 2, 3
    assert script.cut(journal, "serial_steps_total", 99) == (pytest.approx(0.6), False)


def test_the_table_and_that_a_second_call_runs_nothing(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = images(clients=8, each=12)
    source = tmp_path / "tiny.npz"
    np.savez(source, features=data.features, labels=data.labels, client_index=np.repeat(np.arange(8), 12))
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(script, "LR", "lr=0.01,0.1")
    monkeypatch.setitem(script.GRIDS, "feddc", ("lr=0.01,0.1",))
    arguments = [
        "--out", str(tmp_path / "out"), "--data", str(source), "--methods", "fedavg,feddc,fedgsp", "--rounds", "2",
        "--most-rounds", "3", "--tune-rounds", "2", "--seeds", "0,1", "--workers", "0",
    ]  # fmt: skip
    assert script.main(arguments) == 0
    table = (tmp_path / "out" / "rivals.md").read_text()
    assert capsys.readouterr().out == table
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith(("| fedavg", "| fedgsp"))]
    assert [len(row) for row in rows] == [10, 10]
    comparable, apart = table.split("Not comparable with the others: several models")
    assert "| feddc" in apart
    assert "| feddc" not in comparable
    assert "| fed" in comparable
    assert "| fedavg" not in apart
    from fedgsp.run import drive

    monkeypatch.setattr(drive, "start", None)
    monkeypatch.setattr(drive, "resume", None)
    assert script.main(arguments) == 0
    assert (tmp_path / "out" / "rivals.md").read_text() == table


def test_what_it_will_take(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = images(clients=4, each=12)
    source = tmp_path / "tiny.npz"
    np.savez(source, features=data.features, labels=data.labels, client_index=np.repeat(np.arange(4), 12))
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    options, _ = script.parsed(["--data", str(source), "--methods", "fedavg,fedprox", "--rounds", "2", "--seeds", "0"])
    text = script.estimate(options)
    assert "fedprox               12 grid points" in text
    assert "hours of one core in all" in text
