"""Two Ray nodes on this machine, as processes of their own: one is killed, or all of them, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedgsp
from tests.support import ray_clusters, tiny
from tests.support.waiting import until

pytestmark = pytest.mark.slow
RAY = Path(sys.executable).parent / "ray"
PORT = 26379
CALM = "tests.support.calm:calm"
"""A model that sleeps while it trains: rounds of it take some seconds, so that there is a middle of them, and no CPU time."""


def long(folder: Path) -> list[str]:
    """Options of a run whose rounds take some seconds."""
    source = f"npz:{tiny.write_npz(folder / 'data.npz', clients=24)}"
    return ["--data", source, "--model", CALM, "--fast", "off", "--kappa", "1.0", "--batch-size", "2", "--rounds", "2"]


class Raylets:
    """Nodes with one CPU each, the first of them the head."""

    def __init__(self) -> None:
        self._folder = ray_clusters.own_folder()
        self._environment = {
            **tiny.environment(), "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": self._folder, "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        try:
            told = self._start("--head", f"--port={PORT}", "--include-dashboard=false")
            self.address = next(word.strip("'") for word in told.split("--address=")[1:] for word in word.split())
            self.head = self.raylets()
        except BaseException:
            self.stop()
            raise

    def add(self) -> None:
        """One node more."""
        self._start(f"--address={self.address}")

    def second(self) -> set[int]:
        """The raylet of another node than the head, which is made if there is none."""
        if not self.raylets() - self.head:
            self.add()
        return self.raylets() - self.head

    def _start(self, *options: str) -> str:
        command = [str(RAY), "start", *options, "--num-cpus=1", "--disable-usage-stats", "--object-store-memory=200000000"]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        """`fedgsp` with a cluster to connect to."""
        command = [sys.executable, "-c", "from fedgsp.cli.main import main; main()", *arguments]
        return subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )  # fmt: skip

    def raylets(self) -> set[int]:
        """The process of each node that is there."""
        found = subprocess.run(
            ["pgrep", "-f", f"raylet/raylet .*{self._folder}/"], capture_output=True, text=True, check=False
        )  # fmt: skip
        return {int(pid) for pid in found.stdout.split()}

    def stop(self) -> None:
        """All of it."""
        ray_clusters.end(self._folder)


@pytest.fixture(scope="module")
def raylets() -> Iterator[Raylets]:
    """One cluster for all of these tests: starting a node takes seconds of CPU time."""
    made = Raylets()
    yield made
    made.stop()


def _lines(run: Path, kind: str) -> list[dict[str, Any]]:
    file = run / "events.jsonl"
    whole = file.read_text().splitlines() if file.exists() else []
    told = []
    for line in whole:
        try:
            told.append(json.loads(line))
        except ValueError:  # being written
            continue
    return [event for event in told if event["event"] == kind]


def _states(run: Path) -> list[str]:
    return [json.loads(line)["state"] for line in (run / "journal.jsonl").read_text().splitlines()]


def test_ten_thousand_clients_of_a_tiny_model_over_two_nodes(raylets: Raylets, tmp_path: Path) -> None:
    assert raylets.second()
    source = f"npz:{tiny.write_npz(tmp_path / 'many.npz', clients=10_000)}"
    common = ["--method", "fedavg", "--data", source, "--model", tiny.LINEAR, "--rounds", "2", "--kappa", "1.0"]
    run = raylets.run("run", *common, "--engine", "ray", "--address", "auto", "--out", str(tmp_path / "there"))
    told, _ = run.communicate(timeout=900)
    assert run.returncode == 0, told
    here = tiny.cli("run", *common, "--workers", "2", "--out", str(tmp_path / "here"), "--quiet")
    assert here.returncode == 0, here.stderr
    assert _states(tmp_path / "there") == _states(tmp_path / "here")
    assert json.loads((tmp_path / "there" / "journal.jsonl").read_text().splitlines()[-1])["clients"] == 10_000


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", ["naive-gsp", "fedavg", "scaffold"])
def test_a_node_killed_in_mid_round_changes_no_bit(method: str, raylets: Raylets, tmp_path: Path) -> None:
    out, local, options = tmp_path / "run", tmp_path / "local", ["--method", method, *long(tmp_path)]
    killed = raylets.second()
    run = raylets.run("run", *options, "--engine", "ray", "--address", "auto", "--out", str(out))
    until(lambda: any(hop["round"] == 2 for hop in _lines(out, "hop")))
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    told, _ = run.communicate(timeout=900)
    assert run.returncode == 0, told
    assert _lines(out, "lost"), "the killed node had nothing to do"
    done = tiny.cli("run", *options, "--workers", "2", "--out", str(local), "--quiet")
    assert done.returncode == 0, done.stderr
    assert _states(out) == _states(local)


def test_a_node_that_comes_later_is_used_from_the_next_round_on(raylets: Raylets, tmp_path: Path) -> None:
    out, before = tmp_path / "run", len(raylets.raylets())
    # so many rounds that a node is up, and its worker has imported torch, well before the last
    options = [*long(tmp_path)[:-1], "10", "--engine", "ray", "--address", "auto", "--profile", "--out", str(out)]
    run = raylets.run("run", *options)
    until(lambda: bool(_lines(out, "hop")))
    raylets.add()
    told, _ = run.communicate(timeout=900)
    assert run.returncode == 0, told
    peaks = json.loads((out / "result.json").read_text())["timings"]["peak_memory"]
    assert sorted(peaks) == ["main", *(f"worker {k}" for k in range(before + 1))]


def test_a_run_whose_cluster_is_gone_resumes_from_its_checkpoint(raylets: Raylets, tmp_path: Path) -> None:
    out = tmp_path / "run"
    raylets.second()
    options = ["--method", "naive-gsp", *long(tmp_path), "--engine", "ray", "--address", "auto", "--out", str(out)]
    run = raylets.run("run", *options)
    until(lambda: any(hop["round"] == 2 for hop in _lines(out, "hop")))
    run.send_signal(signal.SIGKILL)  # the head's machine: the driver goes with it
    run.communicate(timeout=600)
    raylets.stop()
    again = Raylets()
    try:
        going_on = again.run("resume", str(out))
        told, _ = going_on.communicate(timeout=900)
        assert going_on.returncode == 0, told
    finally:
        again.stop()
    replayed = fedgsp.replay(out, workers=2)  # computes all rounds anew in local workers
    assert (replayed.rounds, replayed.differs) == (2, None)
