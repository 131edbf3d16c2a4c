"""Workers that hang are noticed, and replaced where there is a limit: real processes, really stopped."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import fedgsp
from fedgsp.cli.display import PlainLines
from fedgsp.core.chain import HopReport
from fedgsp.core.errors import RunFailed
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState
from fedgsp.engine import EngineEvent, ProcessEngine, WorkerLost, WorkerSetup, WorkerSlow
from fedgsp.engine.base import planned_samples
from fedgsp.engine.task_batching import Speed
from fedgsp.engine.time_limits import TIMES, Activity, SlowWorkerWatch, TimeLimits
from fedgsp.method import Method
from fedgsp.models import classification, initial_tensors, resolve
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.run.callbacks import Failure
from fedgsp.server import Mean
from tests.support import faulty_rules, tiny
from tests.support.faulty_rules import Stops
from tests.support.waking import Waker

pytestmark = pytest.mark.timing

LIMIT = 3.0
"""A hop here takes milliseconds; nothing relies on that. Client 5 is never the first that a worker trains."""


def round_of(method: Method, limits: TimeLimits, listener: Any, clients: int = 8, workers: int = 2) -> str:
    """The digest of a state after one round by a pool."""
    data = tiny.federation(clients)
    job = WorkerSetup(
        resolve("tests.support.tiny:linear", data.sample_shape, data.classes), method.local, classification(), data, Seeds(5)
    )
    state = ServerState(0, {"global": initial_tensors(job.model, 1)})
    plan = method.planner.plan(1, data.profiles(), job.seeds)
    update = method.server.start(state, plan, planned_samples(plan, data))
    engine = ProcessEngine(job, workers, limits)
    try:
        for result in engine.run(plan, state, listener):
            update.add(result)
        return update.finish().digest()
    finally:
        engine.close()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def lost_by(pid: int, events: list[EngineEvent]) -> list[WorkerLost]:
    """What was said of one process's end: on a busy machine another may be too slow without having stopped."""
    return [event for event in events if isinstance(event, WorkerLost) and f"(process {pid})" in event.cause]


def test_a_worker_that_is_stopped_is_replaced_after_the_limit_to_the_same_bits(tmp_path: Path) -> None:
    calm = round_of(tiny.static(2), TimeLimits(), lambda event: None)
    events: list[EngineEvent] = []
    rule = Stops(lr=0.05, batch_size=3, at=5, once=str(tmp_path / "stopped"))
    began = time.monotonic()
    assert round_of(tiny.static(2, rule), TimeLimits(LIMIT), events.append) == calm
    assert time.monotonic() - began >= LIMIT
    pid = int((tmp_path / "stopped").read_text())
    (lost,) = lost_by(pid, events)
    assert lost.client == 5
    assert lost.cause == f"its worker (process {pid}) took longer than the {LIMIT:g} s that a hop may take, and was replaced"
    assert gone(pid)


def test_without_a_limit_a_line_names_client_and_process_and_the_run_waits(tmp_path: Path) -> None:
    calm = round_of(tiny.static(2), TimeLimits(), lambda event: None)
    rule = Stops(lr=0.05, batch_size=3, at=5, once=str(tmp_path / "stopped"))
    slow: list[WorkerSlow] = []
    waker = Waker(tmp_path / "stopped")

    def listen(event: EngineEvent) -> None:
        assert not isinstance(event, WorkerLost)
        if isinstance(event, WorkerSlow) and event.client == 5:
            slow.append(event)
            waker.ask()

    assert round_of(tiny.static(2, rule), TimeLimits(floor=0.5, unknown=0.5), listen) == calm
    assert slow[0].worker == f"process {(tmp_path / 'stopped').read_text()}"
    assert slow[0].what == "client 'site-05'"
    assert slow[0].seconds >= 0.5
    assert str(slow[0]).startswith(f"worker ({slow[0].worker}) has been at client 'site-05' for ")


def test_a_client_that_hangs_every_time_ends_the_run_by_its_name() -> None:
    told = (
        r"client 'site-05' failed 3 times in round 1: its worker \(process \d+\) took longer than the 2 s that a hop may take"
    )
    with pytest.raises(RunFailed, match=told):
        round_of(tiny.static(2, Stops(lr=0.05, batch_size=3, at=5)), TimeLimits(2.0), lambda event: None)


def test_the_client_is_known_also_where_chains_go_together(tmp_path: Path) -> None:
    """Many short chains are one task, of which nothing is said on the way."""
    events: list[EngineEvent] = []
    everybody = Grouped(Singletons(), Random(), kappa=1.0)
    rule = Stops(lr=0.05, batch_size=3, at=33, once=str(tmp_path / "stopped"))
    stopped = round_of(Method(everybody, rule, Mean()), TimeLimits(LIMIT), events.append, clients=60, workers=1)
    calm = Method(everybody, tiny.static(2).local, Mean())
    assert stopped == round_of(calm, TimeLimits(), lambda event: None, clients=60, workers=1)
    assert [event.client for event in lost_by(int((tmp_path / "stopped").read_text()), events)] == [33]


@dataclass(frozen=True)
class StopsWhenJudged:
    """A metric that stops its process once, if that is not the test's own."""

    flag: str
    parent: int

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if os.getpid() != self.parent:
            faulty_rules.stop_once(self.flag)
        return (outputs.argmax(dim=1) == targets).float()


def test_an_evaluation_that_hangs_is_noticed_and_replaced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgsp.run.run.TimeLimits", partial(TimeLimits, floor=1.0, unknown=1.0))
    metric = StopsWhenJudged(str(tmp_path / "stopped"), os.getpid())
    task = fedgsp.Task("mine", classification().loss, {"right": metric})
    common: dict[str, Any] = {"rounds": 2, "task": task, "fast": "off"}
    calm = fedgsp.train(tiny.static(2), tiny.federation(), tiny.linear, workers=0, **common)
    there = fedgsp.train(
        tiny.static(2), tiny.federation(), tiny.linear, workers=2, hop_seconds=3 * LIMIT, out=tmp_path / "run", **common
    )  # so long that somebody looks between a second and the limit, however busy the machine is
    assert there.state.digest() == calm.state.digest()
    assert gone(int((tmp_path / "stopped").read_text()))
    slow = [event for event in lines(tmp_path / "run") if event["event"] == "slow"]
    assert any("has been at an evaluation for" in event["cause"] for event in slow)


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


class Wakes(fedgsp.Callback):
    """Lets a stopped worker go on once it was spoken of."""

    def __init__(self, flag: Path) -> None:
        self._waker = Waker(flag)

    def on_failure(self, failure: Failure) -> None:
        if isinstance(failure, WorkerSlow) and failure.client == 5:
            self._waker.ask()


def test_the_line_is_on_the_screen_and_in_the_event_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedgsp.run.run.TimeLimits", partial(TimeLimits, floor=0.5, unknown=0.5))
    rule = Stops(lr=0.05, batch_size=3, at=5, once=str(tmp_path / "stopped"))
    fedgsp.train(
        tiny.static(2, rule), tiny.federation(), tiny.linear, rounds=1, workers=2, out=tmp_path / "run",
        callbacks=[PlainLines(), Wakes(tmp_path / "stopped")],
    )  # fmt: skip
    pid = (tmp_path / "stopped").read_text()
    said = f"round 1: worker (process {pid}) has been at client 'site-05' for "
    assert said in capsys.readouterr().out
    event = next(event for event in lines(tmp_path / "run") if event["event"] == "slow" and event["client"] == 5)
    assert event["worker"] == f"process {pid}"
    assert event["cause"].startswith(said.removeprefix("round 1: "))


def test_the_command_line_has_the_limit(tmp_path: Path) -> None:
    source, calm, out, flag = tiny.write_npz(tmp_path / "data.npz"), tmp_path / "calm", tmp_path / "run", tmp_path / "stopped"
    expected = fedgsp.train(tiny.static(2), str(source), "tests.support.tiny:linear", rounds=2, workers=0, out=calm)
    second = next(event["client"] for event in lines(calm) if event["event"] == "hop" and event["hop"] == 1)
    rule = f'method.local={{kind="tests.support.faulty_rules:Stops", lr=0.05, batch_size=3, at={second}, once="{flag}"}}'
    done = tiny.cli("run", str(calm / "config.toml"), "--set", rule, "--workers", "2", "--hop-seconds", "3", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "result.json").read_text())["state"] == expected.state.digest()
    (lost,) = [event for event in lines(out) if event["event"] == "lost" and f"process {flag.read_text()})" in event["cause"]]
    assert lost["client"] == second
    assert f"is run again: {lost['cause']}" in done.stdout
    assert "hop_seconds = 3.0" in (out / "config.toml").read_text()


def told_speed() -> Speed:
    speed = Speed()
    for samples in (10, 20, 30):
        speed.learn(HopReport(0, 0, 0, samples, 1, 0, 0, 0.1 * samples))
    return speed


def at(kind: Any, ago: float, samples: int = 0, slack: float = 0.0) -> Activity:
    return Activity(kind, "client 'a'", time.perf_counter() - ago, samples=samples, slack=slack)


def test_usual_is_what_was_learned_and_noise_never_counts() -> None:
    watch, told = SlowWorkerWatch(TimeLimits(), told_speed()), list[EngineEvent]()
    watch.listener = told.append
    usual = 10.0  # seconds, for 100 samples
    assert watch.overdue("process 1", at("train", TIMES * usual - 1, 100)) is None
    assert not told
    assert watch.overdue("process 1", at("train", 29.0, 0)) is None  # nothing at all is usual there, but that is noise
    assert not told
    late = at("train", TIMES * usual + 1, 100)
    for _ in range(3):  # one line, however often one looks
        assert watch.overdue("process 1", late) is None
    (event,) = told
    assert isinstance(event, WorkerSlow)
    assert event.usual == pytest.approx(usual)
    watch.overdue("process 2", late)
    assert len(told) == 2


def test_before_anything_is_known_a_line_takes_long() -> None:
    told = list[EngineEvent]()
    watch = SlowWorkerWatch(TimeLimits(), Speed())
    watch.listener = told.append
    for kind, quiet in (("train", 599), ("evaluate", 599), ("start", 119)):
        watch.overdue(f"process {kind}", at(kind, quiet))
        assert not told
        watch.overdue(f"process {kind}", at(kind, quiet + 2))
        assert told.pop()


def test_the_limit_is_a_hops_and_evaluation_may_take_as_long_as_it_does() -> None:
    watch = SlowWorkerWatch(TimeLimits(5.0), told_speed())
    assert watch.overdue("process 1", at("train", 4.9)) is None
    assert watch.overdue("process 1", at("train", 5.1)) is not None
    assert watch.overdue("process 1", at("train", 5.1, slack=1.0)) is None
    assert watch.overdue("process 1", at("evaluate", 29.0)) is None
    watch.evaluated(100.0)
    assert watch.overdue("process 1", at("evaluate", 1999.0)) is None
    assert watch.overdue("process 1", at("evaluate", 2001.0)) is not None


def test_without_anybody_to_tell_it_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"worker \(process 1\) has been at client 'a' for 601 s; it may hang"):
        SlowWorkerWatch(TimeLimits(), Speed()).overdue("process 1", at("train", 601))


def test_looks_are_rare_enough_to_cost_nothing() -> None:
    assert TimeLimits().tick == 1.0
    assert TimeLimits(0.4).tick == pytest.approx(0.1)
    assert math.isfinite(TimeLimits().tick)
    watch = SlowWorkerWatch(TimeLimits(), Speed())
    assert watch.due()
    assert not watch.due()
