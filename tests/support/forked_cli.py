"""The command line in processes that are forked from one which has imported it: a torch is imported once, not for each of them.

They are real processes, with sessions, signals, exit codes and workers of their own; `main` begins as it does in a new Python.
Tests about the start of a program, or about what it has imported, start one.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

import fedgsp.api
import fedgsp.cli.main
import fedgsp.engine.transports.process_worker
import fedgsp.run.run
from fedgsp.core import forked
from fedgsp.core.fork_server import ForkServer, serve

__all__ = ["Command", "call", "run", "serve"]
WORKER = "fedgsp.engine.transports.process_worker"
MATH = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ForkedServer(forked.Server):
    """A server that this process has forked itself, which saves what it would import."""

    def __init__(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            here.close()
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for number in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            ForkServer(there).serve()
            os._exit(0)
        there.close()
        self.process = _Child(pid)  # type: ignore[assignment]
        self._begin(here)


class _Child:
    """What is needed of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None  # type: ignore[assignment]
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int | None:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])  # type: ignore[assignment]
        return self.returncode


def call(folder: str, out: int, err: int, *arguments: str) -> None:
    """In the child: the command line, whose workers are forked off it while it has no thread."""
    os.chdir(folder)
    for descriptor, number in ((out, 1), (err, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    forked._SERVERS.add(WORKER, {**os.environ, **MATH}, ForkedServer())
    sys.argv = ["fedgsp", *arguments]
    try:
        fedgsp.cli.main.main()
    finally:  # as Python does when it ends
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()


class Command:
    """A command under way, as `subprocess.Popen` would have it, with its output in files."""

    def __init__(self, *arguments: str, cwd: str | Path | None = None) -> None:
        self._files: tuple[IO[str], IO[str]] = (tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+"))  # noqa: SIM115
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **MATH}
        out, err = (file.fileno() for file in self._files)
        words: tuple[int | str, ...] = (str(cwd or Path.cwd()), out, err, *arguments)
        found = forked.start("tests.support.forked_cli", "call", words, [out, err], environment)
        assert isinstance(found, forked.ForkedProcess)
        self._process = found
        self.pid = found.born()

    def poll(self) -> int | None:
        """How it ended, if it did."""
        self._process.pid  # noqa: B018 - hears what there is
        return self._process.returncode

    def kill(self) -> None:
        """As `kill -9` does."""
        self._process.kill()

    def send_signal(self, number: int) -> None:
        """Any other."""
        os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended."""
        code = self._process.wait(timeout)
        assert code is not None
        return code

    @property
    def returncode(self) -> int | None:
        """How it ended."""
        return self._process.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait, and what it printed."""
        self.wait(timeout)
        said = []
        for file in self._files:
            file.seek(0)
            said.append(file.read())
            file.close()
        return said[0], said[1]


def run(*arguments: str, cwd: str | Path | None = None, timeout: float = 600.0) -> subprocess.CompletedProcess[str]:
    """A whole command."""
    command = Command(*arguments, cwd=cwd)
    try:
        out, err = command.communicate(timeout)
    except BaseException:
        command.kill()
        raise
    assert command.returncode is not None
    return subprocess.CompletedProcess(["fedgsp", *arguments], command.returncode, out, err)
