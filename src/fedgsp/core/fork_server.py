"""A process that has imported what its children need, and forks one whenever it is asked to: the server's side.

It has one thread and holds no lock, so a child inherits neither. What a child finds is what its asker has at that moment:
folder, environment, search path, limits, standard output. It ends when its asker does: the kernel closes the socket even after
`kill -9`.
`core/forked.py` is the asker's side.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import io
import os
import pickle
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fedgsp.core.imports import search_path, settle, shadowed, standard_first

IDLE_SECONDS = 120.0
"""A server without children that is asked for nothing for so long ends: it holds the memory of its imports."""
MOST_DESCRIPTORS = 253
"""The kernel hands over no more at once."""
NO_FORK = 71
"""The exit code of a server that has threads of its own, and must not fork."""
LIMITS = (
    "RLIMIT_AS",
    "RLIMIT_CORE",
    "RLIMIT_CPU",
    "RLIMIT_DATA",
    "RLIMIT_FSIZE",
    "RLIMIT_NOFILE",
    "RLIMIT_NPROC",
    "RLIMIT_STACK",
)


@dataclass(frozen=True)
class Surroundings:
    """What a process has from whoever starts it."""

    folder: str | None
    environment: dict[str, str]
    path: list[str]
    settled: list[str]
    umask: int
    priority: int
    processors: frozenset[int]
    limits: dict[str, tuple[int, int]]

    @classmethod
    def here(cls, environment: dict[str, str]) -> Surroundings:
        """This process's, but for the environment."""
        status = Path("/proc/self/status").read_text()  # asking `os.umask` would change it for our other threads
        mask = next((int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:")), 0o022)
        path = search_path()
        folder = None
        with suppress(OSError):  # it may have been removed
            folder = str(Path.cwd())
        limits = {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS if hasattr(resource, name)}
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        return cls(folder, environment, path, shadowed(path), mask, priority, frozenset(os.sched_getaffinity(0)), limits)

    def enter(self) -> None:
        """Make them those of this process. The path comes last, and modules that a file could stand in for before it."""
        if self.folder is not None:
            with suppress(OSError):
                os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        os.umask(self.umask)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, self.priority)
        with suppress(OSError):
            os.sched_setaffinity(0, self.processors)
        for name, limit in self.limits.items():
            with suppress(OSError, ValueError):
                resource.setrlimit(getattr(resource, name), limit)
        importlib.invalidate_caches()
        sys.path[:] = standard_first(self.path)
        settle(self.settled)
        sys.path[:] = self.path


@dataclass(frozen=True)
class ForkOrder:
    """One child: `function` of `module` with `arguments`; it has descriptors by the `numbers` that they have with the asker."""

    module: str
    function: str
    arguments: tuple[Any, ...]
    numbers: tuple[int, ...]
    surroundings: Surroundings


class ForkServer:
    """Waits for orders and for the ends of children."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """By the descriptor of the child: its number, and whom to tell of its end."""

    def serve(self) -> None:
        """Until the asker is gone, or has not asked for long."""
        while True:
            poll = select.poll()
            for descriptor in (self._orders.fileno(), *self._children):
                poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(None if self._children else IDLE_SECONDS * 1000)}
            for descriptor in ready & self._children.keys():
                self._ended(descriptor)
            if not ready or (self._orders.fileno() in ready and not self._ordered()):
                return

    def _ordered(self) -> bool:
        flags = socket.MSG_CMSG_CLOEXEC
        message, descriptors, _, _ = socket.recv_fds(self._orders, 1, MOST_DESCRIPTORS, flags)
        if not message:
            return False
        content, control, *given = descriptors
        with os.fdopen(content, "rb") as file:
            order: ForkOrder = pickle.load(file)
        told = socket.socket(fileno=control)
        if len(list(Path("/proc/self/task").iterdir())) > 1:
            sys.exit(NO_FORK)
        number = os.fork()
        if number == 0:
            others = [self._orders.detach(), told.detach()]
            for descriptor, (_, asker) in self._children.items():
                others += [descriptor, asker.detach()]
            _child(order, given, others)
        for descriptor in given:
            os.close(descriptor)
        handle = os.pidfd_open(number)
        self._children[handle] = number, told
        with suppress(OSError):  # the asker may have changed its mind
            socket.send_fds(told, [str(number).encode()], [handle])
        return True

    def _ended(self, handle: int) -> None:
        number, told = self._children.pop(handle)
        _, status = os.waitpid(number, 0)
        os.close(handle)
        with told, suppress(OSError):
            told.send(str(os.waitstatus_to_exitcode(status)).encode())


def serve(descriptor: int) -> None:
    """A server's whole life, from when it has imported what its children need.

    Args:
        descriptor: The inherited socket over which orders come.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the asker's business
    with Path(os.devnull).open("wb", buffering=0) as nowhere:  # whoever reads what was printed need not wait for our end
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    gc.collect()
    gc.freeze()  # children share these pages as long as nobody counts through them
    ForkServer(socket.socket(fileno=descriptor)).serve()


def _child(order: ForkOrder, given: Sequence[int], others: Sequence[int]) -> NoReturn:
    code = 1
    try:
        os.setsid()  # a terminal's Ctrl-C reaches the asker only
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor in others:
            os.close(descriptor)
        _renumber(given, order.numbers)
        order.surroundings.enter()
        _refresh()
        call: Callable[..., object] = getattr(importlib.import_module(order.module), order.function)
        call(*order.arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _renumber(given: Sequence[int], wanted: Sequence[int]) -> None:
    """Descriptors by the numbers that they had elsewhere; only the standard ones are handed on to programs."""
    above = max([*wanted, *given, 2]) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in given]
    for descriptor in given:
        os.close(descriptor)
    for descriptor, number in zip(moved, wanted, strict=True):
        os.dup2(descriptor, number, inheritable=number <= 2)
        os.close(descriptor)


def _refresh() -> None:
    """What is otherwise settled when Python starts: where lines end on a screen, and NumPy's own generator."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=number == 2 or os.isatty(number))
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
