"""Real runs, really stopped: SIGKILL at random moments, SIGINT, SIGTERM, a disk that is really full."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import tiny
from tests.support.forked_cli import Command

pytestmark = pytest.mark.timing

ROUNDS = 30


def options(folder: Path, workers: int) -> list[str]:
    source = str(tiny.write_npz(folder / "data.npz", clients=40))
    return [
        "--data",
        source,
        "--model",
        tiny.LINEAR,
        "--rounds",
        str(ROUNDS),
        "--workers",
        str(workers),
        "--lr",
        "0.05",
    ]


def launch(*arguments: str) -> Command:
    return Command(*arguments)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_progress(process: Command, events: Path, before: int, more: int) -> bool:
    """Until `more` new events are on disk; False if the run ended first."""
    deadline = time.monotonic() + 600
    while lines(events) < before + more:
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.001)
    return True


def outcome(out: Path) -> tuple[bytes, bytes, list[str]]:
    states = [json.loads(line)["state"] for line in (out / "journal.jsonl").read_text().splitlines()]
    return (out / "model.safetensors").read_bytes(), (out / "plans.jsonl").read_bytes(), states


def client_states(out: Path) -> dict[str, bytes]:
    """What the clients keep, scratch files included."""
    return {path.name: path.read_bytes() for path in (out / "clients").glob("*")}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("workers", "method"), [(1, "fedgsp"), (2, "fedgsp"), (4, "fedgsp"), (0, "fedgsp+dyn"), (2, "fedgsp+scaffold")]
)
def test_killed_at_20_random_moments_and_resumed_to_the_same_bits(tmp_path: Path, workers: int, method: str) -> None:
    arguments = [*options(tmp_path, workers), "--method", method]
    calm = tiny.cli("run", *arguments, "--out", str(tmp_path / "calm"), "-q")
    assert calm.returncode == 0, calm.stderr
    out, chance, kills = tmp_path / "stormy", random.Random(workers), 0
    events = out / "events.jsonl"
    process = launch("run", *arguments, "--out", str(out), "-q")
    while kills < 20:
        # a few to some eighty events further (a round has about 40), so that moments in all parts of a round are hit
        if not wait_for_progress(process, events, lines(events), chance.randrange(2, 18)):
            break
        process.kill()
        process.wait()
        kills += 1
        process = launch("resume", str(out), "-q")
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert kills == 20
    assert outcome(out) == outcome(tmp_path / "calm")
    assert client_states(out) == client_states(tmp_path / "calm")
    assert bool(client_states(out)) == (method != "fedgsp")
    replayed = tiny.cli("replay", str(out), "-q")
    assert replayed.returncode == 0, replayed.stderr
    assert f"{ROUNDS} rounds replayed, every bit the same" in replayed.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_runs_say_how_to_go_on_and_do(tmp_path: Path, number: signal.Signals, code: int) -> None:
    arguments = options(tmp_path, 1)
    out = tmp_path / "run"
    process = launch("run", *arguments, "--rounds", "4000", "--out", str(out))
    assert wait_for_progress(process, out / "journal.jsonl", 0, 2)
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == code
    assert f"fedgsp resume {out}" in errors
    assert "Traceback" not in errors
    result = json.loads((out / "result.json").read_text())
    assert result["status"] == "interrupted"
    assert result["rounds"] >= 1  # two journal lines: at least the first round is committed
    assert (out / "model.safetensors").exists()
    more = result["rounds"] + 2
    resumed = tiny.cli("resume", str(out), "--rounds", str(more), "--workers", "0", "-q")
    assert resumed.returncode == 0, resumed.stderr
    whole = tiny.cli("run", *arguments, "--rounds", str(more), "--workers", "0", "--out", str(tmp_path / "whole"), "-q")
    assert whole.returncode == 0, whole.stderr
    assert outcome(out) == outcome(tmp_path / "whole")


@pytest.mark.slow
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.decode().strip()}")
    try:
        arguments = options(tmp_path, 0)
        full = tiny.cli("run", *arguments, "--out", str(disk / "run"), "-q")
        assert full.returncode == 1
        assert "the disk is full" in full.stderr
        assert "Traceback" not in full.stderr
        assert subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=False).returncode == 0
        resumed = tiny.cli("resume", str(disk / "run"), "-q")
        assert resumed.returncode == 0, resumed.stderr
        calm = tiny.cli("run", *arguments, "--out", str(tmp_path / "calm"), "-q")
        assert calm.returncode == 0
        assert outcome(disk / "run") == outcome(tmp_path / "calm")
    finally:
        subprocess.run(["umount", str(disk)], check=False)


@pytest.mark.slow
def test_a_directory_that_becomes_read_only(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        disk = tmp_path / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True, check=False).returncode != 0:
            pytest.skip("cannot mount a disk here")
        try:
            assert tiny.cli("run", *options(tmp_path, 0), "--out", str(disk / "run"), "-q").returncode == 0
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            refused = tiny.cli("resume", str(disk / "run"), "--rounds", "15", "-q")
        finally:
            subprocess.run(["umount", str(disk)], check=False)
    else:
        out = tmp_path / "run"
        assert tiny.cli("run", *options(tmp_path, 0), "--out", str(out), "-q").returncode == 0
        out.chmod(0o555)
        (out / ".lock").chmod(0o444)
        refused = tiny.cli("resume", str(out), "--rounds", "15", "-q")
    assert refused.returncode == 2
    assert "may not be written" in refused.stderr
    assert "Traceback" not in refused.stderr
