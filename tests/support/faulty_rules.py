"""Local rules that misbehave on purpose, importable by worker processes."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from fedgsp.client import SGD, LocalContext


def in_worker() -> bool:
    """Whether this is a worker process: kernels are tried out in the test's own, which should live."""
    return "pytest" not in sys.modules


@dataclass(frozen=True, kw_only=True)
class Raises(SGD):
    """Raises at one client."""

    at: int = 0

    def begin(self, ctx: LocalContext) -> None:
        """Fail if it is the one."""
        if ctx.client == self.at:
            raise ZeroDivisionError("a bug in a rule")


@dataclass(frozen=True, kw_only=True)
class Dies(SGD):
    """Kills its own process at one client, as the system's out-of-memory killer would; once, if `once` names a file."""

    at: int = 0
    once: str = ""

    def begin(self, ctx: LocalContext) -> None:
        """Die if it is the one."""
        if in_worker() and ctx.client == self.at and not (self.once and Path(self.once).exists()):
            if self.once:
                Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)


def die_once(flag: str) -> None:
    """Kill this process, unless the file `flag` says that it was done before."""
    if not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class RaisesFrom(SGD):
    """Raises at every client from a round on."""

    round_: int = 1

    def begin(self, ctx: LocalContext) -> None:
        """Fail if it is time."""
        if ctx.round >= self.round_:
            raise ZeroDivisionError("a bug that shows late")


def stop_once(flag: str) -> None:
    """Stop this process as SIGSTOP does, unless the file `flag` says that it was done before; without a flag, always."""
    if flag and Path(flag).exists():
        return
    if flag:
        Path(flag).write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


@dataclass(frozen=True, kw_only=True)
class Stops(SGD):
    """Stops its own process at one client, as a debugger or a dead disk would; once, if `once` names a file."""

    at: int = 0
    once: str = ""

    def begin(self, ctx: LocalContext) -> None:
        """Stop if it is the one."""
        if in_worker() and ctx.client == self.at:
            stop_once(self.once)


@dataclass(frozen=True, kw_only=True)
class RaisesOnce(SGD):
    """Raises at one client, the first time."""

    at: int = 0
    flag: str = ""

    def begin(self, ctx: LocalContext) -> None:
        """Fail if it is the one."""
        if ctx.client == self.at and not Path(self.flag).exists():
            Path(self.flag).touch()
            raise ZeroDivisionError("a bug that goes away")
