"""The workers of a run on Ray: started, handed tasks, heard, given samples, and replaced when they or their nodes die."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedgsp.core.errors import RunFailed
from fedgsp.engine.job import Job, Span
from fedgsp.engine.patience import At, Watch
from fedgsp.engine.ray.cluster import Cluster
from fedgsp.engine.ray.holdings import bare
from fedgsp.engine.ray.settings import RaySettings
from fedgsp.engine.ray.supply import Supply, last_line
from fedgsp.engine.ray.tasks import Beat, GatherTask, Hello, ScoreTask, Task, Walked, WalkTask
from fedgsp.engine.ray.worker import BEAT, RayWorker, versions
from fedgsp.engine.worker import Hopped, Scored

TICK = 0.5
"""Seconds after which a wait looks up: signals are heard in between."""
PATIENCE = 600.0
"""So long (seconds) a run waits for a cluster that has no room for any worker."""
MOST_FAILED_STARTS = 3
LATE = 15.0
"""Seconds after which samples are divided without waiting for workers that have not said hello."""
KINDS = {WalkTask: "train", ScoreTask: "evaluate", GatherTask: "train"}


@dataclass(eq=False)
class Member:
    """One worker, what it has at hand (`shards` None: everything), and what it is doing."""

    number: int
    actor: Any
    waiting: Any
    hello: Hello | None = None
    shards: frozenset[int] | None = frozenset()
    task: Task | None = None
    since: float = 0.0
    heard: float = 0.0
    told: int = 0
    warm: bool = False
    summed: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return f"worker {self.number}" if self.hello is None else f"process {self.hello.process} on node {self.hello.host}"


@dataclass(frozen=True)
class Died:
    """A worker is gone, in the midst of `task` if it had one; `summed` are the chains whose results it had added up."""

    task: Task | None
    summed: tuple[int, ...]
    cause: str
    with_node: bool


@dataclass(frozen=True)
class Lost:
    """What `task` was to go on from was on a node that is gone; the worker itself is well."""

    task: Task


@dataclass(frozen=True)
class Handed:
    """A walk is done; `batons` is a reference to what it hands on."""

    walked: Walked
    batons: Any


class Staff:
    """All workers. `most` is how many could have something to do."""

    def __init__(self, job: Job, settings: RaySettings, most: int, watch: Watch) -> None:
        self._job, self._settings, self._most, self.watch = job, settings, most, watch
        self.cluster = Cluster(settings)
        self._ray = self.cluster.ray
        self.members: list[Member] = []
        self.spans: list[Span] = []
        self.peaks: dict[str, int] = {}
        self._numbers = self._failed_starts = 0
        self._first_hello = 0.0
        self._nobody_since: float | None = None
        self._sign = _put_sign(job, settings)
        try:
            self.supply = Supply(job.data, self.cluster, settings)
            self._setup = self._ray.put((replace(job, data=bare(job.data)), self.supply.files, self._sign))
            self.grow()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all of them."""
        for member in self.members:
            self._end(member)
        self.members = []
        if self._sign is not None:
            self._sign[0].unlink(missing_ok=True)
        self.cluster.close()

    def grow(self) -> None:
        """Start workers where there is room for more."""
        wanted = self._settings.workers or min(self._most, self.cluster.capacity())
        for _ in range(wanted - len(self.members)):
            actor = self.cluster.start(_Remote, self._setup)
            self._numbers += 1
            self.members.append(Member(self._numbers - 1, actor, actor.hello.remote()))

    def ready(self) -> list[Member]:
        """Those that can work."""
        return [member for member in self.members if member.hello is not None]

    def idle(self) -> Iterator[Member]:
        """Who could be handed a task now."""
        return (member for member in self.members if member.hello is not None and member.task is None)

    def hand(self, member: Member, task: Task, baton: Any = None) -> None:
        """Hand a task to a member that is idle."""
        member.task, member.since, member.told = task, time.perf_counter(), 0
        member.heard = member.since
        if isinstance(task, WalkTask):
            member.waiting = member.actor.walk.options(num_returns="streaming").remote(task, baton)
        elif isinstance(task, ScoreTask):
            member.waiting = member.actor.score.remote(task)
        else:
            member.waiting = member.actor.gather.remote(task.round)

    def fetch(self, reference: Any) -> Any:
        """What is behind a reference; None if the node is gone that had it."""
        try:
            return self._ray.get(reference)
        except (self._ray.exceptions.ObjectLostError, self._ray.exceptions.RayActorError):
            return None

    def messages(self) -> Iterator[tuple[Member, Task | None, Any]]:
        """Wait for what workers say of their tasks, at most for a moment."""
        self._someone()
        yield from self._looked()
        waiting = [member for member in self.members if member.waiting is not None]
        if not waiting:
            return
        found, _ = self._ray.wait([member.waiting for member in waiting], num_returns=1, timeout=TICK, fetch_local=False)
        if not found:
            return
        member = next(one for one in waiting if one.waiting is found[0])
        self.members.append(self.members.pop(self.members.index(member)))  # the next wait looks at the others first
        task = member.task
        yield from ((member, task, message) for message in self._heard(member))

    def _heard(self, member: Member) -> Iterator[Any]:
        errors, task, member.heard = self._ray.exceptions, member.task, time.perf_counter()
        try:
            message = self._ray.get(next(member.waiting) if isinstance(task, WalkTask) else member.waiting)
            if isinstance(message, Hello):
                self._greet(member, message)
                return
            if isinstance(message, Walked):
                message = Handed(message, next(member.waiting))
        except (errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError) as error:
            yield self._bury(member, error)
            return
        except (errors.ObjectLostError, errors.RayTaskError, errors.GetTimeoutError) as error:
            cause = getattr(error, "cause", None)
            if task is None or (isinstance(error, errors.RayTaskError) and not isinstance(cause, errors.ObjectLostError)):
                where = "" if member.hello is None else f" on node {member.hello.host}"
                raise RunFailed(f"a worker{where} failed: {last_line(error)}.").with_trace() from error
            message = Lost(task)
        member.told += isinstance(message, Hopped)
        member.warm |= isinstance(message, (Hopped, Beat, Handed))
        if isinstance(message, Beat):
            return
        if not isinstance(message, Hopped):
            self._done(member, message)
        yield message

    def _looked(self) -> Iterator[tuple[Member, Task | None, Died]]:
        """Now and then: who has been at one thing for too long is spoken of, and replaced if there is a limit."""
        if not self.watch.due():
            return
        silent = [one for one in self.members if one.task is not None and time.perf_counter() - one.heard > TICK]
        if not silent:
            return
        speaking, _ = self._ray.wait([one.waiting for one in silent], num_returns=len(silent), timeout=0, fetch_local=False)
        for member in silent:
            if member.task is None or any(member.waiting is one for one in speaking):
                continue
            cause = self.watch.overdue(str(member), self._at(member, member.task))
            if cause is not None:
                yield member, member.task, self._replaced(member, cause)

    def _at(self, member: Member, task: Task) -> At:
        if not isinstance(task, WalkTask):
            return At("evaluate", "an evaluation" if isinstance(task, ScoreTask) else "its sums", member.heard, task.round)
        leg, sizes, names = task.legs[0], self._job.data.train.sizes, self._job.data.clients
        slack = 0.0 if member.warm else self.watch.patience.warm_up
        if len(task.legs) > 1:
            largest = max(int(sizes[client]) for leg in task.legs for client in leg.chain.clients)
            what = f"the clients of {len(task.legs)} short chains"
            return At("train", what, member.heard, task.round, samples=largest, slack=slack + BEAT)
        stops = [stop for stop in leg.chain.stops() if stop.hop not in leg.absent]
        if member.told >= len(stops):
            return At("evaluate", "handing a model on", member.heard, task.round)
        client = stops[member.told].client
        return At("train", f"client '{names[client]}'", member.heard, task.round, leg.index, client, int(sizes[client]), slack)

    def _done(self, member: Member, message: Any) -> None:
        assert member.task is not None
        kind = KINDS[type(member.task)]
        self.spans.append(Span(member.number, kind, member.task.label(), member.since, time.perf_counter()))
        told = message.walked if isinstance(message, Handed) else message
        if isinstance(told, Scored):
            self.watch.scored(time.perf_counter() - member.since)
        if isinstance(told, (Walked, Scored)):
            self.peaks[f"worker {member.number}"] = told.peak_memory
        member.task = member.waiting = None

    def _greet(self, member: Member, hello: Hello) -> None:
        ours = versions()
        odd = [f"{name} {hello.versions[name]} (here {ours[name]})" for name in ours if hello.versions.get(name) != ours[name]]
        if odd:
            raise RunFailed(f"the node {hello.host} has {', '.join(odd)}, which could change bits; have the same on all nodes.")
        self._failed_starts = 0
        member.hello, member.waiting = hello, None
        self._first_hello = self._first_hello or time.monotonic()
        self.supply.welcome(member)

    def _someone(self) -> None:
        """See that there is somebody, or will be, and that every client's samples are at hand of somebody."""
        if not self.members:
            self.grow()
        now = time.monotonic()
        if self.ready():
            self._nobody_since = None
        elif self._nobody_since is None:
            self._nobody_since = now
        elif now - self._nobody_since > PATIENCE:
            raise RunFailed(
                f"the Ray cluster has had no node with room for a worker for {PATIENCE / 60:.0f} minutes; go on with "
                f"`fedgsp resume` when it has."
            )
        elif not self.members:
            time.sleep(TICK)
        everybody = all(member.hello is not None for member in self.members)
        if self.supply.orphans(self.ready()) and (everybody or time.monotonic() - self._first_hello > LATE):
            self.supply.adopt(self.ready())

    def _bury(self, member: Member, error: BaseException) -> Died:
        self.members.remove(member)
        with_node = member.hello is not None and member.hello.node not in self.cluster.nodes()
        started = member.hello is not None
        self._failed_starts = 0 if started else self._failed_starts + 1
        if self._failed_starts >= MOST_FAILED_STARTS:
            raise RunFailed(f"workers cannot start on the Ray cluster: {last_line(error)}.").with_trace() from error
        self._end(member)
        cause = "its node is gone" if with_node else "its worker process died"
        self.grow()
        return Died(member.task, tuple(member.summed), cause, with_node)

    def dismiss(self, member: Member) -> Died:
        """End a worker whose sum cannot be used: what it had added up is done again, and counts against no client."""
        self.members.remove(member)
        self._end(member)
        self.grow()
        return Died(None, tuple(member.summed), "the sum that had it was given up", with_node=True)

    def _replaced(self, member: Member, cause: str) -> Died:
        """End a worker that hangs, and start another."""
        self.members.remove(member)
        self._end(member)
        self.grow()
        return Died(member.task, tuple(member.summed), cause, with_node=False)

    def _end(self, member: Member) -> None:
        self._ray.kill(member.actor, no_restart=True)


class _Remote(RayWorker):
    """The worker as Ray makes it: it finds out where it is and how to look references up."""

    def __init__(self, setup: Any) -> None:
        import ray

        job, files, sign = setup
        super().__init__(job, ray.get, ray.get_runtime_context().get_node_id(), files, sign)


def _put_sign(job: Job, settings: RaySettings) -> tuple[Path, str] | None:
    """A file in the folder of client states by which a worker can tell that it sees the same one."""
    if job.store is None or settings.data in ("store", "shards"):
        return None
    job.store.folder.mkdir(parents=True, exist_ok=True)
    text = f"{time.time_ns()}"
    path = job.store.folder / f".seen-{text}.tmp"
    path.write_text(text)
    return path, text
