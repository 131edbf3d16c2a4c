"""The scheduler over a transport that is made up: every answer, death and failure is the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.errors import RunFailed
from fedgsp.core.state import ServerState
from fedgsp.engine.manager import Policy
from fedgsp.engine.messages import (
    Answer,
    ChainOutput,
    EngineEvent,
    HopDone,
    HopSkipped,
    ModelLost,
    Task,
    TaskFailed,
    TrainDone,
    TrainTask,
    WorkerGone,
    WorkerLost,
)
from fedgsp.engine.scheduler import ChainScheduler
from fedgsp.engine.task_batching import BatchLimits
from fedgsp.engine.time_limits import Activity
from fedgsp.engine.transports.base import Transport, WorkerHandle

Fault = Callable[[int], Answer | None]
NAMES = [f"site-{k}" for k in range(10)]


class Handle(WorkerHandle):
    """A worker that has some clients' samples."""

    def __init__(self, number: int, clients: frozenset[int] | None) -> None:
        super().__init__(number, ready=True)
        self.clients = clients

    @property
    def holds_all(self) -> bool:  # type: ignore[override]
        return self.clients is None

    def holds(self, client: int) -> bool:
        return self.clients is None or client in self.clients


class MadeUp(Transport):
    """Does tasks at once; `fault` says what becomes of a client's turn. A model is the list of clients that had it."""

    batch_limits = BatchLimits(chains=1)

    def __init__(self, *holdings: frozenset[int] | None, fault: Fault = lambda client: None) -> None:
        super().__init__()
        self.fault = fault
        self.workers = [Handle(number, clients) for number, clients in enumerate(holdings)]
        self.sent: list[tuple[int, tuple[int, ...]]] = []
        self.replaced = 0

    def send(self, worker: Handle, task: Task) -> None:
        assert isinstance(task, TrainTask)
        (segment,) = task.segments
        here = [hop.client for hop in segment.chain.hops() if hop.index not in segment.absent]
        assert all(worker.holds(client) for client in here)
        self.sent.append((segment.index, tuple(here)))

    def receive(self, seconds: float) -> Iterator[tuple[Handle, Answer]]:
        worker: Handle
        for worker in [one for one in self.workers if one.task is not None]:  # type: ignore[assignment]
            task = worker.task
            assert isinstance(task, TrainTask)
            (segment,) = task.segments
            model, reports = list(task.carried or []), []
            for hop in segment.chain.hops():
                if hop.index in segment.absent:
                    continue
                answer = self.fault(hop.client)
                if isinstance(answer, WorkerGone):
                    self.replace(worker)
                if answer is not None:
                    yield worker, answer
                    break
                model.append(hop.client)
                reports.append(HopReport(hop.client, hop.index, hop.repeat, 1, 1, 0, 0, 0.0))
                yield worker, HopDone(task.round, segment.index, reports[-1])
            else:
                yield worker, TrainDone((tuple(reports),), model)

    def replace(self, worker: Any, cause: str | None = None, blameless: bool = False) -> WorkerGone:
        self.replaced += 1
        self.workers[self.workers.index(worker)] = Handle(worker.number, worker.clients)
        return WorkerGone(cause or "it died", blameless=blameless)

    def publish(self, state: ServerState, slots: frozenset[str] | None = None) -> None:
        """Nothing to do."""

    def fetch(self, worker: Any, done: TrainDone, round_: int) -> Sequence[ChainOutput]:
        return [ChainOutput({"had": torch.tensor(done.outputs)}, {}, {})]

    def activity(self, worker: Any) -> Activity | None:
        return None

    def close(self) -> None:
        """Nothing to do."""


class Skips(MadeUp):
    """The same where a client that fails is skipped, and a message carries one hop."""

    policy = Policy(on_failure="skip")
    hops_at_once = 1


def run(transport: MadeUp, *chains: tuple[int, ...], absent: Any = None) -> tuple[dict[int, list[int]], list[EngineEvent]]:
    """Which clients had each chain's model, and all events."""
    events: list[EngineEvent] = []
    plan = Plan(1, tuple(map(Chain, chains)), len(chains))
    results: Iterator[ChainResult] = ChainScheduler(transport, NAMES).run_chains(
        plan, ServerState(0, {}), events.append, absent
    )  # fmt: skip
    return {result.index: result.tensors["had"].tolist() for result in results}, events


def after(times: int, client: int, answer: Answer) -> Fault:
    """A client that fails so often."""
    left = [times]

    def fault(at: int) -> Answer | None:
        if at != client or not left[0]:
            return None
        left[0] -= 1
        return answer

    return fault


def test_a_chain_goes_in_segments_through_those_who_have_its_clients() -> None:
    transport = MadeUp(frozenset({0, 1, 4}), frozenset({2, 3}))
    found, events = run(transport, (0, 1, 2, 3, 4), (3, 2))
    assert found == {0: [0, 1, 2, 3, 4], 1: [3, 2]}
    assert [clients for index, clients in transport.sent if index == 0] == [(0, 1), (2, 3), (4,)]
    assert [event.report.client for event in events if isinstance(event, HopDone) and event.chain == 0] == [0, 1, 2, 3, 4]


def test_absent_hops_are_left_out_and_a_chain_without_others_needs_nobody() -> None:
    transport = MadeUp(None)
    assert run(transport, (0, 1, 2), (3,), absent={0: frozenset({1}), 1: frozenset({0})})[0] == {0: [0, 2]}
    assert len(transport.sent) == 1


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_chain_whose_worker_dies_begins_again(deaths: int) -> None:
    transport = MadeUp(None, None, fault=after(deaths, 1, WorkerGone("it died")))
    found, events = run(transport, (0, 1, 2), (3, 4))
    assert found == {0: [0, 1, 2], 1: [3, 4]}
    assert [(event.chain, event.client) for event in events if isinstance(event, WorkerLost)] == [(0, 1)] * deaths
    assert transport.replaced == deaths


def test_the_third_death_ends_the_run_by_the_clients_name_but_a_nodes_never_counts() -> None:
    with pytest.raises(RunFailed, match=r"client 'site-1' failed 3 times in round 1: it died\."):
        run(MadeUp(None, fault=after(3, 1, WorkerGone("it died"))), (0, 1))
    transport = MadeUp(None, fault=after(5, 1, WorkerGone("its node is gone", blameless=True)))
    assert run(transport, (0, 1))[0] == {0: [0, 1]}


def test_an_exception_is_tried_once_more() -> None:
    failed = TaskFailed(0, 1, "ValueError: no", trace="a traceback")
    assert run(MadeUp(None, fault=after(1, 1, failed)), (0, 1))[0] == {0: [0, 1]}
    with pytest.raises(RunFailed, match=r"client 'site-1' failed 2 times in round 1: ValueError: no\.") as told:
        run(MadeUp(None, fault=after(2, 1, failed)), (0, 1))
    assert "a traceback" in str(told.value.__cause__)


def test_a_model_that_was_lost_on_the_way_costs_no_client_a_try() -> None:
    transport = MadeUp(frozenset({0}), frozenset({1}), fault=after(4, 1, ModelLost()))
    found, events = run(transport, (0, 1))
    assert found == {0: [0, 1]}
    assert len([event for event in events if isinstance(event, WorkerLost)]) == 4


def test_where_the_transport_skips_a_chain_goes_on_from_the_last_good_model() -> None:
    for client, had in ((0, [1, 2]), (1, [0, 2]), (2, [0, 1])):
        transport = Skips(None, None, fault=after(1, client, TaskFailed(0, client, "late")))
        found, events = run(transport, (0, 1, 2))
        assert found == {0: had}
        (skipped,) = [event for event in events if isinstance(event, HopSkipped)]
        assert (skipped.chain, skipped.hop, skipped.client, skipped.cause) == (0, client, client, "late")
        assert [clients for _, clients in transport.sent] == [(0,), (1,), (2,)]


def test_a_chain_of_which_everybody_fails_yields_nothing() -> None:
    transport = Skips(None, fault=lambda client: TaskFailed(0, client, "gone") if client < 2 else None)
    found, events = run(transport, (0, 1))
    assert found == {}
    assert [event.client for event in events if isinstance(event, HopSkipped)] == [0, 1]


def test_answers_to_a_round_that_was_given_up_are_not_taken_for_those_of_the_next() -> None:
    transport = MadeUp(None, None)
    scheduler = ChainScheduler(transport, NAMES)
    plan = Plan(1, (Chain((0,)), Chain((1,))), 2)
    first = scheduler.run_chains(plan, ServerState(0, {}), lambda event: None)
    next(first)
    first.close()  # type: ignore[attr-defined]
    results = list(scheduler.run_chains(plan, ServerState(0, {}), lambda event: None))
    assert sorted(result.index for result in results) == [0, 1]
