"""Processes of a deployment: started with a log each, known by number, and stopped all together however this process ends."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from fedgsp.core.errors import RunFailed
from fedgsp.core.files import write_whole
from fedgsp.core.imports import python
from fedgsp.deploy import guardian


@dataclass(frozen=True)
class Started:
    """A process of ours: what it is called, its number, and when it began."""

    name: str
    pid: int
    began: float

    @property
    def alive(self) -> bool:
        """Whether it is still there."""
        return guardian.is_alive(self.pid, self.began)


class Supervisor:
    """Starts processes and stops them, their children and grandchildren included.

    A guardian process holds the other end of a pipe: when this process ends, in whatever way, it stops what is left. What runs
    stands in `folder/processes.json` meanwhile.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.mark = secrets.token_hex(16)
        self._environment = {**environment, guardian.MARK: self.mark}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._started: dict[str, Started] = {}
        self._guardian: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Supervisor:
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        with (self.folder / "logs" / "guardian.log").open("ab") as log:
            self._guardian = subprocess.Popen(
                [*python(guardian.__name__, "main()"), self.mark],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._record()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], folder: Path | None = None) -> Started:
        """Start a process whose output goes to its own log; it is the guardian's from then on."""
        assert self._guardian is not None, "the supervisor was not entered"
        log: IO[bytes]
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                list(command), env=self._environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        started = Started(name, child.pid, guardian.started_at(child.pid))
        self._children[name], self._started[name] = child, started
        self._tell_guardian(started)
        self._record()
        return started

    def run(self, name: str, command: Sequence[str], seconds: float) -> str:
        """Run a command to its end and return what it printed; its failure is a sentence with the end of its log."""
        path = self.folder / "logs" / f"{name}.log"
        before = path.stat().st_size if path.exists() else 0
        self.start(name, command)
        child = self._children[name]
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            raise RunFailed(f"{name} took longer than {seconds:g} seconds; see {path}.") from None
        if code:
            raise RunFailed(f"{name} failed ({self.tail(name)}); see {path}.")
        with path.open("rb") as file:
            file.seek(before)
            return file.read().decode(errors="replace")

    def check(self, *names: str) -> None:
        """Refuse to go on when one of these has ended."""
        for name in names:
            code = self._children[name].poll()
            if code is not None:
                how = f"with code {code}" if code >= 0 else f"by signal {-code}"
                raise RunFailed(f"{name} ended {how} ({self.tail(name)}); see {self.folder / 'logs'}/{name}.log.")

    def running(self) -> list[Started]:
        """What was started and is still there."""
        return [started for name, started in self._started.items() if self._children[name].poll() is None]

    def tail(self, name: str) -> str:
        """The last words of a log that are not empty."""
        lines = (self.folder / "logs" / f"{name}.log").read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")[:300]

    def stop(self) -> None:
        """Stop everything; returns when it is over. May be called twice."""
        if self._guardian is None:
            return
        keeper, self._guardian = self._guardian, None
        try:
            assert keeper.stdin is not None
            with suppress(OSError):
                keeper.stdin.close()
            for child in self._children.values():  # reaped as they end, else the guardian would wait for zombies
                with suppress(subprocess.TimeoutExpired):
                    child.wait(guardian.GRACE_SECONDS + 4)
            with suppress(subprocess.TimeoutExpired):
                keeper.wait(guardian.GRACE_SECONDS + 4)
        finally:
            guardian.stop_all([(s.pid, s.began) for s in self._started.values()], self.mark, grace=0.0)
            with suppress(OSError, RunFailed):
                (self.folder / "processes.json").unlink(missing_ok=True)

    def _tell_guardian(self, started: Started) -> None:
        assert self._guardian is not None
        assert self._guardian.stdin is not None
        try:
            self._guardian.stdin.write(f"{started.pid} {started.began}\n".encode())
            self._guardian.stdin.flush()
        except OSError as error:
            raise RunFailed("the process that watches over this deployment has ended; everything is stopped.") from error

    def _record(self) -> None:
        facts = {
            "schema": 1,
            "mark": self.mark,
            "supervisor": {"pid": os.getpid(), "began": guardian.started_at(os.getpid())},
            "processes": [{"name": s.name, "pid": s.pid, "began": s.began} for s in self._started.values()],
        }
        write_whole(self.folder / "processes.json", json.dumps(facts, indent=2).encode() + b"\n", sync=False)


def recorded(folder: Path) -> tuple[bool, list[Started]]:
    """(whether a supervisor is at work, the processes it started), from what it left on disk."""
    try:
        facts: dict[str, Any] = json.loads((folder / "processes.json").read_text())
        supervisor = facts["supervisor"]
        processes = [Started(str(p["name"]), int(p["pid"]), float(p["began"])) for p in facts["processes"]]
        return guardian.is_alive(int(supervisor["pid"]), float(supervisor["began"])), processes
    except (OSError, ValueError, KeyError, TypeError):
        return False, []
