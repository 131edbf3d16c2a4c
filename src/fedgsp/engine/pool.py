"""The local engine: persistent worker processes, one model and one math thread each, weights through shared memory.

Chains go to idle workers, longest first. A worker that dies is replaced and its chain walked again; a chain that keeps failing
ends the run with a message that names client and cause. Results come as they are ready; exact sums make their order harmless.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.client.keep import sums_like
from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.errors import RunFailed
from fedgsp.core.state import ServerState, beside
from fedgsp.engine.job import Absent, HopDone, Job, Listener, WorkerLost, longest_first
from fedgsp.engine.share import Layout, Region, SharedData, lay_out
from fedgsp.engine.walk import peak_memory_bytes
from fedgsp.engine.worker import Broke, Hopped, Ready, Scored, ScoreTask, Training, Walked, WalkTask
from fedgsp.evaluate.forward import CHUNK, SampleScores

MOST_ATTEMPTS = 3
SCORE_ROWS = 4 * CHUNK


@dataclass
class _Worker:
    """One process, its ends of the wires, and what it is doing."""

    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]
    lifeline: int
    outbox: Region
    ready: bool = False
    slot: int = 0
    task: WalkTask | ScoreTask | None = None
    client: int | None = None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()
        os.close(self.lifeline)
        self.outbox.close()


@dataclass
class _Board:
    """The models of the moment, where every worker can read them."""

    region: Region = field(default_factory=Region)
    models: dict[str, Layout] = field(default_factory=dict)
    shared: Layout = field(default_factory=dict)
    slots: dict[str, Layout] = field(default_factory=dict)
    largest: int = 0
    state: ServerState | None = None

    def show(self, state: ServerState, slots: frozenset[str] = frozenset()) -> None:
        """Models and `shared` always, of the slots only those asked for: moments and the like stay with the server."""
        if state is self.state and slots <= self.slots.keys():
            return
        end, places = 0, []
        self.models, self.slots = {}, {}
        for name, tensors in state.models.items():
            begin = end
            self.models[name], end = lay_out(tensors, begin)
            self.largest = max(self.largest, end - begin)
            places.append((tensors, self.models[name]))
        for name in sorted(slots):
            self.slots[name], end = lay_out(state.slots[name], end)
            places.append((state.slots[name], self.slots[name]))
        self.shared, end = lay_out(state.shared, end)
        places.append((state.shared, self.shared))
        self.region.reserve(end)
        for tensors, layout in places:
            self.region.write(tensors, layout)
        self.state = state


class PoolEngine:
    """Walks chains in `workers` processes that live as long as the engine."""

    def __init__(self, job: Job, workers: int) -> None:
        import cloudpickle

        self._job = job
        self._board = _Board()
        _, self._beside = lay_out(sums_like(job.beside_model()[1]))
        self._data = SharedData(job.data)
        bare = replace(job, data=None)  # type: ignore[arg-type]  # the data travels as a recipe
        self._setup = cloudpickle.dumps((bare, self._data.recipe()))
        self._peaks: dict[str, int] = {}
        self._workers: list[_Worker] = []
        self._closed = False
        self._failed_starts = 0
        try:
            for _ in range(workers):
                self._workers.append(self._start_worker())
        except BaseException:
            self.close()
            raise

    def run(self, plan: Plan, state: ServerState, listener: Listener, absent: Absent | None = None) -> Iterator[ChainResult]:
        """See `Engine.run`."""
        self._board.show(state)
        pending = deque(longest_first(plan, self._job.data))
        attempts = dict.fromkeys(pending, 0)
        left = len(pending)
        size = self._board.largest + self._beside

        def make(index: int, worker: _Worker) -> WalkTask:
            chain = plan.chains[index]
            attempts[index] += 1
            worker.slot = 1 - worker.slot  # the result before this one may still be being read
            worker.outbox.reserve(2 * size)
            return WalkTask(
                index, plan.round, chain, self._board.models[chain.start], self._board.shared,
                (absent or {}).get(index, frozenset()), worker.slot * size, size,
                {client: state.kept[client] for client in chain.clients if client in state.kept},
            )  # fmt: skip

        def again(index: int, client: int | None, cause: str, trace: str | None) -> None:
            listener(WorkerLost(plan.round, index, client, cause, trace))
            if attempts[index] >= (MOST_ATTEMPTS if trace is None else 2):  # an exception will most likely repeat itself
                name = self._job.data.clients[client] if client is not None else f"(start of chain {index})"
                raise RunFailed(f"client '{name}' failed {attempts[index]} times in round {plan.round}: {cause}.")
            pending.appendleft(index)

        while left:
            self._hand_out(pending, make)
            for worker, message in self._messages():
                if isinstance(message, Hopped):
                    listener(HopDone(plan.round, message.index, message.report))
                elif isinstance(message, Walked):
                    left -= 1
                    if pending:
                        self._hand_out(pending, make)
                    if message.hops:
                        chain = plan.chains[message.index]
                        tensors, sent = worker.outbox.tensors(message.layout), worker.outbox.tensors(message.sent)
                        yield ChainResult(message.index, chain, tensors, message.hops, sent, message.marks)
                elif isinstance(message, Broke):
                    if message.expected is not None:
                        raise message.expected
                    again(message.index, message.client, message.error, message.trace)
                elif isinstance(message, _Died) and message.task is not None:
                    again(message.task.index, message.client, message.cause, None)

    def score(
        self,
        state: ServerState,
        wanted: Sequence[tuple[str, NDArray[np.int64]]],
        owners: Sequence[int | None] | None = None,
    ) -> list[SampleScores]:
        """See `Engine.score`: rows are cut into tasks of whole chunks, so the cut never changes a bit."""
        whose = [None] * len(wanted) if owners is None else owners
        views = {name for name, _ in wanted}
        self._board.show(state, frozenset(state.slots.keys() & (views | {beside(name) for name in views})))
        cuts = [
            (which, name, rows[at : at + SCORE_ROWS])
            for which, (name, rows) in enumerate(wanted)
            for at in range(0, len(rows), SCORE_ROWS if whose[which] is None else max(1, len(rows)))  # one task an owner
        ]
        pending, found, deaths = deque(range(len(cuts))), dict[int, SampleScores](), 0

        def make(index: int, worker: _Worker) -> ScoreTask:
            which, name, rows = cuts[index]
            board = self._board
            layout = board.models[name] if name in board.models else board.slots[name]
            owner = whose[which]
            kept = {owner: state.kept[owner]} if owner is not None and owner in state.kept else {}
            return ScoreTask(index, layout, board.slots.get(beside(name), {}), rows, owner, state.round, kept)

        while len(found) < len(cuts):
            self._hand_out(pending, make)
            for _, message in self._messages():
                if isinstance(message, Scored):
                    found[message.index] = message.scores
                elif isinstance(message, Broke):
                    raise message.expected or RunFailed(f"evaluation failed: {message.error}.")
                elif isinstance(message, _Died) and message.task is not None:
                    deaths += 1
                    if deaths >= MOST_ATTEMPTS:
                        raise RunFailed(f"evaluation failed {deaths} times: {message.cause}.")
                    pending.appendleft(message.task.index)
        return [_joined([found[i] for i, cut in enumerate(cuts) if cut[0] == which], self._job) for which in range(len(wanted))]

    def peak_memory(self) -> dict[str, int]:
        """See `Engine.peak_memory`."""
        return {"main": peak_memory_bytes(), **self._peaks}

    def process_ids(self) -> list[int]:
        """The workers' process numbers."""
        return [worker.process.pid for worker in self._workers]

    def close(self) -> None:
        """See `Engine.close`: a worker holds nothing that could be lost, so it is simply ended."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            worker.kill()
        self._workers = []
        self._data.close()
        self._board.region.close()

    def _start_worker(self) -> _Worker:
        ours, theirs = socket.socketpair()
        watch, lifeline = os.pipe()
        outbox = Region()
        inherited = [theirs.fileno(), watch, self._board.region.descriptor, outbox.descriptor]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }
        process = subprocess.Popen(
            [sys.executable, "-c", f"from fedgsp.engine.worker import main; main{tuple(inherited)}"],
            pass_fds=[*inherited, *self._data.descriptors],
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C reaches the parent only
        )
        theirs.close()
        os.close(watch)
        connection: Connection[Any, Any] = Connection(ours.detach())
        worker = _Worker(process, connection, lifeline, outbox)
        with suppress(OSError):  # should it die at once, the first wait finds out
            connection.send_bytes(self._setup)
        return worker

    def _hand_out(self, pending: deque[int], make: Any) -> None:
        for worker in self._workers:
            if pending and worker.ready and worker.task is None:
                worker.task = make(pending.popleft(), worker)
                worker.client = None
                with suppress(OSError):  # should it have died, its end of the wire says so in the next wait
                    worker.connection.send(worker.task)

    def _messages(self) -> Iterator[tuple[_Worker, Any]]:
        """What workers have said since; the dead are replaced and reported."""
        by_connection = {worker.connection: worker for worker in self._workers}
        for connection in wait(list(by_connection)):
            worker = by_connection[connection]  # type: ignore[index]
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                yield worker, self._bury(worker)
                continue
            if isinstance(message, Ready):
                worker.ready = True
            elif isinstance(message, Training):
                worker.client = message.client
            elif isinstance(message, Broke) and message.index < 0:
                raise RunFailed(f"a worker could not start: {message.error}.")
            else:
                if isinstance(message, (Walked, Scored)):
                    self._peaks[f"worker {self._workers.index(worker)}"] = message.peak_memory
                if not isinstance(message, Hopped):
                    worker.task = None
                yield worker, message

    def _bury(self, worker: _Worker) -> _Died:
        task, client, started = worker.task, worker.client, worker.ready
        worker.kill()
        cause = _cause_of_death(worker.process.returncode)
        self._failed_starts = 0 if started else self._failed_starts + 1
        if self._failed_starts >= MOST_ATTEMPTS:
            raise RunFailed(f"worker processes cannot start: {cause}.")
        self._workers[self._workers.index(worker)] = self._start_worker()
        return _Died(task, client, cause)


@dataclass(frozen=True)
class _Died:
    task: WalkTask | ScoreTask | None
    client: int | None
    cause: str


def _cause_of_death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its worker process was killed (signal 9), as the system does when memory runs out"
    if code < 0:
        return f"its worker process died of signal {-code}"
    return f"its worker process ended with code {code}"


def _joined(parts: list[SampleScores], job: Job) -> SampleScores:
    none = np.empty(0, dtype=np.float32)
    return SampleScores(
        np.concatenate([none, *(p.loss for p in parts)]),
        {name: np.concatenate([none, *(p.metrics[name] for p in parts)]) for name in job.task.metrics},
    )
