"""Ray clusters of tests: each has a folder of its own, by which its processes are found again and ended, and no others."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path


def own_folder() -> str:
    """A folder for RAY_TMPDIR: short, since sockets have no room for long names."""
    return tempfile.mkdtemp(prefix="fr-", dir="/tmp")


def left(folder: str) -> list[int]:
    """Processes whose RAY_TMPDIR this is (some change what `ps` shows of them)."""
    mark, found = f"RAY_TMPDIR={folder}\0".encode(), []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in environment.read_bytes() + b"\0":
                found.append(int(environment.parent.name))
    return found


def end(folder: str) -> None:
    """Kill every process of a cluster and remove its folder."""
    for process in left(folder):
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
