"""What is in a file, as a SHA-256: remembered by size, time and inode, so that a multi-GB data set is hashed once, not daily.

As in git's index, a file that changed less than a moment before it was hashed is not remembered: a second write within the
clock's grain could not be told from the first.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from fedgsp.core.cache_folder import cache_root
from fedgsp.core.errors import InputError
from fedgsp.core.files import replace_whole
from fedgsp.data.cache import Progress, silent, within

FOLDER = "digests"
BLOCK = 1 << 22
RACY_SECONDS = 2.0


def digest_of_files(files: Iterable[tuple[str, Path]], progress: Progress = silent) -> str:
    """One digest of named files: it changes with any name or any byte, and with nothing else."""
    named = list(files)
    total = sum(_size(path) for _, path in named)
    whole, done = hashlib.sha256(), 0
    for name, path in named:
        content = digest_of(path, within(progress, "reading", done, total))
        whole.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
        done += _size(path)
        progress("reading", done, total)
    return whole.hexdigest()


def digest_of(path: Path, tick: Callable[[int], None] | None = None) -> str:
    """The digest of one file, from memory where the file is as it was."""
    try:
        stat = path.stat()
        stamp = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
        memory = cache_root() / FOLDER / hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        remembered = _recall(memory)
        if remembered is not None and remembered["stamp"] == stamp:
            return str(remembered["sha256"])
        sha, done = hashlib.sha256(), 0
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                sha.update(block)
                done += len(block)
                if tick is not None:
                    tick(done)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    value = sha.hexdigest()
    if time.time() - stat.st_mtime > RACY_SECONDS:
        with suppress(OSError):  # a read-only cache only costs time
            memory.parent.mkdir(parents=True, exist_ok=True)
            replace_whole(memory, json.dumps({"stamp": stamp, "sha256": value, "path": str(path)}).encode())
    return value


def _recall(memory: Path) -> dict[str, object] | None:
    try:
        found = json.loads(memory.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"stamp", "sha256"} <= found.keys() else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
