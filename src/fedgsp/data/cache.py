"""A visible, content-addressed cache of prepared data: one folder an entry, arrays as memory-mapped .npy files.

An entry is built in a scratch folder and renamed into place, so it is whole or absent, also after a kill. A file lock a key
makes a second process wait for the first instead of doing the same work; the system drops the lock of a killed process, and
whoever comes next finds its scratch folder and goes on with it (where the builder can) or starts it anew.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError

SCHEMA = 1
SCRATCH = ".building-"
LOCKS = ".locks"


def cache_root() -> Path:
    """Where prepared data lives: $FEDGSP_CACHE, else the user's cache folder."""
    chosen = os.environ.get("FEDGSP_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedgsp"


@dataclass(frozen=True)
class Entry:
    """A whole cache entry."""

    path: Path
    meta: dict[str, Any]

    def array(self, name: str) -> NDArray[Any]:
        """One of its arrays, memory-mapped read-only."""
        loaded: NDArray[Any] = np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return loaded

    def has(self, name: str) -> bool:
        """Whether it has such an array."""
        return (self.path / f"{name}.npy").exists()


def get_or_build(
    key: str,
    build: Callable[[Path], dict[str, Any]],
    *,
    resumable: bool = False,
    waiting: Callable[[], None] | None = None,
) -> Entry:
    """The entry called `key`, built by `build(folder)` (which writes arrays there and returns its metadata) if absent.

    A `resumable` builder is handed what a killed predecessor left in the folder; others get an empty one. `waiting` is
    called if another process is building the same entry.
    """
    root = cache_root()
    target = root / key
    entry = open_entry(target)
    if entry is not None:
        return entry
    try:
        root.mkdir(parents=True, exist_ok=True)
        with locked(root, key, waiting) as alone:
            entry = open_entry(target)  # the process that was waited for has built it
            return entry or _build(root, key, build, resumable and alone, alone)
    except OSError as error:
        raise InputError(
            f"cannot write the data cache {root} ({error.strerror or error}); set FEDGSP_CACHE to a folder you may write."
        ) from error


def save_array(folder: Path, name: str, array: NDArray[Any]) -> None:
    """Write one array of an entry that is being built."""
    np.save(folder / f"{name}.npy", array, allow_pickle=False)


def write_whole(path: Path, text: str) -> None:
    """Write a small file so that readers see the old text or the new one, never half of either."""
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def _build(root: Path, key: str, build: Callable[[Path], dict[str, Any]], resume: bool, alone: bool) -> Entry:
    target = root / key
    scratch = root / f"{SCRATCH}{key}" if alone else Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{key}-", dir=root))
    keep = False
    try:
        if alone and not resume:
            shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(exist_ok=True)
        try:
            made = build(scratch)
        except (KeyboardInterrupt, SystemExit):
            keep = resume
            raise
        sizes = {file.name: file.stat().st_size for file in sorted(scratch.iterdir())}
        meta = {"schema": SCHEMA, "key": key, "made": round(time.time()), "files": sizes, **made}
        (scratch / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        for file in scratch.iterdir():
            _sync(file)
        _sync(scratch)
        discard(target)  # a damaged or old entry that `open_entry` refused
        try:
            scratch.rename(target)
        except OSError:
            if open_entry(target) is None:
                raise
        _sync(root)
    finally:
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)
    return Entry(target, meta)


@contextmanager
def locked(root: Path, key: str, waiting: Callable[[], None] | None = None, block: bool = True) -> Iterator[bool]:
    """Hold the lock of a key; yields False where it cannot be had (not blocking, or a file system without locks)."""
    (root / LOCKS).mkdir(exist_ok=True)
    with (root / LOCKS / key).open("ab") as handle:
        held = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = block
            if block:
                if waiting is not None:
                    waiting()
                fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            held = False
        yield held


def open_entry(target: Path) -> Entry | None:
    """The entry, if it is whole: its metadata is readable, of this schema, and every file has the size it was written with."""
    try:
        meta = json.loads((target / "meta.json").read_text(encoding="utf-8"))
        if not isinstance(meta, dict) or meta.get("schema") != SCHEMA:
            return None
        if any((target / name).stat().st_size != size for name, size in meta["files"].items()):
            return None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return Entry(target, meta)


def discard(path: Path) -> int:
    """Remove a folder: renamed away first, so that nobody ever sees half of it. How many bytes that freed."""
    if not path.exists():
        return 0
    freed = folder_size(path)
    away = Path(tempfile.mkdtemp(prefix=".trash-", dir=path.parent))
    path.rename(away / path.name)
    shutil.rmtree(away, ignore_errors=True)
    return freed


def folder_size(path: Path) -> int:
    """Bytes of the files in a folder."""
    total = 0
    for file in path.rglob("*"):
        with suppress(OSError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
