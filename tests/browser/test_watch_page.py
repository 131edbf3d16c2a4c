"""The watched page in a real browser: hops and rounds arrive by themselves, also after the server or the run were away."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp.report.live.server import WatchServer
from tests.support import fake_runs, tiny
from tests.support.forked_cli import Command

pytestmark = [pytest.mark.slow, pytest.mark.timing]


@contextmanager
def serving(place: Path, port: int = 0) -> Iterator[WatchServer]:
    with WatchServer([place], port=port, every=100) as server:
        server.in_background()
        try:
            yield server
        finally:
            server.shutdown()


@contextmanager
def held(run: Path) -> Iterator[None]:
    """As if a process were training here."""
    descriptor = os.open(run / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def shows(page: Any, selector: str, word: str) -> None:
    page.wait_for_function(
        "([s, w]) => document.querySelector(s).textContent.includes(w)", arg=[selector, word], timeout=300_000
    )  # fmt: skip


def test_hops_rounds_and_new_runs_arrive_by_themselves(tmp_path: Path, open_tab: Any) -> None:
    place = tmp_path / "runs"
    place.mkdir()
    with serving(place) as server:
        tab = open_tab(server.url)
        shows(tab.page, "#words", "no run here yet")
        run = fake_runs.write_run(place / "a", clients=20, rounds=2, status=None)
        with held(run):
            shows(tab.page, "#live", "1 run under way")
            shows(tab.page, "#lane-caption", "Round 2")
            fake_runs.add_round(run, 3, np.random.default_rng(3), 20, history=False)
            shows(tab.page, "#lane-caption", "Round 3 (under way)")
            fake_runs.add_round(run, 3, np.random.default_rng(3), 20)
            shows(tab.page, "#lane-caption", "Round 3:")
        shows(tab.page, "#live", "nothing under way")
        fake_runs.write_run(place / "b", clients=20, rounds=4, method="fedavg")
        shows(tab.page, "#curve-legend", "fedavg")
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 1200
        assert tab.trouble.messages == []


def test_it_catches_up_after_the_server_was_away_and_the_run_went_on(tmp_path: Path, open_tab: Any) -> None:
    run = fake_runs.write_run(tmp_path / "run", clients=20, rounds=2, status=None)
    with serving(run) as server:
        port = server.server_port
        tab = open_tab(server.url)
        shows(tab.page, "#lane-caption", "Round 2")
    shows(tab.page, "#live", "trying again")
    for r in range(3, 9):
        fake_runs.add_round(run, r, np.random.default_rng(r), 20)
    with serving(run, port):
        tab.page.evaluate("window.dispatchEvent(new Event('online'))")
        shows(tab.page, "#lane-caption", "Round 8")
        shows(tab.page, "#live", "live")
    rounds = tab.page.locator("#curve-table tbody th").all_text_contents()
    assert rounds == [str(r) for r in range(1, 9)]


def test_a_real_run_that_is_killed_and_resumed_goes_on_on_the_same_page(tmp_path: Path, open_tab: Any) -> None:
    source, run = str(tiny.write_npz(tmp_path / "data.npz", clients=12)), tmp_path / "run"
    begin = (
        "run",
        "--data",
        source,
        "--model",
        tiny.LINEAR,
        "--rounds",
        "5000",
        "--workers",
        "0",
        "--out",
        str(run),
        "--quiet",
    )
    with serving(tmp_path) as server:
        tab = open_tab(server.url)
        reached = "n => Number(document.getElementById('lane-round').textContent) >= n"
        with training(*begin):
            shows(tab.page, "#live", "1 run under way")
            tab.page.wait_for_function(reached, arg=5, timeout=300_000)
        shows(tab.page, "#cards", "stopped")
        before = int(tab.page.locator("#lane-round").inner_text())
        with training("resume", str(run), "--quiet"):
            tab.page.wait_for_function(reached, arg=before + 5, timeout=300_000)
            shows(tab.page, "#live", "1 run under way")
        shows(tab.page, "#cards", "stopped")
        shown = [int(text) for text in tab.page.locator("#curve-table tbody th").all_text_contents()]
        assert shown == sorted(set(shown))
        assert shown[0] == 1
        assert tab.trouble.messages == []


@contextmanager
def training(*arguments: str) -> Iterator[None]:
    """A real process on the command line, killed without warning at the end."""
    process = Command(*arguments)
    try:
        yield
    finally:
        process.kill()
        process.wait(timeout=300)
