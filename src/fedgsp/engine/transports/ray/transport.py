"""The Ray engine: workers on many machines, models through Ray's object store, to the same bits.

A worker trains as many hops of a chain as it has samples for, usually all; another goes on from there with a reference to the
model. Results are added up where they are, if the server rule is a mere sum, and the sums are fetched in the end. What a dead
worker or node had done of the round is done again by others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.errors import RunFailed
from fedgsp.engine.messages import (
    Answer,
    ChainOutput,
    EvaluateTask,
    HopDone,
    ModelLost,
    StillWorking,
    SumDone,
    SumTask,
    Task,
    TrainDone,
    TrainTask,
    WorkerGone,
)
from fedgsp.engine.scheduler import Scheduler
from fedgsp.engine.task_batching import BatchLimits
from fedgsp.engine.time_limits import Activity, TimeLimits
from fedgsp.engine.transports.base import Transport, WorkerHandle
from fedgsp.engine.transports.ray.cluster import Cluster
from fedgsp.engine.transports.ray.data_placement import bare
from fedgsp.engine.transports.ray.data_supply import DataSupply, last_line
from fedgsp.engine.transports.ray.messages import NodeFacts, PackedModels
from fedgsp.engine.transports.ray.tensor_buffer import pack
from fedgsp.engine.transports.ray.worker import RayWorker, versions
from fedgsp.engine.worker import SIGN_OF_LIFE_SECONDS

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.engine.base import WorkerSetup
    from fedgsp.engine.transports.ray.settings import RaySettings

TICK = 0.5
"""Seconds after which a wait looks up: signals are heard in between."""
NO_ROOM_SECONDS = 600.0
"""So long a run waits for a cluster that has no room for any worker."""
MOST_FAILED_STARTS = 3
LATE = 15.0
"""Seconds after which samples are divided without waiting for workers that have not said that they are there."""


@dataclass(eq=False, kw_only=True)
class RayHandle(WorkerHandle):
    """One actor, what it has at hand (`shards` None: everything), what is awaited of it and when it was last `heard`."""

    actor: Any
    waiting: Any
    supply: DataSupply
    facts: NodeFacts | None = None
    shards: frozenset[int] | None = frozenset()
    heard: float = 0.0

    def __str__(self) -> str:
        return f"worker {self.number}" if self.facts is None else f"process {self.facts.process} on node {self.facts.host}"

    @property
    def holds_all(self) -> bool:  # type: ignore[override]
        """Whether it has every client's samples."""
        return self.shards is None

    def holds(self, client: int) -> bool:
        """Whether it has this client's samples."""
        return self.shards is None or self.supply.shard_of[client] in self.shards


class RayTransport(Transport):
    """Actors on a cluster. `most` is how many could have something to do."""

    workers: list[RayHandle]  # type: ignore[assignment]
    batch_limits = BatchLimits(seconds=0.2, chains=1024)  # a message costs more here
    sums_there = True

    def __init__(self, setup: WorkerSetup, settings: RaySettings, most: int) -> None:
        super().__init__()
        self._setup, self._settings, self._most = setup, settings, most
        self.cluster = Cluster(settings)
        self._ray = self.cluster.ray
        self._numbers = self._failed_starts = 0
        self._first_ready = 0.0
        self._nobody_since: float | None = None
        self._published: tuple[ServerState, frozenset[str], Any] | None = None
        self._sign = _put_sign(setup, settings)
        try:
            self.supply = DataSupply(setup.data, self.cluster, settings)
            self._actor_setup = self._ray.put((replace(setup, data=bare(setup.data)), self.supply.files, self._sign))
            self._grow()
        except BaseException:
            self.close()
            raise

    def begin_round(self) -> None:
        """Nodes that have come since the last round are used from now on."""
        self._grow()
        self.supply.settle(self._ready())

    def send(self, worker: RayHandle, task: Task) -> None:
        """Hand a task over, with the client states and samples that the worker cannot read itself."""
        worker.heard = time.perf_counter()
        if isinstance(task, TrainTask):
            segments = tuple(replace(one, **self._states(worker, one.client_versions)) for one in task.segments)
            sent = replace(task, segments=segments, carried=None)
            worker.waiting = worker.actor.train.options(num_returns="streaming").remote(sent, task.carried)
        elif isinstance(task, EvaluateTask):
            sent_task = replace(task, **self._states(worker, task.client_versions))
            if not worker.holds_all and task.owner is None:
                sent_task = replace(sent_task, samples=self.supply.cut(task.rows), rows=np.arange(len(task.rows)))
            worker.waiting = worker.actor.evaluate.remote(sent_task)
        else:
            worker.waiting = worker.actor.sums.remote(task.round)

    def receive(self, seconds: float) -> Iterator[tuple[RayHandle, Answer]]:
        """Wait for what a worker says of its task, at most for a moment."""
        self._someone()
        waiting = [worker for worker in self.workers if worker.waiting is not None]
        if not waiting:
            return
        found, _ = self._ray.wait([worker.waiting for worker in waiting], num_returns=1, timeout=TICK, fetch_local=False)
        if not found:
            return
        worker = next(one for one in waiting if one.waiting is found[0])
        self.workers.append(self.workers.pop(self.workers.index(worker)))  # the next wait looks at the others first
        answer = self._heard(worker)
        if answer is not None:
            yield worker, answer

    def _heard(self, worker: RayHandle) -> Answer | None:
        errors, task, worker.heard = self._ray.exceptions, worker.task, time.perf_counter()
        answer: Any
        try:
            answer = self._ray.get(next(worker.waiting) if isinstance(task, TrainTask) else worker.waiting)
            if isinstance(answer, NodeFacts):
                self._greet(worker, answer)
                return None
            if isinstance(answer, TrainDone):
                answer = replace(answer, outputs=next(worker.waiting))
        except (errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError) as error:
            return self._died(worker, error)
        except (errors.ObjectLostError, errors.RayTaskError, errors.GetTimeoutError) as error:
            cause = getattr(error, "cause", None)
            if task is None or (isinstance(error, errors.RayTaskError) and not isinstance(cause, errors.ObjectLostError)):
                where = "" if worker.facts is None else f" on node {worker.facts.host}"
                raise RunFailed(f"a worker{where} failed: {last_line(error)}.").with_trace() from error
            answer = SumDone(None) if isinstance(task, SumTask) else ModelLost()
        if not isinstance(answer, (HopDone, StillWorking)):
            worker.waiting = None
        found: Answer = answer
        return found

    def fetch(self, worker: RayHandle, done: TrainDone, round_: int) -> Sequence[ChainOutput] | None:
        """What is behind a reference; client states that came over the wire are put where such are kept."""
        try:
            outputs = [one.read() for one in self._ray.get(done.outputs)]
        except (self._ray.exceptions.ObjectLostError, self._ray.exceptions.RayActorError):
            return None
        return [replace(one, client_versions={**one.client_versions, **self._written(one, round_)}) for one in outputs]

    def activity(self, worker: RayHandle) -> Activity | None:
        """See `Transport.activity`."""
        task = worker.task
        if task is None or time.perf_counter() - worker.heard <= TICK:
            return None
        speaking, _ = self._ray.wait([worker.waiting], num_returns=1, timeout=0, fetch_local=False)
        if speaking:
            return None
        if not isinstance(task, TrainTask):
            what = "an evaluation" if isinstance(task, EvaluateTask) else "its sums"
            return Activity("evaluate", what, worker.heard, task.round)
        sizes, names, segment = self._setup.data.train.sizes, self._setup.data.clients, task.segments[0]
        if len(task.segments) > 1:
            largest = max(int(sizes[client]) for one in task.segments for client in one.chain.clients)
            what = f"the clients of {len(task.segments)} short chains"
            return Activity(
                "train", what, worker.heard, task.round, samples=largest, slack=SIGN_OF_LIFE_SECONDS, warm=worker.warm
            )  # fmt: skip
        hops = [hop for hop in segment.chain.hops() if hop.index not in segment.absent]
        if worker.hops_done >= len(hops):
            return Activity("evaluate", "handing a model on", worker.heard, task.round)
        client = hops[worker.hops_done].client
        return Activity(
            "train", f"client '{names[client]}'", worker.heard, task.round, segment.index, client, int(sizes[client]),
            warm=worker.warm,
        )  # fmt: skip

    def replace(self, worker: RayHandle, cause: str | None = None, blameless: bool = False) -> WorkerGone:
        """See `Transport.replace`."""
        self.workers.remove(worker)
        self._end(worker)
        self._grow()
        return WorkerGone(cause or "its worker process died", blameless=blameless)

    def publish(self, state: ServerState, slots: frozenset[str] | None = None) -> Any:
        """A reference to the models of a state."""
        shown = slots or frozenset()
        if self._published is None or self._published[0] is not state or not shown <= self._published[1]:
            self._published = (state, shown, self._ray.put(PackedModels.of(state, shown)))
        return self._published[2]

    def close(self) -> None:
        """End all of them."""
        for worker in self.workers:
            self._end(worker)
        self.workers = []
        if self._sign is not None:
            self._sign[0].unlink(missing_ok=True)
        self.cluster.close()

    def _grow(self) -> None:
        """Start workers where there is room for more."""
        wanted = self._settings.workers or min(self._most, self.cluster.capacity())
        for _ in range(wanted - len(self.workers)):
            actor = self.cluster.start(_Actor, self._actor_setup)
            self._numbers += 1
            handle = RayHandle(self._numbers - 1, actor=actor, waiting=actor.facts.remote(), supply=self.supply)
            self.workers.append(handle)

    def _ready(self) -> list[RayHandle]:
        return [worker for worker in self.workers if worker.ready]

    def _greet(self, worker: RayHandle, facts: NodeFacts) -> None:
        ours = versions()
        odd = [f"{name} {facts.versions[name]} (here {ours[name]})" for name in ours if facts.versions.get(name) != ours[name]]
        if odd:
            raise RunFailed(f"the node {facts.host} has {', '.join(odd)}, which could change bits; have the same on all nodes.")
        self._failed_starts = 0
        worker.facts, worker.ready, worker.waiting = facts, True, None
        self._first_ready = self._first_ready or time.monotonic()
        self.supply.welcome(worker)

    def _someone(self) -> None:
        """See that there is somebody, or will be, and that every client's samples are at hand of somebody."""
        if not self.workers:
            self._grow()
        now = time.monotonic()
        if self._ready():
            self._nobody_since = None
        elif self._nobody_since is None:
            self._nobody_since = now
        elif now - self._nobody_since > NO_ROOM_SECONDS:
            raise RunFailed(
                f"the Ray cluster has had no node with room for a worker for {NO_ROOM_SECONDS / 60:.0f} minutes; go on with "
                f"`fedgsp resume` when it has."
            )
        elif not self.workers:
            time.sleep(TICK)
        everybody = all(worker.ready for worker in self.workers)
        if self.supply.orphans(self._ready()) and (everybody or time.monotonic() - self._first_ready > LATE):
            self.supply.adopt(self._ready())

    def _died(self, worker: RayHandle, error: BaseException) -> WorkerGone:
        with_node = worker.facts is not None and worker.facts.node not in self.cluster.nodes()
        self._failed_starts = 0 if worker.ready else self._failed_starts + 1
        if self._failed_starts >= MOST_FAILED_STARTS:
            raise RunFailed(f"workers cannot start on the Ray cluster: {last_line(error)}.").with_trace() from error
        return self.replace(worker, "its node is gone" if with_node else None, blameless=with_node)

    def _end(self, worker: RayHandle) -> None:
        self._ray.kill(worker.actor, no_restart=True)

    def _states(self, worker: RayHandle, versions: dict[int, str]) -> dict[str, Any]:
        """What clients have kept: names of files for a worker that sees their folder, else the states themselves."""
        store = self._setup.store
        if not versions or store is None or (worker.facts is not None and worker.facts.sees_states):
            return {}
        return {"client_versions": {}, "states": {client: pack(store.read(client, name)) for client, name in versions.items()}}

    def _written(self, output: ChainOutput, round_: int) -> dict[int, str]:
        """Put states that came over the wire where clients' states are kept."""
        store = self._setup.store
        if store is None:
            return {}
        return {client: store.write(client, round_, state) for client, state in output.states.items()}


class RayEngine(Scheduler):
    """Runs chains on a Ray cluster; `most` is how many workers could ever have a chain to train."""

    def __init__(
        self, setup: WorkerSetup, settings: RaySettings, most: int, limits: TimeLimits = TimeLimits()  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        super().__init__(setup, RayTransport(setup, settings, most), limits)


class _Actor(RayWorker):
    """The worker as Ray makes it: it finds out where it is and how to look references up."""

    def __init__(self, given: Any) -> None:
        import ray

        setup, files, sign = given
        super().__init__(setup, ray.get, ray.get_runtime_context().get_node_id(), files, sign)


def _put_sign(setup: WorkerSetup, settings: RaySettings) -> tuple[Path, str] | None:
    """A file in the folder of client states by which a worker can tell that it sees the same one."""
    if setup.store is None or settings.data in ("store", "shards"):
        return None
    setup.store.folder.mkdir(parents=True, exist_ok=True)
    text = f"{time.time_ns()}"
    path = setup.store.folder / f".seen-{text}.tmp"
    path.write_text(text)
    return path, text
