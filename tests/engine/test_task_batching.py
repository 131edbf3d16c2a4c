"""How chains are dealt: short ones together, and evaluation in time that would be idle; none of it may change a bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedgsp
from fedgsp.client import SGD
from fedgsp.core.chain import Chain, HopReport, Plan
from fedgsp.core.errors import RunFailed
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState
from fedgsp.engine import EngineEvent, HopDone, InlineEngine, ProcessEngine, WorkerLost, WorkerSetup
from fedgsp.engine.base import planned_samples
from fedgsp.engine.task_batching import TURNS, BatchLimits, Speed, idle_share, longest_first, next_batch
from fedgsp.models import classification, initial_tensors, resolve
from fedgsp.server import Mean
from tests.support import tiny
from tests.support.faulty_rules import Dies, Raises, RaisesOnce

CLIENTS = 40


def batches(work: list[float], workers: int, size: int) -> list[tuple[int, ...]]:
    """All batches of a round, one after the other."""
    limits, pending, found = BatchLimits(), longest_first(work), list[tuple[int, ...]]()
    while pending:
        batch = next_batch(pending, work, limits.most(len(work), workers, size), limits.seconds)
        pending = pending[len(batch) :]
        found.append(tuple(batch))
    return found


class TestBatches:
    """The arithmetic."""

    @given(st.lists(st.floats(0, 2), max_size=300), st.integers(1, 8), st.integers(1, 2**26))
    def test_every_chain_is_in_one_batch_longest_first(self, work: list[float], workers: int, size: int) -> None:
        found = batches(work, workers, size)
        flat = [index for batch in found for index in batch]
        assert sorted(flat) == list(range(len(work)))
        assert [work[i] for i in flat] == sorted(work, reverse=True)
        assert all(len(b) == 1 or len(b) * size <= BatchLimits().bytes for b in found)
        assert all(len(b) <= BatchLimits().chains for b in found)

    def test_long_chains_and_few_chains_go_alone(self) -> None:
        assert batches([0.1, 0.2, 0.3], 2, 100) == [(2,), (1,), (0,)]
        assert all(len(batch) == 1 for batch in batches([1e-6] * (2 * TURNS), 2, 100))
        assert max(map(len, batches([1e-6] * 1000, 2, 100))) == 1000 // (2 * TURNS)

    def test_the_idle_share_is_what_longest_first_leaves_over(self) -> None:
        assert idle_share([1.0, 1.0], 2) == 0
        assert idle_share([1.0, 1.0, 1.0], 2) == pytest.approx(1 / 4)
        assert idle_share([3.0], 2) == pytest.approx(1 / 2)
        assert idle_share([3.0, 2.0, 1.0], 2) == 0
        assert idle_share([], 2) == 0

    def test_speed_is_learned_from_visits(self) -> None:
        speed = Speed()
        assert speed.rates()[0] == 0
        for samples in (10, 20, 50):
            speed.learn(HopReport(0, 0, 0, samples, 1, 0, 0, 0.5 + 0.01 * samples))
        assert speed.rates() == pytest.approx((0.5, 0.01))
        plan = Plan(1, (Chain((0,)), Chain((0, 1), passes=2)), 2)
        sizes = tiny.federation().train.sizes
        assert speed.work(plan, tiny.federation()) == pytest.approx([0.5 + 0.01 * sizes[0], 2.0 + 0.02 * sizes[:2].sum()])


def many(rule: SGD | None = None) -> tuple[WorkerSetup, Plan, ServerState]:
    data = tiny.federation(CLIENTS)
    spec = resolve("tests.support.tiny:linear", data.sample_shape, data.classes)
    job = WorkerSetup(spec, rule or SGD(lr=0.05, batch_size=3), classification(), data, Seeds(5))
    return (
        job,
        Plan(1, tuple(Chain((k,)) for k in range(CLIENTS)), CLIENTS),
        ServerState(0, {"global": initial_tensors(spec, 1)}),
    )


def averaged(engine: Any, job: WorkerSetup, plan: Plan, state: ServerState, events: list[EngineEvent]) -> str:
    update = Mean().start(state, plan, planned_samples(plan, job.data))
    for result in engine.run(plan, state, events.append):
        update.add(result)
    return str(update.finish().digest())


class TestShortChains:
    """Short chains that are handed out together."""

    def test_the_same_bits_and_events_in_fewer_messages(self) -> None:
        job, plan, state = many()
        expected = averaged(InlineEngine(job), job, plan, state, [])
        events: list[EngineEvent] = []
        engine = ProcessEngine(job, 1)
        try:
            assert averaged(engine, job, plan, state, events) == expected
            handed = [span for span in engine.spans() if span.kind == "train"]
            assert len(handed) == len(batches([0.0] * CLIENTS, 1, 100)) < CLIENTS
        finally:
            engine.close()
        hops = [event for event in events if isinstance(event, HopDone)]
        assert sorted(hop.report.client for hop in hops) == list(range(CLIENTS))
        assert all(plan.chains[hop.chain].clients == (hop.report.client,) for hop in hops)

    @pytest.mark.parametrize("raises", [False, True])
    def test_a_worker_that_dies_or_raises_in_a_batch_loses_nothing(self, raises: bool, tmp_path: Path) -> None:
        job, plan, state = many()
        expected = averaged(InlineEngine(job), job, plan, state, [])
        flag, at = str(tmp_path / "failed"), 17
        once = RaisesOnce(lr=0.05, batch_size=3, at=at, flag=flag) if raises else Dies(lr=0.05, batch_size=3, at=at, once=flag)
        job, plan, state = many(once)
        events: list[EngineEvent] = []
        engine = ProcessEngine(job, 2)
        try:
            assert averaged(engine, job, plan, state, events) == expected
        finally:
            engine.close()
        assert len([event for event in events if isinstance(event, WorkerLost)]) == 1
        hops = [event.report.client for event in events if isinstance(event, HopDone)]
        assert sorted(hops) == list(range(CLIENTS))

    @pytest.mark.parametrize(("rule", "cause"), [(Dies(at=17), "signal 9"), (Raises(at=17), "a bug in a rule")])
    def test_a_client_that_keeps_failing_is_named(self, rule: SGD, cause: str) -> None:
        job, plan, state = many(rule)
        engine = ProcessEngine(job, 1)
        try:
            with pytest.raises(RunFailed, match=rf"site-17.*{cause}"):
                averaged(engine, job, plan, state, [])
        finally:
            engine.close()


@pytest.fixture
def put_off(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each round was given an evaluation to go on with."""
    seen: list[bool] = []
    real = ProcessEngine.run

    def spied(self: ProcessEngine, *arguments: Any) -> Any:
        seen.append(len(arguments) > 4 and arguments[4] is not None)
        return real(self, *arguments)

    monkeypatch.setattr(ProcessEngine, "run", spied)
    return seen


class TestIdleTime:
    """Three chains of equal length on two workers: one of them has time to evaluate the model before."""

    def test_the_journal_is_that_of_an_inline_run(self, put_off: list[bool]) -> None:
        runs = [fedgsp.train(tiny.static(3), tiny.federation(), tiny.linear, rounds=4, workers=workers) for workers in (0, 2)]
        assert put_off == [False, True, True, True]
        plain, pooled = ([{k: v for k, v in e.items() if k != "timings"} for e in run.history] for run in runs)
        assert plain == pooled

    def test_an_even_plan_is_evaluated_at_once(self, put_off: list[bool]) -> None:
        data = tiny.federation(16)
        fedgsp.train(tiny.static(2), data, tiny.linear, rounds=3, workers=1)
        assert put_off == [False] * 3

    def test_a_target_stops_with_the_model_that_reached_it(self, put_off: list[bool]) -> None:
        whole = fedgsp.train(tiny.static(3), tiny.federation(), tiny.linear, rounds=8, workers=0)
        reached = next(e["round"] for e in whole.history if e["accuracy"] >= 0.6)
        short = fedgsp.train(tiny.static(3), tiny.federation(), tiny.linear, rounds=reached, workers=0)
        stopped = fedgsp.train(
            tiny.static(3), tiny.federation(), tiny.linear, rounds=8, workers=2, target_accuracy=0.6, stop_at_target=True
        )
        assert stopped.status == "target"
        assert stopped.rounds == reached < 8
        assert stopped.state.digest() == short.state.digest()
        assert any(put_off)

    def test_a_failing_round_keeps_the_one_before(self, tmp_path: Path, put_off: list[bool]) -> None:
        from tests.support.faulty_rules import RaisesFrom

        method = tiny.static(3, RaisesFrom(lr=0.05, batch_size=3, round_=3))
        with pytest.raises(RunFailed, match="round 3"):
            fedgsp.train(method, tiny.federation(), tiny.linear, rounds=4, workers=2, out=tmp_path / "run")
        assert put_off == [False, True, True]
        lines = (tmp_path / "run" / "journal.jsonl").read_text().splitlines()
        assert len(lines) == 2
