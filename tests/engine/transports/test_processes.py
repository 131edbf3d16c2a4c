"""The process pool: the same bits for any number of workers, and no death of a process that loses work or leaves traces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedgsp
from fedgsp.core.chain import Chain, Plan
from fedgsp.core.errors import RunFailed
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState
from fedgsp.engine import EngineEvent, HopDone, InlineEngine, ProcessEngine, WorkerLost, WorkerSetup
from fedgsp.engine.base import planned_samples, planned_work
from fedgsp.engine.task_batching import longest_first
from fedgsp.method import Method
from fedgsp.models import classification, initial_tensors, resolve
from tests.support import tiny
from tests.support.faulty_rules import Dies, Raises

pytestmark = pytest.mark.timing


def job_of(method: Method) -> WorkerSetup:
    data = tiny.federation()
    spec = resolve("tests.support.tiny:linear", data.sample_shape, data.classes)
    return WorkerSetup(spec, method.local, classification(), data, Seeds(5))


def first_state(job: WorkerSetup) -> ServerState:
    return ServerState(0, {"global": initial_tensors(job.model, 1)})


def one_round(engine: Any, job: WorkerSetup, method: Method, events: list[EngineEvent] | None = None) -> ServerState:
    state = first_state(job)
    plan = method.planner.plan(1, job.data.profiles(), job.seeds)
    update = method.server.start(state, plan, planned_samples(plan, job.data))
    for result in engine.run(plan, state, (events if events is not None else []).append):
        update.add(result)
    return update.finish()


def test_the_same_bits_for_any_number_of_workers() -> None:
    method = tiny.static(3)
    job = job_of(method)
    rows = job.data.test.rows
    expected = one_round(InlineEngine(job), job, method)
    scores = InlineEngine(job).evaluate(expected, [("global", rows)]).result()[0]
    for workers in (1, 2, 4):
        engine = ProcessEngine(job, workers)
        try:
            state = one_round(engine, job, method)
            assert state.digest() == expected.digest()
            assert np.array_equal(engine.evaluate(state, [("global", rows)]).result()[0].loss, scores.loss)
            assert set(engine.peak_memory()) >= {"main"}
        finally:
            engine.close()


def test_every_hop_is_reported_in_its_chains_order() -> None:
    method = tiny.static(2)
    job = job_of(method)
    events: list[EngineEvent] = []
    engine = ProcessEngine(job, 2)
    try:
        one_round(engine, job, method, events)
    finally:
        engine.close()
    plan = method.planner.plan(1, job.data.profiles(), job.seeds)
    for index, chain in enumerate(plan.chains):
        seen = [event.report.client for event in events if isinstance(event, HopDone) and event.chain == index]
        assert tuple(seen) == chain.clients


def test_a_killed_worker_is_replaced_and_its_chain_walked_again(tmp_path: Path) -> None:
    plain = tiny.static(2)
    expected = one_round(InlineEngine(job_of(plain)), job_of(plain), plain)
    method = tiny.static(2, Dies(lr=0.05, batch_size=3, at=4, once=str(tmp_path / "died")))
    job = job_of(method)
    events: list[EngineEvent] = []
    engine = ProcessEngine(job, 2)
    try:
        state = one_round(engine, job, method, events)
    finally:
        engine.close()
    lost = [event for event in events if isinstance(event, WorkerLost)]
    assert [event.client for event in lost] == [4]
    assert "signal 9" in lost[0].cause
    assert state.digest() == expected.digest()


def test_an_idle_worker_may_die_between_rounds() -> None:
    method = tiny.static(2)
    job = job_of(method)
    engine = ProcessEngine(job, 2)
    try:
        before = one_round(engine, job, method)
        os.kill(engine.process_ids()[0], signal.SIGKILL)
        assert one_round(engine, job, method).digest() == before.digest()
    finally:
        engine.close()


@pytest.mark.parametrize(("rule", "cause"), [(Dies(at=4), "signal 9"), (Raises(at=4), "ZeroDivisionError: a bug in a rule")])
def test_a_chain_that_keeps_failing_names_client_and_cause(rule: Any, cause: str) -> None:
    method = tiny.static(2, rule)
    job = job_of(method)
    engine = ProcessEngine(job, 1)
    try:
        with pytest.raises(RunFailed, match="site-04") as failure:
            one_round(engine, job, method)
        assert cause in str(failure.value)
    finally:
        engine.close()


def test_the_inline_engine_names_client_and_cause_too() -> None:
    method = tiny.static(2, Raises(at=4))
    job = job_of(method)
    with pytest.raises(RunFailed, match=r"site-04.*ZeroDivisionError"):
        one_round(InlineEngine(job), job, method)


def test_absent_hops_are_not_trained_and_a_chain_without_any_yields_nothing() -> None:
    method = tiny.static(2)
    job = job_of(method)
    plan = Plan(1, (Chain((0, 1, 2)), Chain((3,))), groups=2)
    state = first_state(job)
    absent = {0: frozenset({1}), 1: frozenset({0})}
    (result,) = list(InlineEngine(job).run(plan, state, lambda event: None, absent))
    assert [hop.client for hop in result.hops] == [0, 2]
    assert result.samples == int(job.data.train.sizes[[0, 2]].sum())


def test_chains_start_longest_first_by_samples_and_passes() -> None:
    data = tiny.federation()
    sizes = data.train.sizes
    plan = Plan(1, (Chain((0,)), Chain((7,)), Chain((0,), passes=4)), groups=3)
    assert 4 * sizes[0] > sizes[7] > sizes[0]
    assert longest_first(planned_work(plan, data)) == [2, 1, 0]


def test_closing_twice_is_fine_and_ends_the_processes() -> None:
    engine = ProcessEngine(job_of(tiny.static(2)), 1)
    (pid,) = engine.process_ids()
    engine.close()
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def run_script(folder: Path, text: str) -> str:
    """What a script prints, run by a Python of its own."""
    script = folder / "script.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=False, env=tiny.environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SCRIPT = """
import sys
from dataclasses import dataclass
import fedgsp
from tests.support import tiny
from fedgsp.client import SGD
from torch import nn

@dataclass(frozen=True, kw_only=True)
class Mine(SGD):  # defined in a script: travels by cloudpickle
    def begin(self, ctx):
        ctx.memo["seen"] = True

def model(shape, classes):
    return nn.Linear(shape[0], classes)

result = fedgsp.train(tiny.chains(rule=Mine(lr=0.05, batch_size=3)), tiny.federation(), model, rounds=2, workers=2)
print(result.state.digest())
"""


def test_rules_and_models_of_a_script_work_without_a_main_guard(tmp_path: Path) -> None:
    printed = run_script(tmp_path, SCRIPT)
    plain = fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=2, workers=0)
    assert printed == plain.state.digest()


ORPHANS = """
import sys, time
from tests.support import tiny, faulty_rules
from fedgsp.core.seeds import Seeds
from fedgsp.engine import WorkerSetup, ProcessEngine
from fedgsp.models import classification, resolve
data = tiny.federation()
model = resolve("tests.support.tiny:linear", data.sample_shape, data.classes)
engine = ProcessEngine(WorkerSetup(model, tiny.static(2).local, classification(), data, Seeds(1)), 2)
engine.wait_until_ready()
def parent(pid):
    return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]

print(*engine.process_ids(), parent(engine.process_ids()[0]), flush=True)
time.sleep(600)
"""


def test_killing_the_parent_leaves_no_process_and_no_shared_memory(tmp_path: Path) -> None:
    before = shared_memory_files()
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True, env=tiny.environment())
    assert parent.stdout is not None
    pids = [int(text) for text in parent.stdout.readline().split()]
    assert len(pids) == 3  # two workers, and who forked them
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 300
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)
    assert not {name for name in shared_memory_files() - before if "fedgsp" in name}


def shared_memory_files() -> set[str]:
    folder = Path("/dev/shm")
    return {file.name for file in folder.iterdir()} if folder.is_dir() else set()


def alive(pid: int) -> bool:
    """Whether a process exists and is not merely waiting to be reaped by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Resident(fedgsp.Callback):
    """The resident memory of this process and of all it started, at the end of some rounds."""

    def __init__(self, *rounds: int) -> None:
        self.rounds, self.found = rounds, dict[int, int]()

    def on_round_end(self, entry: dict[str, Any]) -> None:
        if entry["round"] in self.rounds:
            mine = os.getpid()
            stats = {int(f.parent.name): f.read_text().rpartition(")")[2].split() for f in Path("/proc").glob("[0-9]*/stat")}
            children = {pid for pid, stat in stats.items() if int(stat[1]) == mine}
            ours = [stat for pid, stat in stats.items() if pid in {mine, *children} or int(stat[1]) in children]
            self.found[entry["round"]] = sum(int(stat[21]) for stat in ours) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_memory_stays_flat_over_500_rounds(tmp_path: Path) -> None:
    """Of the whole run: workers, sums, evaluation, journal, checkpoints."""
    watch = Resident(50, 550)
    fedgsp.train(
        tiny.static(4), tiny.federation(), tiny.linear, rounds=550, workers=2, out=tmp_path / "run", callbacks=[watch]
    )  # fmt: skip
    assert watch.found[550] - watch.found[50] < 8e6


SPAWNED = """
import multiprocessing
import fedgsp
from tests.support import tiny

def work(queue):
    result = fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=1, workers=1)
    queue.put(result.state.digest())

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    print(queue.get(timeout=500))
    child.join()
"""


def test_a_spawned_process_can_train(tmp_path: Path) -> None:
    printed = run_script(tmp_path, SPAWNED)
    plain = fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=1, workers=0)
    assert printed == plain.state.digest()


def test_the_traceback_of_a_rule_is_in_the_event_log(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="site-04"):
        fedgsp.train(tiny.static(2, Raises(at=4)), tiny.federation(), tiny.linear, rounds=1, workers=1, out=tmp_path / "run")
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    lost = [event for event in events if event["event"] == "lost"]
    assert [event["client"] for event in lost] == [4, 4]
    assert "faulty_rules.py" in lost[0]["trace"]
