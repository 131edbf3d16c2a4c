"""The guardian: a small process that outlives its parent by just as long as it takes to stop what the parent started.

It reads process numbers from its standard input. When that ends (the parent closed it, or died in whatever way, `kill -9`
included) every process named there, and every descendant that carries the deployment's mark in its environment, is told to
end (SIGTERM) and, where it does not, ended (SIGKILL).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

MARK = "FEDGSP_DEPLOYMENT"
"""Environment variable that all processes of a deployment inherit, whoever started them."""
GRACE_SECONDS = 8.0
SAME_SECONDS = 60.0


def marked(mark: str) -> dict[int, float]:
    """Processes that carry this mark, with when they began (so that a number used again is told apart)."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found[process.pid] = process.create_time()
    return found


def started_at(pid: int) -> float:
    """When a process began, in seconds; 0 where that cannot be had, or the process is over."""
    try:
        process = psutil.Process(pid)
        over = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return 0.0 if over else float(process.create_time())
    except psutil.Error:
        return 0.0


def is_alive(pid: int, began: float) -> bool:
    """Whether the process that had this number when it began `began` is still there; clocks may be set meanwhile, a little."""
    return began > 0 and abs(started_at(pid) - began) < SAME_SECONDS


def stop_all(processes: Iterable[tuple[int, float]], mark: str, grace: float = GRACE_SECONDS) -> list[int]:
    """Stop these processes and all that carry the mark; those that had to be killed are returned."""
    known = dict(processes)
    _signal(known, signal.SIGTERM)
    _signal({pid: began for pid, began in marked(mark).items() if pid not in known}, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        if not _left(known, mark):
            return []
        time.sleep(0.1)
    killed: set[int] = set()
    for _ in range(20):  # a process may have started another meanwhile
        left = _left(known, mark)
        if not left:
            break
        killed |= left.keys()
        _signal(left, signal.SIGKILL)
        time.sleep(0.1)
    return sorted(killed)


def _left(known: dict[int, float], mark: str) -> dict[int, float]:
    alive = {pid: began for pid, began in known.items() if is_alive(pid, began)}
    return {**alive, **marked(mark)}


def _signal(processes: dict[int, float], number: signal.Signals) -> None:
    for pid, began in processes.items():
        if is_alive(pid, began):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def main() -> None:
    """Wait for the parent's end, then stop all."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    mark = sys.argv[1]
    processes: list[tuple[int, float]] = []
    for line in sys.stdin:
        pid, _, began = line.strip().partition(" ")
        with suppress(ValueError):  # half a line: the parent was killed in the midst of it
            processes.append((int(pid), float(began)))
    stop_all(processes, mark)
