"""Worker processes and their wires: started, handed tasks, heard, replaced when they die. What tasks mean is the pool's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from fedgsp.core.blame import RemoteTraceback
from fedgsp.core.errors import RunFailed
from fedgsp.engine.job import Span
from fedgsp.engine.share import Region
from fedgsp.engine.worker import NO_START, Broke, Hopped, Ready, Scored, ScoreTask, Training, Walked, WalkTask

MOST_ATTEMPTS = 3


@dataclass
class Member:
    """One process, its ends of the wires, and what it is doing."""

    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]
    lifeline: int
    outbox: Region
    ready: bool = False
    slot: int = 0
    task: WalkTask | ScoreTask | None = None
    since: float = 0.0
    client: int | None = None

    def kill(self) -> None:
        """End it; it holds nothing that could be lost."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        os.close(self.lifeline)
        self.outbox.close()


@dataclass(frozen=True)
class Died:
    """A worker is gone, in the midst of `task` if it had one."""

    task: WalkTask | ScoreTask | None
    client: int | None
    cause: str


class Crew:
    """`size` workers that are set up by the bytes `setup` and inherit some descriptors."""

    def __init__(self, size: int, setup: bytes, boards: list[int], others: list[int]) -> None:
        self._setup, self._boards, self._others = setup, boards, others
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

    def idle(self) -> Iterator[Member]:
        """Who could be handed a task now."""
        return (member for member in self.members if member.ready and member.task is None)

    def hand(self, member: Member, task: WalkTask | ScoreTask) -> None:
        """Hand a task to a member that is idle."""
        member.task, member.client, member.since = task, None, time.perf_counter()
        with suppress(OSError):  # should it have died, its end of the wire says so in the next wait
            member.connection.send(task)

    def messages(self) -> Iterator[tuple[Member, Any]]:
        """Wait for what workers say; the dead are replaced and reported."""
        by_connection = {member.connection: member for member in self.members}
        for connection in wait(list(by_connection)):
            member = by_connection[connection]  # type: ignore[index]
            try:
                message = member.connection.recv()
            except (EOFError, OSError):
                yield member, self._bury(member)
                continue
            if isinstance(message, Ready):
                member.ready = True
            elif isinstance(message, Training):
                member.client = message.client
            elif isinstance(message, Broke) and message.index == NO_START:
                said = f"a worker could not start: {message.error}."
                raise RunFailed(said).with_trace() from RemoteTraceback(message.trace)
            else:
                if isinstance(message, (Walked, Scored)):
                    self.peaks[f"worker {self.members.index(member)}"] = message.peak_memory
                if not isinstance(message, Hopped):
                    self._done(member)
                yield member, message

    def _done(self, member: Member) -> None:
        kind = "evaluate" if isinstance(member.task, ScoreTask) else "train"
        label = member.task.label() if member.task is not None else ""
        self.spans.append(Span(self.members.index(member), kind, label, member.since, time.perf_counter()))
        member.task = None

    def _start(self) -> Member:
        ours, theirs = socket.socketpair()
        watch, lifeline = os.pipe()
        outbox = Region()
        inherited = [theirs.fileno(), watch, *self._boards, outbox.descriptor]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }
        process = subprocess.Popen(
            [sys.executable, "-c", f"from fedgsp.engine.worker import main; main{tuple(inherited)}"],
            pass_fds=[*inherited, *self._others],
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C reaches the parent only
        )
        theirs.close()
        os.close(watch)
        connection: Connection[Any, Any] = Connection(ours.detach())
        member = Member(process, connection, lifeline, outbox)
        with suppress(OSError):  # should it die at once, the first wait finds out
            connection.send_bytes(self._setup)
        return member

    def _bury(self, member: Member) -> Died:
        task, client, started = member.task, member.client, member.ready
        member.kill()
        cause = _cause_of_death(member.process.returncode)
        self._failed_starts = 0 if started else self._failed_starts + 1
        if self._failed_starts >= MOST_ATTEMPTS:
            raise RunFailed(f"worker processes cannot start: {cause}.")
        self.members[self.members.index(member)] = self._start()
        return Died(task, client, cause)


def _cause_of_death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its worker process was killed (signal 9), as the system does when memory runs out"
    if code < 0:
        return f"its worker process died of signal {-code}"
    return f"its worker process ended with code {code}"
