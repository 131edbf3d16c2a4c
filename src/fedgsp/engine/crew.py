"""Worker processes and their wires: started, handed tasks, heard, replaced when they die. What tasks mean is the pool's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from fedgsp.core.blame import RemoteTraceback
from fedgsp.core.children import python
from fedgsp.core.errors import RunFailed
from fedgsp.data.federated import FederatedData
from fedgsp.engine.job import Span
from fedgsp.engine.patience import At, Watch
from fedgsp.engine.share import Pulse, Region, shared_bytes
from fedgsp.engine.worker import NO_START, Broke, Hopped, Ready, Scored, ScoreTask, Walked, WalkTask

MOST_ATTEMPTS = 3
KILL_SECONDS = 10.0
"""So long a killed process is waited for: one that the system holds (a dead network disk) may never end."""


@dataclass
class Member:
    """One process, its ends of the wires, and what it is doing."""

    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]
    lifeline: int
    outbox: Region
    pulse: Pulse
    ready: bool = False
    slot: int = 0
    task: WalkTask | ScoreTask | None = None
    since: float = field(default_factory=time.perf_counter)
    warm: bool = False
    ended: bool = False

    def __str__(self) -> str:
        return f"process {self.process.pid}"

    def at(self) -> tuple[int | None, int | None, float]:
        """(the task's number, the client, since when) of what it is at, or will be at first."""
        number, client, since = self.pulse.read()
        if since >= self.since and self.task is not None:
            return number, client, since
        if isinstance(self.task, WalkTask):
            return self.task.walks[0].index, self.task.walks[0].chain.clients[0], self.since
        return None, None, self.since

    def kill(self) -> None:
        """End it, once; it holds nothing that could be lost."""
        if self.ended:
            return
        self.ended = True
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_SECONDS)
        self.connection.close()
        os.close(self.lifeline)
        self.outbox.close()
        self.pulse.close()


@dataclass(frozen=True)
class Died:
    """A worker is gone, in the midst of `task` if it had one: of its chain `chain`, at `client`."""

    task: WalkTask | ScoreTask | None
    chain: int | None
    client: int | None
    cause: str


class Crew:
    """`size` workers that are set up by the bytes `setup` and inherit some descriptors."""

    def __init__(
        self, size: int, setup: bytes, boards: list[int], others: list[int], watch: Watch, data: FederatedData
    ) -> None:  # fmt: skip
        self._setup, self._boards, self._others = shared_bytes(setup), boards, others
        self._watch, self._data = watch, data
        self.members: list[Member] = []
        self.peaks: dict[str, int] = {}
        self.spans: list[Span] = []
        self._failed_starts = 0
        try:
            for _ in range(size):
                self.members.append(self._start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all of them."""
        for member in self.members:
            member.kill()
        self.members = []
        if self._setup >= 0:
            os.close(self._setup)
            self._setup = -1

    def idle(self) -> Iterator[Member]:
        """Who could be handed a task now."""
        return (member for member in self.members if member.ready and member.task is None)

    def hand(self, member: Member, task: WalkTask | ScoreTask) -> None:
        """Hand a task to a member that is idle."""
        member.task, member.since = task, time.perf_counter()
        with suppress(OSError):  # should it have died, its end of the wire says so in the next wait
            member.connection.send(task)

    def messages(self) -> Iterator[tuple[Member, Any]]:
        """Wait for what workers say, at most for a moment; the dead are replaced and reported, as are those that hang."""
        by_connection = {member.connection: member for member in self.members}
        for connection in wait(list(by_connection), timeout=self._watch.patience.tick):
            member = by_connection[connection]  # type: ignore[index]
            try:
                message = member.connection.recv()
            except (EOFError, OSError):
                yield member, self._bury(member)
                continue
            if isinstance(message, Ready):
                member.ready = True
            elif isinstance(message, Broke) and message.index == NO_START:
                said = f"a worker could not start: {message.error}."
                raise RunFailed(said).with_trace() from RemoteTraceback(message.trace)
            else:
                if isinstance(message, (Walked, Scored)):
                    self.peaks[f"worker {self.members.index(member)}"] = message.peak_memory
                member.warm |= isinstance(message, (Hopped, Walked))
                if not isinstance(message, Hopped):
                    self._done(member)
                yield member, message
        yield from self._looked()

    def _looked(self) -> Iterator[tuple[Member, Died]]:
        """Now and then: who has been at one thing for too long is spoken of, and replaced if there is a limit."""
        if not self._watch.due():
            return
        for member in list(self.members):
            if member.connection.poll() or (member.ready and member.task is None):  # it has said something, or nothing to do
                continue
            cause = self._watch.overdue(str(member), self._at(member))
            if cause is not None:
                yield member, self._bury(member, cause)

    def _at(self, member: Member) -> At:
        number, client, since = member.at()
        task = member.task
        if task is None:
            return At("start", "its start", since)
        name = None if client is None else f"client '{self._data.clients[client]}'"
        if isinstance(task, ScoreTask):
            return At("evaluate", f"the evaluation of {name}" if name else "an evaluation", since, task.round, None, client)
        assert client is not None
        slack = 0.0 if member.warm else self._watch.patience.warm_up
        return At("train", str(name), since, task.round, number, client, int(self._data.train.sizes[client]), slack)

    def _done(self, member: Member) -> None:
        kind = "evaluate" if isinstance(member.task, ScoreTask) else "train"
        label = member.task.label() if member.task is not None else ""
        now = time.perf_counter()
        if isinstance(member.task, ScoreTask):
            self._watch.scored(now - member.since)
        self.spans.append(Span(self.members.index(member), kind, label, member.since, now))
        member.task = None

    def _start(self) -> Member:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        try:
            with ExitStack() as ours, ExitStack() as theirs:  # ours stay open if it starts, theirs are the child's
                here, there = socket.socketpair()
                ours.callback(here.close)
                theirs.callback(there.close)
                watch, lifeline = os.pipe()
                theirs.callback(os.close, watch)
                ours.callback(os.close, lifeline)
                outbox = Region()
                ours.callback(outbox.close)
                pulse = Pulse()
                ours.callback(pulse.close)
                inherited = [there.fileno(), watch, self._setup, *self._boards, outbox.descriptor, pulse.descriptor]
                process = subprocess.Popen(
                    python("fedgsp.engine.worker", f"main{tuple(inherited)}"),
                    pass_fds=[*inherited, *self._others],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # a terminal's Ctrl-C reaches the parent only
                )
                ours.pop_all()
        except OSError as error:
            raise RunFailed(f"worker processes cannot start: {error.strerror or error}.") from error
        connection: Connection[Any, Any] = Connection(here.detach())
        return Member(process, connection, lifeline, outbox, pulse)

    def _bury(self, member: Member, cause: str | None = None) -> Died:
        task, started = member.task, member.ready
        number, client, _ = member.at()
        chain = number if isinstance(task, WalkTask) else None
        member.kill()
        cause = cause or _cause_of_death(member.process.returncode)
        self._failed_starts = 0 if started else self._failed_starts + 1
        if self._failed_starts >= MOST_ATTEMPTS:
            raise RunFailed(
                f"worker processes cannot start, {self._failed_starts} in a row: {cause}; what they printed may say why."
            )
        self.members[self.members.index(member)] = self._start()
        return Died(task, chain, client, cause)


def _cause_of_death(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "its worker process was killed (signal 9), as the system does when memory runs out"
    if code is None:
        return "its worker process is gone"
    if code < 0:
        return f"its worker process died of signal {-code}"
    return f"its worker process ended with code {code}"
