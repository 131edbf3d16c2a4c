"""Whole runs on a Ray of this machine: the bits of the local engine, however samples, states and results travel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray._private import ray_constants

import fedgsp
from fedgsp.client import SGD
from fedgsp.client.context import LocalContext
from fedgsp.core.chain import Plan
from fedgsp.core.errors import InputError, RemoteTraceback, RunFailed
from fedgsp.engine.messages import WorkerLost, WorkerSlow
from fedgsp.engine.time_limits import TimeLimits
from fedgsp.engine.transports.ray.cluster import LOOPBACK, QUIET, Cluster
from fedgsp.engine.transports.ray.settings import RaySettings
from fedgsp.method import Method
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.run.callbacks import Callback, Failure
from fedgsp.server import Mean
from tests.support import ray_clusters, tiny
from tests.support.faulty_rules import Dies, Raises, RaisesOnce, Stops
from tests.support.waiting import until
from tests.support.waking import Waker

pytestmark = pytest.mark.timing

DATA = "glyphs:clients=8"


@pytest.fixture(scope="module")
def ray_here() -> Iterator[Cluster]:
    """One Ray for all of these tests: an engine uses the one that it finds. Nothing of it stays in this process."""
    before = {name: os.environ.get(name) for name in (*QUIET, LOOPBACK)}
    cluster = Cluster(RaySettings(workers=2))
    assert {name: os.environ.get(name) for name in before} == before
    assert ray_constants.ENABLE_RAY_CLUSTER
    yield cluster
    cluster.close()


class Heard(Callback):
    """Keeps plans and what engines say."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.lost: list[WorkerLost] = []

    def on_round_start(self, plan: Plan) -> None:
        """Keep the plan."""
        self.plans.append(plan)

    def on_failure(self, failure: Failure) -> None:
        """Keep the losses."""
        if isinstance(failure, WorkerLost):
            self.lost.append(failure)


def states(result: Any) -> list[str]:
    return [entry["state"] for entry in result.history]


def on_ray(**more: Any) -> dict[str, Any]:
    return {"name": "ray", **more}


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("fedgsp", "store"), ("scaffold", "shards"),
        *(pytest.param(*pair, marks=pytest.mark.slow)
          for pair in [("fedgsp", "shards"), ("fedavg", "store"), ("fedavg", "shards"), ("scaffold", "store")]),
    ],
)  # fmt: skip
def test_the_same_bits_as_the_local_engine(method: str, data: str, tmp_path: Path) -> None:
    common: dict[str, Any] = {"method": method, "data": DATA, "rounds": 2}
    local = fedgsp.train(**common, workers=0)
    there = fedgsp.train(**common, workers=2, engine=on_ray(data=data), out=tmp_path / "run")
    assert states(there) == states(local)
    figures = [{k: v for k, v in entry.items() if k != "timings"} for entry in local.history]
    assert [{k: v for k, v in entry.items() if k != "timings"} for entry in there.history] == figures
    assert fedgsp.replay(tmp_path / "run", workers=0).differs is None


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_samples_in_files_are_read_in_place(tmp_path: Path) -> None:
    source = f"npz:{tiny.write_npz(tmp_path / 'tiny.npz')}"
    common: dict[str, Any] = {"method": tiny.chains(), "data": source, "model": tiny.linear, "rounds": 2}
    assert states(fedgsp.train(**common, engine=on_ray(data="files"), workers=2)) == states(fedgsp.train(**common, workers=0))
    common["data"] = tiny.federation()
    with pytest.raises(InputError, match="not in files"):
        fedgsp.train(**common, engine=on_ray(data="files"), workers=2)


class Noisy:
    """A data set with a random transform in it."""

    def __init__(self) -> None:
        self.data = tiny.federation()

    def __len__(self) -> int:
        return len(self.data.features)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return self.data.features[i] + np.float32(torch.rand(()).item()), int(self.data.labels[i])


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("place", ["shards", pytest.param("store", marks=pytest.mark.slow)])
def test_a_data_set_is_read_anew_where_clients_train(place: str) -> None:
    samples = Noisy()
    owner = np.arange(len(samples)) % 6
    once, anew = (fedgsp.from_dataset(samples, owner, anew=anew, standardise=True) for anew in (False, True))
    common: dict[str, Any] = {"method": tiny.chains(), "model": tiny.linear, "rounds": 2}
    local = fedgsp.train(**common, data=anew, workers=0)
    assert states(fedgsp.train(**common, data=anew, engine=on_ray(data=place), workers=2)) == states(local)
    assert states(fedgsp.train(**common, data=once, workers=0)) != states(local)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_many_results_are_added_up_by_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgsp.server.mean import MeanUpdate

    arrived: list[bool] = []
    added = MeanUpdate.add

    def add(self: MeanUpdate, result: Any) -> None:
        arrived.append(result.summed and not result.tensors)
        added(self, result)

    common: dict[str, Any] = {"method": "fedavg", "data": tiny.federation(40), "model": tiny.linear, "rounds": 2}
    expected = states(fedgsp.train(**common, workers=0))
    monkeypatch.setattr(MeanUpdate, "add", add)
    monkeypatch.setattr(MeanUpdate, "elsewhere", lambda self: self.weighing)
    assert states(fedgsp.train(**common, engine="ray", workers=2)) == expected
    assert len(arrived) == 24
    assert all(arrived)


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("data", ["store", "shards"])
def test_a_chain_whose_worker_dies_is_run_again(data: str, tmp_path: Path) -> None:
    common: dict[str, Any] = {"data": tiny.federation(12), "model": tiny.linear, "rounds": 2}
    heard, rule = Heard(), Dies(lr=0.05, batch_size=3, at=3, once=str(tmp_path / "died"))
    method, calm = tiny.chains(rule=rule), tiny.chains()
    there = fedgsp.train(method, **common, workers=2, engine=on_ray(data=data), callbacks=[heard])
    assert states(there) == states(fedgsp.train(calm, **common, workers=0))
    assert heard.lost
    assert all("died" in loss.cause for loss in heard.lost)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_chains_that_a_dead_worker_had_added_up_are_run_again(tmp_path: Path) -> None:
    common: dict[str, Any] = {"data": tiny.federation(40), "model": tiny.linear, "rounds": 2}
    everybody = Grouped(Singletons(), Random(), kappa=1.0)
    rule = Dies(lr=0.05, batch_size=3, at=32, once=str(tmp_path / "died"))  # one of the smallest: its worker has others by then
    heard = Heard()
    there = fedgsp.train(Method(everybody, rule, Mean()), **common, workers=2, engine="ray", callbacks=[heard])
    calm = Method(everybody, SGD(lr=0.05, batch_size=3), Mean())
    assert states(there) == states(fedgsp.train(calm, **common, workers=0))
    assert len(heard.lost) > 2


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_nothing_is_added_up_twice_where_a_client_fails_among_others(tmp_path: Path) -> None:
    common: dict[str, Any] = {"data": tiny.federation(200), "model": tiny.linear, "rounds": 2}
    everybody = Grouped(Singletons(), Random(), kappa=1.0)
    rule = RaisesOnce(lr=0.05, batch_size=3, at=100, flag=str(tmp_path / "raised"))
    there = fedgsp.train(Method(everybody, rule, Mean()), **common, workers=2, engine="ray")
    calm = Method(everybody, SGD(lr=0.05, batch_size=3), Mean())
    assert states(there) == states(fedgsp.train(calm, **common, workers=0))
    assert (tmp_path / "raised").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_a_client_that_keeps_failing_ends_the_run_by_its_name() -> None:
    common: dict[str, Any] = {"data": tiny.federation(8), "model": tiny.linear, "rounds": 2, "workers": 2, "engine": "ray"}
    with pytest.raises(RunFailed, match=r"client 'site-03' failed 2 times in round 1: ZeroDivisionError: a bug in a rule"):
        fedgsp.train(tiny.chains(rule=Raises(lr=0.05, batch_size=3, at=3)), **common)
    with pytest.raises(RunFailed, match=r"client 'site-03' failed 3 times in round 1: its worker process died"):
        fedgsp.train(tiny.chains(rule=Dies(lr=0.05, batch_size=3, at=3)), **common)


@dataclass(frozen=True, kw_only=True)
class BadTerm(SGD):
    """Raises in its term."""

    def looks_at(self) -> Any:
        """Outputs."""
        return "logits"

    def loss_term(self, ctx: LocalContext, seen: Any, y: Any) -> Any:
        """Fail, where it is not just tried out."""
        if os.environ.get("ONLY_HERE") != str(os.getpid()):
            raise ValueError("no such class")
        return seen.outputs.mean()


@pytest.mark.usefixtures("ray_here")
def test_an_exception_in_a_rule_has_its_place_and_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY_HERE", str(os.getpid()))
    common: dict[str, Any] = {"data": tiny.federation(8), "model": tiny.linear, "rounds": 1, "workers": 2, "engine": "ray"}
    out, line = tmp_path / "run", BadTerm.loss_term.__code__.co_firstlineno + 3
    told = rf"failed 2 times in round 1: ValueError: no such class \(test_engine\.py:{line}, in loss_term\)\..*events\.jsonl\.$"
    with pytest.raises(RunFailed, match=told) as failed:
        fedgsp.train(tiny.chains(rule=BadTerm(lr=0.05, batch_size=3)), **common, out=out)
    assert isinstance(failed.value.__cause__, RemoteTraceback)
    assert f'line {line}, in loss_term\n    raise ValueError("no such class")' in str(failed.value.__cause__)
    assert [f"line {line}, in loss_term" in event["trace"] for event in _events(out, "failed")] == [True]


def _events(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = (out / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def only_here(shape: tuple[int, ...], classes: int) -> Any:
    """A model that can be built in this process only."""
    if os.environ.get("ONLY_HERE") != str(os.getpid()):
        raise OSError("no weights here")
    return tiny.linear(shape, classes)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("data", ["store", "shards"])
def test_a_model_that_cannot_be_built_there_has_its_place_too(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY_HERE", str(os.getpid()))
    with pytest.raises(RunFailed, match=r"OSError: no weights here \(test_engine\.py:\d+, in only_here\)\.$") as failed:
        fedgsp.train(tiny.chains(), tiny.federation(8), only_here, rounds=1, workers=1, engine=on_ray(data=data))
    assert "raise OSError" in "".join(traceback.format_exception(failed.value))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_a_worker_that_is_stopped_is_replaced_after_the_limit(tmp_path: Path) -> None:
    """One worker only, so that nothing goes on before there is another."""
    flag, heard = tmp_path / "stopped", Heard()
    rule = Stops(lr=0.05, batch_size=3, at=5, once=str(flag))  # never the first that a worker trains
    common: dict[str, Any] = {"data": tiny.federation(8), "model": tiny.linear, "rounds": 2}
    there = fedgsp.train(tiny.static(2, rule), **common, workers=1, engine="ray", hop_seconds=4.0, callbacks=[heard])
    assert states(there) == states(fedgsp.train(tiny.static(2), **common, workers=0))
    # On a busy machine another worker may be too slow without having stopped.
    (lost,) = [one for one in heard.lost if f"(process {flag.read_text()} on node " in one.cause]
    (walked,) = [chain.clients for chain in heard.plans[0].chains if 5 in chain.clients]
    # What was said of the hops before may not have left the stopped process: then an earlier client of its chain is named.
    assert lost.client in walked[: walked.index(5) + 1]
    assert "took longer than the 4 s" in lost.cause
    until(lambda: not Path(f"/proc/{flag.read_text()}").exists(), 300)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("together", [False, True])
def test_without_a_limit_a_worker_that_is_stopped_gets_a_line(
    together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many short chains that are one task only the task is known."""
    monkeypatch.setattr("fedgsp.run.run.TimeLimits", partial(TimeLimits, floor=2.0, unknown=2.0))
    flag, told = tmp_path / "stopped", list[WorkerSlow]()
    waker = Waker(flag)

    class Wakes(Callback):
        def on_failure(self, failure: Failure) -> None:
            if isinstance(failure, WorkerSlow):
                told.append(failure)
                waker.ask()

    rule = Stops(lr=0.05, batch_size=3, at=5, once=str(flag))
    planner = Grouped(Singletons(), Random(), kappa=1.0) if together else tiny.static(2).planner
    data = tiny.federation(40 if together else 8)
    common: dict[str, Any] = {"data": data, "model": tiny.linear, "rounds": 1}
    there = fedgsp.train(Method(planner, rule, Mean()), **common, workers=1, engine="ray", callbacks=[Wakes()])
    calm = Method(planner, SGD(lr=0.05, batch_size=3), Mean())
    assert states(there) == states(fedgsp.train(calm, **common, workers=0))
    slow = [one for one in told if one.worker.startswith(f"process {flag.read_text()} ") and "evaluation" not in one.what]
    assert (slow[0].client is None) == together  # what was said of the client before may not have left the stopped process
    assert ("short chains" if together else "client 'site-0") in slow[0].what


@pytest.mark.usefixtures("ray_here")
def test_what_the_cluster_cannot_give_is_said_at_once() -> None:
    common: dict[str, Any] = {"data": tiny.federation(8), "model": tiny.linear, "rounds": 1}
    with pytest.raises(InputError, match=r"no node .* has room for a worker \(CPU 1, GPU 1\)"):
        fedgsp.train(tiny.chains(), **common, engine=on_ray(resources="gpu=1"))
    with pytest.raises(InputError, match="needs workers"):
        fedgsp.train(tiny.chains(), **common, engine="ray", workers=0)
    with pytest.raises(InputError, match="say `engine='ray'`"):
        fedgsp.train(tiny.chains(), **common, engine={"address": "auto"})


@pytest.mark.usefixtures("ray_here")
def test_a_cluster_that_has_no_room_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgsp.engine.transports.ray.transport.NO_ROOM_SECONDS", 2.0)
    common: dict[str, Any] = {"data": tiny.federation(8), "model": tiny.linear, "rounds": 1, "workers": 1}
    with pytest.raises(RunFailed, match="no node with room for a worker"):
        fedgsp.train(tiny.chains(), **common, engine=on_ray(resources="gpu=1"))


@pytest.mark.usefixtures("ray_here")
@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", ["moon", "per-fedavg", "fd", "cfl", "fedseq-inter", "data-sharing"])
def test_every_kind_of_method_gives_the_same_bits(method: str, tmp_path: Path) -> None:
    common: dict[str, Any] = {"method": method, "data": DATA, "rounds": 2}
    there = fedgsp.train(**common, workers=2, engine=on_ray(data="shards"), out=tmp_path / "run")
    assert states(there) == states(fedgsp.train(**common, workers=0))


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"`engine='ray'` needs the package 'ray'.*pip install 'fedgsp\[ray\]'"):
        fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=1, engine="ray")


def test_addresses_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for address, sentence in (("ray://10.0.0.1:10001", "Ray Client"), ("127.0.0.1:1", "no Ray cluster")):
        told = tiny.cli(
            "run", "--data", DATA, "--rounds", "1", "--engine", "ray", "--address", address, "--out", f"{tmp_path}/run"
        )
        assert told.returncode == 2, told.stderr
        assert sentence in told.stderr


@pytest.mark.slow
def test_a_ray_of_our_own_listens_on_this_machine_only_and_goes_with_the_run(tmp_path: Path) -> None:
    options = ["--data", DATA, "--rounds", "500", "--engine", "ray", "--workers", "2", "--out", str(tmp_path / "run")]
    run = subprocess.Popen(
        [sys.executable, "-c", "from fedgsp.cli.main import main; main()", "run", *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=tiny.environment(),
    )  # fmt: skip
    try:
        history = tmp_path / "run" / "journal.jsonl"
        until(lambda: history.exists() and history.read_text().count("\n") >= 2, 600)
        family = _descendants(run.pid)
        listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines()
        ours = [line for line in listening if any(f"pid={pid}," in line for pid in family)]
        assert ours
        assert all("127.0.0.1" in line.split()[3] or "[::1]" in line.split()[3] for line in ours), ours
        run.send_signal(signal.SIGINT)
        _, told = run.communicate(timeout=300)
        assert run.returncode == 130, told
        assert "fedgsp resume" in told
        until(lambda: not any(_alive(pid) for pid in family), 300)
    finally:
        run.kill()
    rounds = history.read_text().count("\n") + 1
    goes_on = fedgsp.resume(tmp_path / "run", rounds=rounds, workers=0, engine="local")
    assert states(goes_on) == states(fedgsp.train("fedgsp", DATA, rounds=rounds, workers=0))


def _descendants(pid: int) -> set[int]:
    found, todo = set(), [pid]
    while todo:
        one = todo.pop()
        found.add(one)
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            todo += [int(child) for child in task.read_text().split()]
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@pytest.mark.slow
def test_a_run_goes_on_elsewhere_than_it_was_begun(ray_here: Cluster, tmp_path: Path) -> None:
    common: dict[str, Any] = {"method": "fedgsp", "data": DATA}
    fedgsp.train(**common, rounds=1, workers=0, out=tmp_path / "run")
    fedgsp.resume(tmp_path / "run", rounds=2, workers=2, engine="ray")
    last = fedgsp.resume(tmp_path / "run", rounds=3, workers=0)
    assert last.run.config.engine.name == "local"
    assert states(last) == states(fedgsp.train(**common, rounds=3, workers=0))
    assert ray_here.ray.is_initialized()  # who started it has it still


SHADOWS = """
import os, sys
import fedgsp
from tests.support import tiny
os.chdir({folder!r})
sys.path.append({folder!r})
import mine
result = fedgsp.train(tiny.static(2, mine.Rule(lr=0.05, batch_size=3)), tiny.federation(), tiny.linear, rounds=1, workers=1,
                      engine="ray")
print(result.status)
"""
MINE = """from dataclasses import dataclass
from fedgsp.client import SGD
import statistics


@dataclass(frozen=True, kw_only=True)
class Rule(SGD):
    def begin(self, ctx):
        import wave

        assert statistics.mean([1.0, 3.0]) == 2.0 and wave.open
"""


@pytest.mark.slow
def test_files_in_the_working_folder_do_not_shadow_the_standard_library(tmp_path: Path) -> None:
    """Ray itself puts that folder first for its workers."""
    folder, script = tmp_path / "folder", tmp_path / "script.py"
    folder.mkdir()
    for name in ("grp", "random", "statistics", "wave"):
        (folder / f"{name}.py").write_text(f"raise SystemExit('the standard {name} was shadowed')\n")
    (folder / "mine.py").write_text(MINE)
    script.write_text(SHADOWS.format(folder=str(folder)))
    temporary = ray_clusters.own_folder()
    try:
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=False,
            env={**tiny.environment(), "RAY_TMPDIR": temporary},
        )  # fmt: skip
        assert (done.stdout.strip(), done.returncode) == ("finished", 0), done.stderr
    finally:
        ray_clusters.end(temporary)
