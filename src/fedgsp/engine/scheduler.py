"""The one scheduler: hands segments of chains to workers over any transport, longest first, short ones together.

A worker that dies or hangs is replaced; what it had done of the round is done again from the start of its chains. A client that
keeps failing ends the run with a sentence that names it, or is skipped: that is the transport's policy. Who has no chain to
train evaluates the model before. Results come as they are ready; exact sums make their order harmless.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedgsp.core.state import ServerState, beside
from fedgsp.engine.base import Absent, EvaluationRequests, PendingEvaluation, Span, WorkerSetup
from fedgsp.engine.chain_runner import peak_memory_bytes
from fedgsp.engine.evaluation_tasks import ScheduledEvaluation
from fedgsp.engine.messages import (
    Answer,
    EvaluateDone,
    EvaluateTask,
    HopDone,
    Listener,
    StillWorking,
    Task,
    TrainDone,
    WorkerGone,
)
from fedgsp.engine.scheduled_round import ScheduledRound
from fedgsp.engine.task_batching import Speed, idle_share
from fedgsp.engine.time_limits import SlowWorkerWatch, TimeLimits

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.engine.transports.base import Transport, WorkerHandle
    from fedgsp.server.mean import Weighing


class ChainScheduler:
    """Runs chains over a transport. `clients` are the clients' names, for what is said of them."""

    def __init__(
        self, transport: Transport, clients: Sequence[str] = (), limits: TimeLimits = TimeLimits()  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        self.transport, self.clients, self.speed = transport, clients, Speed()
        self._watch = SlowWorkerWatch(limits, self.speed)
        self._spans: list[Span] = []
        self._peaks: dict[str, int] = {}

    def run_chains(
        self,
        plan: Plan,
        state: ServerState,
        listener: Listener,
        absent: Absent | None = None,
        evaluation: ScheduledEvaluation | None = None,
        weighing: Weighing | None = None,
        work: Sequence[float] | None = None,
    ) -> Iterator[ChainResult]:
        """See `Engine.run`; `work` is how many seconds each chain is expected to take, the longest begins first."""
        self._watch.listener = listener
        self.transport.begin_round()
        began = time.perf_counter()
        models = self.transport.publish(state)
        self._spans.append(Span(-1, "broadcast", f"round {plan.round}", began, time.perf_counter()))
        seconds = [0.0] * len(plan.chains) if work is None else work
        return ScheduledRound(self, plan, state, models, listener, absent or {}, evaluation, weighing, seconds).results()

    def send(self, worker: WorkerHandle, task: Task, sender: Any) -> None:
        """Hand a task to an idle worker; `sender` is told what becomes of it."""
        worker.task, worker.sender, worker.hops_done, worker.since = task, sender, 0, time.perf_counter()
        self.transport.send(worker, task)

    def answers(self) -> Iterator[tuple[WorkerHandle, Task | None, Any, Answer]]:
        """What workers say, each with its task and who sent that; those who hang are spoken of, and replaced after a limit."""
        for worker, answer in self.transport.receive(self._watch.limits.tick):
            task, sender = worker.task, worker.sender
            if isinstance(answer, (HopDone, StillWorking, TrainDone)):
                worker.warm = True
            if isinstance(answer, HopDone):
                worker.hops_done += 1
            elif not isinstance(answer, (StillWorking, WorkerGone)):
                self._finished(worker, answer)
            if not isinstance(answer, StillWorking):
                yield worker, task, sender, answer
        if not self._watch.due():
            return
        for worker in list(self.transport.workers):
            activity = self.transport.activity(worker)
            cause = None if activity is None else self._watch.overdue(str(worker), activity)
            if cause is not None:
                yield worker, worker.task, worker.sender, self.transport.replace(worker, cause)

    def _finished(self, worker: WorkerHandle, answer: Answer) -> None:
        task, now = worker.task, time.perf_counter()
        assert task is not None
        kind = "evaluate" if isinstance(task, EvaluateTask) else "train"
        self._spans.append(Span(worker.number, kind, task.label(), worker.since, now))
        if isinstance(answer, EvaluateDone):
            self._watch.evaluated(now - worker.since)
        if isinstance(answer, (EvaluateDone, TrainDone)) and answer.peak_memory:
            self._peaks[f"worker {worker.number}"] = answer.peak_memory
        worker.task = worker.sender = None


class Scheduler(ChainScheduler):
    """See `Engine`."""

    def __init__(self, setup: WorkerSetup, transport: Transport, limits: TimeLimits = TimeLimits()) -> None:  # noqa: B008 - frozen
        super().__init__(transport, setup.data.clients, limits)
        self.setup = setup
        self._closed = False

    def run(
        self,
        plan: Plan,
        state: ServerState,
        listener: Listener,
        absent: Absent | None = None,
        meanwhile: PendingEvaluation | None = None,
        weighing: Weighing | None = None,
    ) -> Iterator[ChainResult]:
        """See `Engine.run`."""
        evaluation = meanwhile if isinstance(meanwhile, ScheduledEvaluation) else None
        work = self.speed.work(plan, self.setup.data)
        return self.run_chains(plan, state, listener, absent, evaluation, weighing, work)

    def evaluate(
        self, state: ServerState, requests: EvaluationRequests, owners: Sequence[int | None] | None = None
    ) -> PendingEvaluation:
        """See `Engine.evaluate`: rows are cut into tasks of whole chunks, so the cut never changes a bit."""
        names = {name for name, _ in requests}
        models = self.transport.publish(state, frozenset(state.slots.keys() & (names | {beside(name) for name in names})))
        return ScheduledEvaluation(self, models, state, requests, [None] * len(requests) if owners is None else owners)

    def idle_share(self, plan: Plan) -> float:
        """See `Engine.idle_share`."""
        return idle_share(self.speed.work(plan, self.setup.data), max(1, len(self.transport.workers)))

    def spans(self) -> list[Span]:
        """See `Engine.spans`."""
        done, self._spans = self._spans, []
        return done

    def peak_memory(self) -> dict[str, int]:
        """See `Engine.peak_memory`."""
        return {"main": peak_memory_bytes(), **self._peaks}

    def close(self) -> None:
        """See `Engine.close`."""
        if not self._closed:
            self._closed = True
            self.transport.close()
