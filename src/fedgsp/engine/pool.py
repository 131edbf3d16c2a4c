"""The local engine: persistent worker processes, one model and one math thread each, weights through shared memory.

Chains go to idle workers, longest first; short ones several at a time. A worker that dies is replaced and its chains are walked
again; a chain that keeps failing ends the run with a message that names client and cause. One that hangs is spoken of, and
replaced where there is a limit. Results come as they are ready; exact sums make their order harmless.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedgsp.client.keep import sums_like
from fedgsp.core.blame import RemoteTraceback
from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.errors import RunFailed
from fedgsp.core.state import ServerState, beside
from fedgsp.engine.board import Board
from fedgsp.engine.bundles import Speed, bundles, idle_share
from fedgsp.engine.crew import MOST_ATTEMPTS, Crew, Died, Member
from fedgsp.engine.job import Absent, HopDone, Job, Listener, NotJudged, Scoring, Span, Wanted, WorkerLost
from fedgsp.engine.patience import Patience, Watch
from fedgsp.engine.share import SharedData, lay_out
from fedgsp.engine.walk import peak_memory_bytes
from fedgsp.engine.worker import Broke, ChainDone, Hopped, Scored, ScoreTask, Walk, Walked, WalkTask
from fedgsp.evaluate.forward import CHUNK, SampleScores, joined
from fedgsp.server.mean import Weighing

SCORE_ROWS = 4 * CHUNK


class PoolEngine:
    """Walks chains in `workers` processes that live as long as the engine.

    There are two boards, so that a model can still be evaluated while the chains of the next round are walked.
    """

    def __init__(self, job: Job, workers: int, patience: Patience = Patience()) -> None:  # noqa: B008 - frozen
        import cloudpickle

        self._job, self._size = job, workers
        self._board, self._show = Board(), Board()
        _, self._beside = lay_out(sums_like(job.beside_model()[1]))
        self._data = SharedData(job.data)
        self._speed = Speed()
        self._watch = Watch(patience, self._speed)
        self._closed = False
        bare = replace(job, data=None)  # type: ignore[arg-type]  # the data travels as a recipe
        boards = [self._board.region.descriptor, self._show.region.descriptor]
        try:
            setup = cloudpickle.dumps((bare, self._data.recipe()))
            self._crew = Crew(workers, setup, boards, self._data.descriptors, self._watch, job.data)
        except BaseException:
            self._give_back()
            raise

    def run(
        self,
        plan: Plan,
        state: ServerState,
        listener: Listener,
        absent: Absent | None = None,
        meanwhile: Scoring | None = None,
        weighing: Weighing | None = None,
    ) -> Iterator[ChainResult]:
        """See `Engine.run`."""
        began = time.perf_counter()
        self._watch.listener = listener
        self._board.show(state)
        self._crew.spans.append(Span(-1, "broadcast", f"round {plan.round}", began, time.perf_counter()))
        return _Round(self, plan, state, listener, absent or {}, meanwhile if isinstance(meanwhile, _Asked) else None).results()

    def ask(self, state: ServerState, wanted: Wanted, owners: Sequence[int | None] | None = None) -> Scoring:
        """See `Engine.ask`: rows are cut into tasks of whole chunks, so the cut never changes a bit."""
        views = {name for name, _ in wanted}
        self._show.show(state, frozenset(state.slots.keys() & (views | {beside(name) for name in views})))
        return _Asked(self, state, wanted, [None] * len(wanted) if owners is None else owners)

    def idle_share(self, plan: Plan) -> float:
        """See `Engine.idle_share`."""
        return idle_share(self._speed.work(plan, self._job.data), self._size)

    def spans(self) -> list[Span]:
        """See `Engine.spans`."""
        done, self._crew.spans = self._crew.spans, []
        return done

    def peak_memory(self) -> dict[str, int]:
        """See `Engine.peak_memory`."""
        return {"main": peak_memory_bytes(), **self._crew.peaks}

    def process_ids(self) -> list[int]:
        """The workers' process numbers."""
        return [member.process.pid for member in self._crew.members]

    def wait_until_ready(self) -> None:
        """Return when all workers are set up: for measurements, the engine itself never waits for all."""
        while not all(member.ready for member in self._crew.members):
            list(self._crew.messages())

    def close(self) -> None:
        """See `Engine.close`."""
        if self._closed:
            return
        self._closed = True
        self._crew.close()
        self._give_back()

    def _give_back(self) -> None:
        self._data.close()
        self._board.region.close()
        self._show.region.close()


class _Round:
    """One round's chains on their way through the pool."""

    def __init__(
        self, pool: PoolEngine, plan: Plan, state: ServerState, listener: Listener, absent: Absent, meanwhile: _Asked | None
    ) -> None:
        self._pool, self._plan, self._state, self._listener, self._absent = pool, plan, state, listener, absent
        self._meanwhile = meanwhile
        self._slot_bytes = pool._board.largest + pool._beside
        work = pool._speed.work(plan, pool._job.data)
        self._pending = deque(bundles(work, pool._size, self._slot_bytes))
        self._most = max(map(len, self._pending))
        self._attempts = dict.fromkeys(range(len(plan.chains)), 0)
        self._left = len(plan.chains)

    def results(self) -> Iterator[ChainResult]:
        """Hand out, listen, yield."""
        while self._left:
            self._hand_out()
            for member, message in self._pool._crew.messages():
                if isinstance(message, Hopped):
                    self._pool._speed.learn(message.report)
                    self._listener(HopDone(self._plan.round, message.index, message.report))
                elif isinstance(message, Walked):
                    self._left -= len(message.chains)
                    self._hand_out()
                    for done in message.chains:
                        yield from self._arrived(member, done, alone=len(message.chains) == 1)
                elif isinstance(message, Broke) and self._is_walk(message.index):
                    if message.expected is not None:
                        raise message.expected from RemoteTraceback(message.trace)
                    self._again(message.index, message.client, message.error, message.trace)
                elif isinstance(message, Died) and isinstance(message.task, WalkTask):
                    self._lost(message.task, message)
                elif self._meanwhile is not None:
                    self._meanwhile.heard(message)

    def _is_walk(self, index: int) -> bool:
        return self._meanwhile is None or not self._meanwhile.owns(index)

    def _hand_out(self) -> None:
        for member in self._pool._crew.idle():
            if self._pending:
                self._pool._crew.hand(member, self._task(self._pending.popleft(), member))
            elif self._meanwhile is not None:
                self._meanwhile.hand_out(member)

    def _task(self, bundle: tuple[int, ...], member: Member) -> WalkTask:
        size, kept, board = self._slot_bytes, self._state.kept, self._pool._board
        member.slot = 1 - member.slot  # the results before these may still be being read
        member.outbox.reserve(2 * self._most * size)
        begin = member.slot * self._most * size
        walks = []
        for place, index in enumerate(bundle):
            chain = self._plan.chains[index]
            self._attempts[index] += 1
            own = {client: kept[client] for client in chain.clients if client in kept}
            at = begin + place * size
            walks.append(Walk(index, chain, board.models[chain.start], self._absent.get(index, frozenset()), at, own))
        return WalkTask(tuple(walks), self._plan.round, board.shared, size)

    def _arrived(self, member: Member, done: ChainDone, alone: bool) -> Iterator[ChainResult]:
        if not alone:
            for report in done.hops:
                self._pool._speed.learn(report)
                self._listener(HopDone(self._plan.round, done.index, report))
        if done.hops:
            tensors, sent = member.outbox.tensors(done.layout), member.outbox.tensors(done.sent)
            yield ChainResult(done.index, self._plan.chains[done.index], tensors, done.hops, sent, done.marks)

    def _lost(self, task: WalkTask, died: Died) -> None:
        at = task.walks[0].index if died.chain is None else died.chain
        for walk in task.walks:  # alone from now on
            if walk.index != at:
                self._pending.appendleft((walk.index,))
        self._again(at, died.client, died.cause, None)

    def _again(self, index: int, client: int | None, cause: str, trace: str | None) -> None:
        self._listener(WorkerLost(self._plan.round, index, client, cause, trace))
        if self._attempts[index] >= (MOST_ATTEMPTS if trace is None else 2):  # an exception will most likely repeat itself
            name = self._pool._job.data.clients[client] if client is not None else f"(start of chain {index})"
            said = f"client '{name}' failed {self._attempts[index]} times in round {self._plan.round}: {cause}."
            raise RunFailed(said).with_trace(trace is not None) from (RemoteTraceback(trace) if trace else None)
        self._pending.appendleft((index,))


class _Asked:
    """Scores that the pool was asked for."""

    missing: tuple[NotJudged, ...] = ()

    def __init__(self, pool: PoolEngine, state: ServerState, wanted: Wanted, owners: Sequence[int | None]) -> None:
        self._pool, self._count, self._round = pool, len(wanted), state.round
        self._tasks: list[ScoreTask] = []
        self._which: list[int] = []
        self._found: dict[int, SampleScores] = {}
        self._deaths = 0
        board = pool._show
        for which, ((name, rows), owner) in enumerate(zip(wanted, owners, strict=True)):
            layout = board.models[name] if name in board.models else board.slots[name]
            kept = {owner: state.kept[owner]} if owner is not None and owner in state.kept else {}
            size = SCORE_ROWS if owner is None else max(1, len(rows))  # one task an owner
            for at in range(0, len(rows), size):
                part, number = rows[at : at + size], -2 - len(self._tasks)  # numbers that no chain has, nor a failed start
                self._tasks.append(ScoreTask(number, layout, board.slots.get(beside(name), {}), part, owner, state.round, kept))
                self._which.append(which)
        self._pending = deque(range(len(self._tasks)))

    @property
    def done(self) -> bool:
        """Whether all scores are there."""
        return len(self._found) == len(self._tasks)

    def owns(self, index: int) -> bool:
        """Whether a task's number is one of these."""
        return index <= -2

    def hand_out(self, member: Member) -> None:
        """Give an idle worker the next task, if there is one."""
        if self._pending:
            self._pool._crew.hand(member, self._tasks[self._pending.popleft()])

    def heard(self, message: object) -> None:
        """Take in what a worker said of these tasks."""
        if isinstance(message, Scored):
            self._found[-2 - message.index] = message.scores
        elif isinstance(message, Broke) and self.owns(message.index):  # else a chain of a round that has failed already
            failed = RunFailed(f"evaluation failed in round {self._round}: {message.error}.").with_trace()
            raise message.expected or failed from RemoteTraceback(message.trace)
        elif isinstance(message, Died) and isinstance(message.task, ScoreTask):
            self._deaths += 1
            if self._deaths >= MOST_ATTEMPTS:
                raise RunFailed(f"evaluation failed {self._deaths} times in round {self._round}: {message.cause}.")
            self._pending.appendleft(-2 - message.task.index)

    def result(self) -> list[SampleScores]:
        """All scores, in the order they were wanted."""
        while not self.done:
            for member in self._pool._crew.idle():
                self.hand_out(member)
            for _, message in self._pool._crew.messages():
                self.heard(message)
        parts: list[list[SampleScores]] = [[] for _ in range(self._count)]
        for number, which in enumerate(self._which):
            parts[which].append(self._found[number])
        return [joined(found, self._pool._job.task.metrics) for found in parts]
