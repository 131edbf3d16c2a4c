"""One round's chains on their way through the workers: each has a group manager, which says who is next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedgsp.core.chain import ChainResult, HopReport, Plan
from fedgsp.core.errors import RunFailed
from fedgsp.core.tensors import total_bytes
from fedgsp.engine.manager import Action, Begin, Failed, Finished, GroupManager, Skipped, Train, Trained
from fedgsp.engine.messages import (
    Answer,
    HopDone,
    HopSkipped,
    Listener,
    ModelLost,
    Segment,
    SumDone,
    SumTask,
    Task,
    TaskFailed,
    TrainDone,
    TrainTask,
    WorkerGone,
    WorkerLost,
)
from fedgsp.engine.task_batching import Fit, longest_first, next_batch

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.engine.base import Absent
    from fedgsp.engine.evaluation_tasks import ScheduledEvaluation
    from fedgsp.engine.scheduler import ChainScheduler
    from fedgsp.engine.transports.base import WorkerHandle
    from fedgsp.server.mean import Weighing

FEW_RESULTS = 4
"""A sum is as large as so many results: from more than that for each worker on it pays to fetch sums."""


@dataclass
class _Progress:
    """How far a chain has come: its manager, the hop that is next (its token says where the model is), the hops before it."""

    manager: GroupManager
    train: Train | None = None
    hops: tuple[HopReport, ...] = ()
    client_versions: dict[int, str] = field(default_factory=dict)
    failures: int = 0
    alone: bool = False


class ScheduledRound:
    """Chains go to workers that have their clients' samples, longest first, short ones together."""

    def __init__(
        self, scheduler: ChainScheduler, plan: Plan, state: ServerState, models: Any, listener: Listener, absent: Absent,
        evaluation: ScheduledEvaluation | None, weighing: Weighing | None, work: Sequence[float],
    ) -> None:  # fmt: skip
        self._scheduler, self._transport, self._speed = scheduler, scheduler.transport, scheduler.speed
        self._plan, self._state, self._models, self._listener = plan, state, models, listener
        self._absent, self._evaluation, self._work = absent, evaluation, work
        transport = scheduler.transport
        chains, workers = len(plan.chains), max(1, len(transport.workers))
        self._weighing = weighing if transport.sums_there and chains > FEW_RESULTS * workers else None
        size = 1 if self._weighing else max((total_bytes(model) for model in state.models.values()), default=1)
        self._most = transport.batch_limits.most(chains, workers, size)
        self._pending: deque[int] = deque()
        self._chains: dict[int, _Progress] = {}
        self._under_way = chains  # neither handed over nor added to a worker's sum
        self._left = chains
        for index in reversed(longest_first(self._work)):
            self._begin(index)
        for worker in transport.workers:  # what is added up of a round that failed counts no more
            worker.summed = []

    def results(self) -> Iterator[ChainResult]:
        """Hand out, listen, yield."""
        while self._left:
            self._hand_out()
            for worker, task, sender, answer in self._scheduler.answers():
                if isinstance(answer, WorkerGone):
                    self._sums_lost(worker, answer.cause)
                if sender is self:
                    yield from self._heard(worker, task, answer)
                elif sender is not None and sender is self._evaluation:
                    self._evaluation.heard(task, answer)

    # Handing out.

    def _begin(self, index: int, failures: int = 0, alone: bool = False) -> None:
        """Begin a chain, perhaps again; it is the next to be handed out."""
        manager = GroupManager(self._plan.chains[index], self._transport.policy, self._absent.get(index, frozenset()))
        self._chains[index] = _Progress(manager, failures=failures, alone=alone)
        self._act(index, manager.step(Begin()))

    def _again(self, index: int, alone: bool = False) -> None:
        chain = self._chains[index]
        self._begin(index, chain.failures, chain.alone or alone)

    def _hand_out(self) -> None:
        for worker in self._transport.idle():
            batch = self._batch(worker)
            if batch:
                segments, first = tuple(self._segment(index, worker) for index in batch), self._chains[batch[0]].train
                carried = None if first is None else first.token
                self._scheduler.send(worker, TrainTask(segments, self._plan.round, self._models, carried, self._weighing), self)
            elif self._under_way == 0 and worker.summed:
                self._scheduler.send(worker, SumTask(self._plan.round), self)
            elif self._evaluation is not None:
                self._evaluation.hand_out(worker)

    def _batch(self, worker: WorkerHandle) -> list[int]:
        """What this worker can do next: some whole chains, or as many hops of one as it has samples for."""

        def fits(index: int) -> Fit:
            progress = self._chains[index]
            assert progress.train is not None
            whole = worker.holds_all or all(worker.holds(client) for client in self._plan.chains[index].clients)
            if whole and not progress.alone and progress.train.token is None:
                return "together"
            return "alone" if whole or worker.holds(progress.train.hop.client) else "no"

        batch = next_batch(self._pending, self._work, self._most, self._transport.batch_limits.seconds, fits)
        for index in batch:
            self._pending.remove(index)
        return batch

    def _segment(self, index: int, worker: WorkerHandle) -> Segment:
        progress, chain = self._chains[index], self._plan.chains[index]
        absent, versions = self._absent.get(index, frozenset()), self._state.client_versions
        most = self._transport.hops_at_once
        assert progress.train is not None
        if worker.holds_all and progress.train.token is None and most is None:
            own = {client: versions[client] for client in chain.clients if client in versions} if versions else {}
            return Segment(index, chain, absent, own)
        hops = tuple(chain.hops())
        begin = end = progress.train.hop.index
        while end < len(hops) and worker.holds(hops[end].client) and end - begin != most:
            end += 1
        elsewhere = frozenset(hop.index for hop in hops if not begin <= hop.index < end)
        own = {hop.client: versions[hop.client] for hop in hops[begin:end] if hop.client in versions}
        return Segment(index, chain, absent | elsewhere, own, {}, progress.hops, end == len(hops))

    # Listening.

    def _heard(self, worker: WorkerHandle, task: Task | None, answer: Answer) -> Iterator[ChainResult]:
        if isinstance(answer, HopDone):
            self._tell(answer)
        elif isinstance(task, SumTask):
            yield from self._sums(worker, answer)
        elif isinstance(task, TrainTask):
            if isinstance(answer, TrainDone):
                yield from self._done(worker, task, answer)
            elif isinstance(answer, TaskFailed):
                yield from self._failed(worker, task, answer)
            elif isinstance(answer, WorkerGone):
                self._died(worker, task, answer)
            elif isinstance(answer, ModelLost):
                self._model_lost(task)

    def _done(self, worker: WorkerHandle, task: TrainTask, done: TrainDone) -> Iterator[ChainResult]:
        finished: list[tuple[int, tuple[HopReport, ...]]] = []
        for place, (segment, hops) in enumerate(zip(task.segments, done.hops, strict=True)):
            if len(task.segments) > 1:
                for report in hops:
                    self._tell(HopDone(self._plan.round, segment.index, report))
            whole = self._trained(segment.index, hops, done)
            if whole is not None:
                finished.append((place, whole))
        outputs = self._transport.fetch(worker, done, self._plan.round) if finished else ()
        if outputs is None:  # the node is gone that had it
            self._model_lost(task)
            if task.weighing is not None:
                self._dismiss(worker)  # its sum has what is run again
            return
        self._under_way -= len(finished)
        summed = [task.segments[place].index for place, hops in finished if hops and outputs[place].tensors is None]
        worker.summed += summed
        self._left -= len(finished) - len(summed)
        self._hand_out()
        for place, hops in finished:
            output, index = outputs[place], task.segments[place].index
            self._chains[index].hops, self._chains[index].client_versions = hops, output.client_versions
            if hops and output.tensors is not None:
                yield ChainResult(index, self._plan.chains[index], output.tensors, hops, output.sent, output.client_versions)

    def _trained(self, index: int, hops: Sequence[HopReport], done: TrainDone) -> tuple[HopReport, ...] | None:
        """Tell the chain's manager; all hops, if it is finished."""
        progress = self._chains[index]
        for report in hops:
            assert progress.train is not None
            told = Trained(progress.train.hop.index, progress.train.attempt, done.outputs, report)
            progress.train = next((action for action in progress.manager.step(told) if isinstance(action, Train)), None)
        progress.hops = (*progress.hops, *hops)
        if progress.train is None:
            return progress.hops
        self._pending.appendleft(index)
        return None

    def _act(self, index: int, actions: Sequence[Action]) -> None:
        """Do what a manager says of a chain that begins or skips a client."""
        for action in actions:
            if isinstance(action, Train):
                self._chains[index].train = action
                self._pending.appendleft(index)
            elif isinstance(action, Finished):
                self._left -= 1
                self._under_way -= 1

    def _tell(self, event: HopDone) -> None:
        self._speed.learn(event.report)
        self._listener(event)

    # Sums that are made where results are.

    def _sums(self, worker: WorkerHandle, answer: Answer) -> Iterator[ChainResult]:
        if isinstance(answer, WorkerGone):
            return
        indices, worker.summed = worker.summed, []
        if not isinstance(answer, SumDone) or answer.partial is None:  # it was on its way when its node went
            self._under_way += len(indices)
            for index in indices:
                self._again(index)
            return
        self._left -= len(indices)
        for index in indices:
            progress, partial = self._chains[index], answer.partial if index == indices[-1] else None
            chain = self._plan.chains[index]
            yield ChainResult(index, chain, {}, progress.hops, {}, progress.client_versions, summed=True, partial=partial)

    def _sums_lost(self, worker: WorkerHandle, cause: str) -> None:
        """What a worker that is gone had added up is done again."""
        indices, worker.summed = worker.summed, []
        self._under_way += len(indices)
        for index in indices:
            self._listener(WorkerLost(self._plan.round, index, None, cause))
            self._again(index)

    def _dismiss(self, worker: WorkerHandle) -> None:
        gone = self._transport.replace(worker, "the sum that had it was given up", blameless=True)
        self._sums_lost(worker, gone.cause)

    # Failures.

    def _failed(self, worker: WorkerHandle, task: TrainTask, failed: TaskFailed) -> Iterator[ChainResult]:
        failed.raise_expected()
        if self._transport.policy.on_failure == "skip":
            yield from self._skipped(worker, failed)
            return
        for segment in task.segments:
            self._again(segment.index, alone=True)
        if task.weighing is not None and len(task.segments) > 1:
            self._dismiss(worker)  # its sum has those before the one that failed
        self._lost(failed.index, failed.client, failed.cause, failed)

    def _died(self, worker: WorkerHandle, task: TrainTask, gone: WorkerGone) -> None:
        index, client = task.segments[0].index if gone.chain is None else gone.chain, gone.client
        if client is None and len(task.segments) == 1:
            here = [hop for hop in task.segments[0].chain.hops() if hop.index not in task.segments[0].absent]
            client = here[min(worker.hops_done, len(here) - 1)].client
        for segment in task.segments:
            self._again(segment.index, alone=not gone.blameless)
        self._lost(index, client, gone.cause, counts=not gone.blameless)

    def _model_lost(self, task: TrainTask) -> None:
        for segment in task.segments:
            self._listener(WorkerLost(self._plan.round, segment.index, None, "the node that had its model is gone"))
            self._again(segment.index)

    def _lost(self, index: int, client: int | None, cause: str, failed: TaskFailed | None = None, counts: bool = True) -> None:
        """A chain begins again, unless it has failed too often."""
        progress = self._chains[index]
        progress.failures += counts
        most = self._transport.most_deaths if failed is None else self._transport.most_exceptions
        if most > 1:
            self._listener(WorkerLost(self._plan.round, index, client, cause, None if failed is None else failed.trace))
        if progress.failures >= most:
            name = self._scheduler.clients[client] if client is not None else f"(start of chain {index})"
            times = f" {progress.failures} times" if most > 1 else ""
            said = f"client '{name}' failed{times} in round {self._plan.round}: {cause}."
            raise RunFailed(said).with_trace(failed is not None) from (None if failed is None else failed.origin())

    def _skipped(self, worker: WorkerHandle, failed: TaskFailed) -> Iterator[ChainResult]:
        """The chain goes on without the client, from the last good model; that is told before it takes effect."""
        index, progress = failed.index, self._chains[failed.index]
        assert progress.train is not None
        hop, attempt = progress.train.hop, progress.train.attempt
        lost, seconds = self._transport.cost_of(worker)
        for action in progress.manager.step(Failed(hop.index, attempt, failed.cause)):
            if isinstance(action, Skipped) and action.hop is hop:
                self._listener(HopSkipped(self._plan.round, index, hop.index, hop.client, action.cause, lost, seconds))
                continue
            self._act(index, [action])
            if isinstance(action, Finished) and action.hops:
                (output,) = self._transport.fetch(worker, TrainDone((), action.token), self._plan.round) or ()
                chain, tensors = self._plan.chains[index], output.tensors or {}
                yield ChainResult(index, chain, tensors, action.hops, output.sent, output.client_versions)
        self._hand_out()
