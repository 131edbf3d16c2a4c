"""The server of worker processes, started before it is wanted: only where a run will want it, and only once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fedgsp.core import forked
from fedgsp.core.local_workers import MODULE, start_ahead, worker_environment

RAY = '[engine]\nname = "ray"\n'


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules whose server was asked for."""
    modules: list[str] = []
    monkeypatch.setattr("fedgsp.core.local_workers.cores", lambda: 2)

    def prepare(module: str, environment: Mapping[str, str]) -> bool:
        modules.append(module)
        return True

    monkeypatch.setattr(forked, "prepare", prepare)
    return modules


@pytest.mark.parametrize("workers", [None, "auto", 1, 4])
def test_a_run_that_will_want_workers_gets_their_server_early(asked: list[str], workers: int | str | None) -> None:
    assert start_ahead(None, {"workers": workers, "engine": None})
    assert asked == [MODULE]


@pytest.mark.parametrize(
    ("options", "sets", "file"),
    [
        ({"workers": 0}, [], None),
        ({"engine": "ray"}, [], None),
        ({}, ["run.workers=0"], None),
        ({}, ["engine.name = ray"], None),
        ({}, [], "[run]\nworkers = 0\n"),
        ({}, [], RAY),
        ({"workers": 0}, [], "[run]\nworkers = 2\n"),
    ],
)
def test_a_run_that_will_not_gets_none(
    asked: list[str], tmp_path: Path, options: dict[str, int | str], sets: list[str], file: str | None
) -> None:
    config = None if file is None else tmp_path / "config.toml"
    if config is not None and file is not None:
        config.write_text(file)
    assert not start_ahead(config, options, sets)
    assert asked == []


@pytest.mark.parametrize("content", [None, "no = = toml", "run = 3\n", f"a = {'[' * 20_000}", "[run]\nworkers = 0\n"])
def test_what_is_told_beside_a_file_counts_and_a_bad_file_is_left_to_its_reader(
    asked: list[str], tmp_path: Path, content: str | None
) -> None:
    config = tmp_path / "config.toml"
    if content is not None:
        config.write_text(content)
    assert start_ahead(config, {"workers": 2, "engine": "local"})


def test_a_pipe_is_not_waited_for(asked: list[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.toml")
    assert start_ahead(tmp_path / "config.toml", {})


def test_one_core_has_nothing_to_do_side_by_side(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgsp.core.local_workers.cores", lambda: 1)
    assert not start_ahead(None, {})
    assert asked == []


@pytest.mark.timing
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
def test_the_workers_come_from_the_server_that_was_started_early() -> None:
    code = """
import psutil
from fedgsp.core import forked
from fedgsp.core.local_workers import MODULE, worker_environment
def started(): return {child.pid for child in psutil.Process().children()}
assert forked.prepare(MODULE, worker_environment())
early = started()
import fedgsp
result = fedgsp.train(data="glyphs:clients=4", rounds=1, workers=2, progress=False)
assert len(early) == 1 and started() == early, (early, started())
assert result.rounds == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ), timeout=600)


def test_workers_compute_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert worker_environment()["OMP_NUM_THREADS"] == worker_environment()["MKL_NUM_THREADS"] == "1"
