"""The local engine: persistent worker processes, one model and one math thread each, weights through shared memory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle

from fedgsp.core import forked
from fedgsp.core.errors import RunFailed
from fedgsp.core.fork_server import NO_FORK
from fedgsp.core.local_workers import MODULE, worker_environment
from fedgsp.engine.messages import Answer, ChainOutput, EvaluateTask, Task, TaskFailed, TrainDone, TrainTask, WorkerGone
from fedgsp.engine.scheduler import Scheduler
from fedgsp.engine.time_limits import Activity, TimeLimits
from fedgsp.engine.transports.base import Transport, WorkerHandle
from fedgsp.engine.transports.process_worker import NO_START, ModelLayout, OutputLayout, WorkerReady
from fedgsp.engine.transports.shared_memory import Heartbeat, Layout, Region, SharedData, lay_out, shared_bytes

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.core.tensors import Tensors
    from fedgsp.engine.base import WorkerSetup

KILL_SECONDS = 10.0
"""So long a killed process is waited for: one that the system holds (a dead network disk) may never end."""


@dataclass(eq=False, kw_only=True)
class ProcessHandle(WorkerHandle):
    """One process, our ends of the wires to it, and two outboxes: results are read from one while it fills the other."""

    process: forked.Process
    connection: Connection[Any, Any]
    lifeline: int
    outboxes: tuple[Region, Region]
    heartbeat: Heartbeat
    ended: bool = False

    def __str__(self) -> str:
        return f"process {self.process.pid}"

    def position(self) -> tuple[int | None, int | None, float]:
        """(the number of the chain or evaluation, the client, since when) of what it is at, or will be at first."""
        number, client, since = self.heartbeat.read()
        if since >= self.since and self.task is not None:
            return number, client, since
        if isinstance(self.task, TrainTask):
            first = self.task.segments[0]
            return first.index, first.chain.clients[0], self.since
        return None, None, self.since

    def end(self) -> None:
        """Kill it, once; it holds nothing that could be lost."""
        if self.ended:
            return
        self.ended = True
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_SECONDS)
        self.connection.close()
        os.close(self.lifeline)
        for outbox in self.outboxes:
            outbox.close()
        self.heartbeat.close()


class PublishedModels:
    """The models of one state, in memory that every worker can read."""

    def __init__(self, number: int) -> None:
        self.region, self._number = Region(), number
        self._shown: tuple[ServerState, ModelLayout] | None = None

    def publish(self, state: ServerState, slots: frozenset[str]) -> ModelLayout:
        """Models and `shared` always, of the slots only these: moments and the like stay with the server."""
        if self._shown is not None and self._shown[0] is state and slots <= self._shown[1].slots.keys():
            return self._shown[1]
        end, places = 0, []

        def placed(tensors: Tensors) -> Layout:
            nonlocal end
            layout, end = lay_out(tensors, end)
            places.append((tensors, layout))
            return layout

        models = {name: placed(tensors) for name, tensors in state.models.items()}
        more = {name: placed(state.slots[name]) for name in sorted(slots)}
        layout = ModelLayout(self._number, models, placed(state.shared), more)
        self.region.reserve(end)
        for tensors, place in places:
            self.region.write(tensors, place)
        self._shown = (state, layout)
        return layout


class ProcessTransport(Transport):
    """`size` worker processes that live as long as the transport."""

    workers: list[ProcessHandle]  # type: ignore[assignment]
    most_failed_starts: ClassVar[int] = 3

    def __init__(self, setup: WorkerSetup, size: int) -> None:
        super().__init__()
        self._clients, self._sizes = setup.data.clients, setup.data.train.sizes
        self._published = PublishedModels(0), PublishedModels(1)
        self._data = SharedData(setup.data)
        self._setup = -1
        self._failed_starts = 0
        bare = replace(setup, data=None)  # type: ignore[arg-type]  # the data travels as a recipe
        try:
            self._setup = shared_bytes(cloudpickle.dumps((bare, self._data.recipe())))
            for number in range(size):
                self.workers.append(self._start(number))
        except BaseException:
            self.close()
            raise

    def send(self, worker: ProcessHandle, task: Task) -> None:
        """Hand a task to a worker that is idle."""
        with suppress(OSError):  # should it have died, its end of the wire says so in the next wait
            worker.connection.send(task)

    def receive(self, seconds: float) -> Iterator[tuple[ProcessHandle, Answer]]:
        """Wait for what workers say, at most so long; the dead are replaced and reported."""
        by_connection = {worker.connection: worker for worker in self.workers}
        for connection in wait(list(by_connection), timeout=seconds):
            worker = by_connection[connection]  # type: ignore[index]
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):
                yield worker, self.replace(worker)
                continue
            if isinstance(answer, WorkerReady):
                worker.ready = True
            elif isinstance(answer, TaskFailed) and answer.index == NO_START:
                raise RunFailed(f"a worker could not start: {answer.cause}.").with_trace() from answer.origin()
            else:
                yield worker, answer

    def replace(self, worker: ProcessHandle, cause: str | None = None, blameless: bool = False) -> WorkerGone:
        """See `Transport.replace`."""
        number, client, _ = worker.position()
        worker.end()
        cause = cause or _cause_of_death(worker.process.returncode)
        if worker.process.returncode != NO_FORK:  # the next is not forked
            self._failed_starts = 0 if worker.ready else self._failed_starts + 1
        if self._failed_starts >= self.most_failed_starts:
            raise RunFailed(
                f"worker processes cannot start, {self._failed_starts} in a row: {cause}; what they printed may say why."
            )
        self.workers[self.workers.index(worker)] = self._start(worker.number)
        return WorkerGone(cause, number if isinstance(worker.task, TrainTask) else None, client, blameless)

    def publish(self, state: ServerState, slots: frozenset[str] | None = None) -> ModelLayout:
        """Into one of two regions, so that a model can still be evaluated while the next round's are trained."""
        return self._published[slots is not None].publish(state, slots or frozenset())

    def fetch(self, worker: ProcessHandle, done: TrainDone, round_: int) -> Sequence[ChainOutput]:
        """Over the outbox's pages: valid until the worker's next but one task."""
        turn, layouts = done.outputs
        outbox: Region = worker.outboxes[turn]
        found: list[OutputLayout] = layouts
        return [ChainOutput(outbox.tensors(one.tensors), outbox.tensors(one.sent), one.client_versions) for one in found]

    def activity(self, worker: ProcessHandle) -> Activity | None:
        """See `Transport.activity`."""
        task = worker.task
        if worker.connection.poll() or (worker.ready and task is None):
            return None
        number, client, since = worker.position()
        if task is None:
            return Activity("start", "its start", since)
        name = None if client is None else f"client '{self._clients[client]}'"
        if isinstance(task, EvaluateTask):
            what = f"the evaluation of {name}" if name else "an evaluation"
            return Activity("evaluate", what, since, task.round, None, client)
        assert client is not None
        samples = int(self._sizes[client])
        return Activity("train", str(name), since, task.round, number, client, samples, warm=worker.warm)

    def close(self) -> None:
        """End all of them."""
        for worker in self.workers:
            worker.end()
        self.workers = []
        if self._setup >= 0:
            os.close(self._setup)
            self._setup = -1
        self._data.close()
        for published in self._published:
            published.region.close()

    def _start(self, number: int) -> ProcessHandle:
        try:
            with ExitStack() as ours, ExitStack() as theirs:  # ours stay open if it starts, theirs are the child's
                here, there = socket.socketpair()
                ours.callback(here.close)
                theirs.callback(there.close)
                watched, lifeline = os.pipe()
                theirs.callback(os.close, watched)
                ours.callback(os.close, lifeline)
                outboxes = Region(), Region()
                for outbox in outboxes:
                    ours.callback(outbox.close)
                heartbeat = Heartbeat()
                ours.callback(heartbeat.close)
                models = [published.region.descriptor for published in self._published]
                inherited = [
                    there.fileno(), watched, self._setup, *models, heartbeat.descriptor, *(o.descriptor for o in outboxes),
                ]  # fmt: skip
                process = forked.start(
                    MODULE, "main", tuple(inherited), [*inherited, *self._data.descriptors], worker_environment(),
                )  # fmt: skip
                ours.pop_all()
        except OSError as error:
            raise RunFailed(f"worker processes cannot start: {error.strerror or error}.") from error
        connection: Connection[Any, Any] = Connection(here.detach())
        return ProcessHandle(
            number, process=process, connection=connection, lifeline=lifeline, outboxes=outboxes, heartbeat=heartbeat
        )


class ProcessEngine(Scheduler):
    """Runs chains in `workers` processes.

    Args:
        setup: What is the same for every chain.
        workers: How many processes.
        limits: Time limits of hops and starts.
    """

    def __init__(self, setup: WorkerSetup, workers: int, limits: TimeLimits = TimeLimits()) -> None:  # noqa: B008 - frozen
        self._processes = ProcessTransport(setup, workers)
        super().__init__(setup, self._processes, limits)

    def process_ids(self) -> list[int]:
        """The workers' process numbers."""
        found = [worker.process for worker in self._processes.workers]
        return [one.born() if isinstance(one, forked.ForkedProcess) else one.pid for one in found]

    def wait_until_ready(self) -> None:
        """Return when all workers are set up: for measurements, the engine itself never waits for all."""
        while not all(worker.ready for worker in self._processes.workers):
            list(self.answers())


def _cause_of_death(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "its worker process was killed (signal 9), as the system does when memory runs out"
    if code is None:
        return "its worker process is gone"
    if code < 0:
        return f"its worker process died of signal {-code}"
    return f"its worker process ended with code {code}"
