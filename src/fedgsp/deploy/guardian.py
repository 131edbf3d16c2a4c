"""The guardian: a small process that outlives its parent by just as long as it takes to stop what the parent started.

It reads process numbers from its standard input. When that ends (the parent closed it, or died in whatever way, `kill -9`
included) every process named there, and every descendant that carries the deployment's mark in its environment, is told to
end (SIGTERM) and, where it does not, ended (SIGKILL). Only the standard library, so that it starts at once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

MARK = "FEDGSP_DEPLOYMENT"
"""Environment variable that all processes of a deployment inherit, whoever started them."""
GRACE_SECONDS = 8.0


def marked(mark: str) -> dict[int, str]:
    """Processes that carry this mark, with when they began (so that a number used again is told apart)."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    proc = Path("/proc")
    for entry in proc.iterdir() if proc.is_dir() else ():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = started_at(int(entry.name))
    return found


def started_at(pid: int) -> str:
    """When a process began, in the kernel's own count; empty where that cannot be had, or the process is over."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def is_alive(pid: int, began: str) -> bool:
    """Whether the process that had this number when it began `began` is still there."""
    if Path("/proc/self/stat").exists():
        return began != "" and started_at(pid) == began
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def stop_all(processes: Iterable[tuple[int, str]], mark: str, grace: float = GRACE_SECONDS) -> list[int]:
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


def _left(known: dict[int, str], mark: str) -> dict[int, str]:
    alive = {pid: began for pid, began in known.items() if is_alive(pid, began)}
    return {**alive, **{pid: began for pid, began in marked(mark).items() if began}}


def _signal(processes: dict[int, str], number: signal.Signals) -> None:
    for pid, began in processes.items():
        if is_alive(pid, began):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def main() -> None:
    """Wait for the parent's end, then stop all."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    mark = sys.argv[1]
    processes: list[tuple[int, str]] = []
    for line in sys.stdin:
        pid, _, began = line.strip().partition(" ")
        if pid.isdigit():
            processes.append((int(pid), began))
    stop_all(processes, mark)


if __name__ == "__main__":
    main()
