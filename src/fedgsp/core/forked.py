"""Processes that are forked by a server which has imported what they need: the asker's side of `core/fork_server.py`.

The server is a program of its own, so scripts need no main guard, notebooks work, and no lock or thread of ours is inherited.
It is started with the first process, or before (`prepare`), and kept, so the next cost next to nothing.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from fedgsp.core.fork_server import IDLE_SECONDS, NO_FORK, ForkOrder, Surroundings
from fedgsp.core.imports import python

READ_AT_IMPORT = (
    "ATEN", "CUDA", "FEDGSP_", "GOMP_", "KMP_", "LANG", "LC_", "LD_", "MKL_", "OMP_", "OPENBLAS", "PYTHON", "PYTORCH", "TORCH",
)  # fmt: skip
"""Variables that libraries may read when they are imported begin so: a server is good for one setting of them."""
ANSWER_SECONDS = 10.0
START_SECONDS = 120.0
MOST_UNBORN = 16
"""So many may be asked for before the server has forked the first: the kernel holds only so many descriptors under way."""
FORK = True
"""Whether processes are forked where that is possible."""


class Process(Protocol):
    """What is needed of a process, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def returncode(self) -> int | None:
        """How it ended, if that is known."""

    def kill(self) -> None:
        """End it at once."""

    def wait(self, timeout: float | None = None) -> int | None:
        """Until it has ended."""


class Server:
    """A running fork server."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with there:
                self.process = subprocess.Popen(
                    python(module, f"serve({there.fileno()})"), pass_fds=[there.fileno()], env=dict(environment),
                    stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
        except OSError:
            here.close()
            raise
        self._begin(here)

    def _begin(self, orders: socket.socket) -> None:
        orders.settimeout(ANSWER_SECONDS)
        self._orders = orders
        self.used = time.monotonic()
        self.has_forked = False
        self.children: set[ForkedProcess] = set()

    @property
    def usable(self) -> bool:
        """Whether it is there, and will not just now end because nobody asked."""
        there = self._orders.fileno() >= 0 and self.process.poll() is None
        return there and (bool(self.children) or time.monotonic() - self.used < IDLE_SECONDS / 2)

    def order(self, order: ForkOrder, descriptors: Sequence[int]) -> socket.socket:
        """Ask for a child; what is heard of it comes over the socket that is given back."""
        self.used = time.monotonic()
        content = os.memfd_create("fedgsp-order", os.MFD_CLOEXEC)
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with there, os.fdopen(os.dup(content), "wb") as file:
                pickle.dump(order, file)
                file.flush()
                os.lseek(content, 0, os.SEEK_SET)
                with suppress(BrokenPipeError, ConnectionResetError):  # it is gone: the end of the socket will say so
                    socket.send_fds(self._orders, [b"1"], [content, there.fileno(), *descriptors])
        except BaseException:
            here.close()
            raise
        finally:
            os.close(content)
        return here

    def forget(self) -> None:
        """Close what is ours of it, in a process that is not the one that started it."""
        self._orders.close()

    def end(self) -> None:
        """Kill it; its children live on."""
        self._orders.close()
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(ANSWER_SECONDS)


class ForkedProcess:
    """A child of a server, with what is needed of `subprocess.Popen`. One that is not born yet goes by its server's number."""

    def __init__(self, server: Server, control: socket.socket) -> None:
        self._server, self._control = server, control
        self._number: int | None = None
        self._handle = -1
        self._doomed = False
        self.returncode: int | None = None
        server.children.add(self)

    @property
    def pid(self) -> int:
        """Its number, or that of the server that has not forked it yet."""
        self._hear(0.0)
        return self._server.process.pid if self._number is None else self._number

    def kill(self) -> None:
        """End it at once, or when it is born; a server that has not forked anything yet is ended instead."""
        self._doomed = True
        self._hear(0.0)
        self._kill()
        if self._number is None and self.returncode is None and not self._server.has_forked:
            self._server.end()

    def born(self, seconds: float | None = None) -> int:
        """Its number, when it has one; that of its server, should that not come to it or take longer."""
        if self._number is None:
            self._hear(seconds)
        return self.pid

    def wait(self, timeout: float | None = None) -> int | None:
        """Until it has ended, at most so long; then nothing of it is held any more."""
        end = None if timeout is None else time.monotonic() + timeout
        left = timeout
        while self._control.fileno() >= 0 and (left is None or left >= 0):
            self._hear(left)
            left = None if end is None else end - time.monotonic()
        ended = self._handle < 0 or _readable(self._handle, left)  # else the server is gone, and how it ended nobody knows
        self.close()
        if not ended or (self._number is None and self.returncode is None):
            raise subprocess.TimeoutExpired(f"process {self._number}", timeout or 0.0)
        return self.returncode

    def close(self) -> None:
        """Give back what is held of it."""
        if self in self._server.children:
            self._server.children.discard(self)
            self._server.used = time.monotonic()  # it has begun to be idle
        self._control.close()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _hear(self, seconds: float | None) -> None:
        """What the server says: the number of the child, later its end."""
        while self._control.fileno() >= 0 and _readable(self._control.fileno(), seconds):
            seconds = 0.0
            message, descriptors, _, _ = socket.recv_fds(self._control, 16, 1, socket.MSG_CMSG_CLOEXEC)
            if descriptors:
                self._number, self._server.has_forked = int(message), True
                (self._handle,) = descriptors
                if self._doomed:
                    self._kill()
            elif message:
                self.returncode = int(message)
                self.close()
            else:
                self._control.close()
                if self._number is None:  # the server ended before it could fork
                    with suppress(subprocess.TimeoutExpired):  # first as it ends by itself, for its code
                        self.returncode = self._server.process.wait(ANSWER_SECONDS)
                    self._server.end()

    def _kill(self) -> None:
        if self._handle >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)


def _readable(descriptor: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else max(0.0, seconds) * 1000))


class _Servers:
    """Those of this process, by what they are good for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[object, ...], Server] = {}
        self.forking = sys.platform == "linux" and hasattr(os, "pidfd_open")

    def get(self, module: str, environment: Mapping[str, str]) -> Server:
        key = _key(module, environment)
        with self._lock:
            for dead in [one for one, server in self._found.items() if not server.usable]:
                server = self._found.pop(dead)
                server.end()
                self.forking = self.forking and server.process.returncode != NO_FORK
            if key not in self._found:
                self._found[key] = Server(module, environment)
            self._found[key].used = time.monotonic()
            return self._found[key]

    def add(self, module: str, environment: Mapping[str, str], server: Server) -> None:
        self._found[_key(module, environment)] = server

    def end(self) -> None:
        while self._found:
            self._found.popitem()[1].end()

    def forget(self) -> None:
        """After a fork of ours: they are our parent's."""
        self._lock = threading.Lock()
        while self._found:
            self._found.popitem()[1].forget()


def _key(module: str, environment: Mapping[str, str]) -> tuple[object, ...]:
    read = frozenset((name, value) for name, value in environment.items() if name.startswith(READ_AT_IMPORT))
    return module, sys.executable, read


_SERVERS = _Servers()
atexit.register(_SERVERS.end)
os.register_at_fork(after_in_child=_SERVERS.forget)


def prepare(module: str, environment: Mapping[str, str]) -> bool:
    """Start the server of a module's processes before the first of them is wanted.

    Args:
        module: As for `start`.
        environment: As for `start`; variables that libraries read when they are imported decide which server it is.

    Returns:
        Whether there is one: not where nothing is forked, or where it cannot be started.
    """
    if not (_SERVERS.forking and FORK):
        return False
    try:
        _SERVERS.get(module, environment)
    except OSError:  # whoever wants a process is told why
        return False
    return True


def start(
    module: str, function: str, arguments: tuple[int | str, ...], descriptors: Sequence[int], environment: Mapping[str, str]
) -> Process:
    """Start a process that calls a function of a module; standard output and error are ours.

    Where forking is not possible (libraries of other systems do not bear it, and some start threads when they are imported),
    it is a program of its own that imports everything itself.

    Args:
        module: One that has `serve` of `core/fork_server.py` among its names; importing it is what is saved.
        function: One of its functions.
        arguments: What it is called with.
        descriptors: What it inherits, by the same numbers.
        environment: What it finds in `os.environ`.

    Returns:
        The process.

    Raises:
        OSError: It cannot be started.
    """
    if not (_SERVERS.forking and FORK):
        command = python(module, f"{function}{arguments!r}")
        return subprocess.Popen(
            command, pass_fds=descriptors, env=dict(environment), stdin=subprocess.DEVNULL, start_new_session=True
        )
    server = _SERVERS.get(module, environment)
    if not server.has_forked and len(server.children) >= MOST_UNBORN:
        next(iter(server.children)).born(START_SECONDS)
    numbers = [*(number for number in (1, 2) if _is_open(number)), *descriptors]
    order = ForkOrder(module, function, arguments, tuple(numbers), Surroundings.here(dict(environment)))
    return ForkedProcess(server, server.order(order, numbers))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
