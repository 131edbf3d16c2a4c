"""A visible, content-addressed cache of prepared data: one folder an entry, arrays as memory-mapped .npy files.

An entry is built in a scratch folder and renamed into place, so it is whole or absent, also after a kill. Long work is done
under a file lock: a second process waits instead of doing the same, the system drops the lock of a killed process, and whoever
comes next goes on with what it left.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from fedgsp.core.cache_folder import cache_root
from fedgsp.core.errors import InputError
from fedgsp.core.files import sync_folder

SCHEMA = 1
SCRATCH = ".building-"
LOCKS = ".locks"
Progress = Callable[[str, int, int], None]
"""(what is being done, how much is done, how much there is): bytes, usually; called many times."""


def silent(what: str, done: int, total: int) -> None:
    """Nobody listens."""


def within(progress: Progress, what: str, before: int, total: int) -> Callable[[int], None]:
    """How far one file of several is, told as how far all are: called with how much of it is done."""
    return lambda done: progress(what, before + done, total)


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

    Two processes that build the same entry at once both end up with the one that was renamed first. A `resumable` builder,
    for work of minutes, works alone: a second process waits for it (`waiting` is called then), and whoever comes after a
    kill is handed what is left in the folder, to go on with.
    """
    root = cache_root()
    target = root / key
    entry = open_entry(target)
    if entry is not None:
        return entry
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not resumable:
            return _build(target, Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{key}-{os.getpid()}-", dir=root)), build)
        with locked(root, key, waiting) as alone:
            entry = open_entry(target)  # the process that was waited for has built it
            if entry is not None:
                return entry
            scratch = root / f"{SCRATCH}{key}" if alone else Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{key}-", dir=root))
            scratch.mkdir(exist_ok=True)
            return _build(target, scratch, build, resumable=True)
    except OSError as error:
        raise InputError(
            f"cannot write the data cache {root} ({error.strerror or error}); set FEDGSP_CACHE to a folder you may write."
        ) from error


def get_or_convert(
    kind: str,
    version: int,
    content: str,
    options: Sequence[object],
    origin: str,
    convert: Callable[[Path], dict[str, Any]],
    **how: Any,
) -> Entry:
    """The entry of a source by the digest of its files and by what decides how they are read; see `get_or_build`."""
    key = hashlib.sha256("|".join([content, *map(str, options)]).encode()).hexdigest()[:32]
    return get_or_build(f"{kind}-v{version}-{key}", lambda folder: {"kind": kind, "origin": origin, **convert(folder)}, **how)


def save_array(folder: Path, name: str, array: NDArray[Any]) -> None:
    """Write one array of an entry that is being built."""
    np.save(folder / f"{name}.npy", array, allow_pickle=False)


def _build(target: Path, scratch: Path, build: Callable[[Path], dict[str, Any]], *, resumable: bool = False) -> Entry:
    keep = False
    try:
        try:
            made = build(scratch)
        except BaseException as error:
            keep = resumable and not isinstance(error, Exception)  # told to stop: what is done will be of use
            raise
        sizes = {file.name: file.stat().st_size for file in sorted(scratch.iterdir())}
        meta = {"schema": SCHEMA, "key": target.name, "made": round(time.time()), "sizes": sizes, **made}
        (scratch / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        for file in scratch.iterdir():
            sync_folder(file)
        sync_folder(scratch)
        with locked(target.parent, f"{target.name}.install"):
            if open_entry(target) is None:  # absent, damaged or old; a whole one is another process's, and may be in use
                discard(target)
                scratch.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise InputError(f"cannot write the data cache {target.parent}: {error.strerror or error}.") from error
    finally:
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)
    return open_entry(target) or Entry(target, meta)


@contextmanager
def locked(root: Path, key: str, waiting: Callable[[], None] | None = None, block: bool = True) -> Iterator[bool]:
    """Hold the lock of a key; yields False where it cannot be had (not blocking, or a file system without locks)."""
    (root / LOCKS).mkdir(exist_ok=True)
    lock = FileLock(root / LOCKS / key)
    held = True
    try:
        lock.acquire(blocking=False)
    except Timeout:
        held = block
        if block:
            if waiting is not None:
                waiting()
            lock.acquire()
    except OSError:
        held = False
    try:
        yield held
    finally:
        lock.release()


def open_entry(target: Path) -> Entry | None:
    """The entry, if it is whole: its metadata is readable, of this schema, and every file has the size it was written with."""
    try:
        meta = json.loads((target / "meta.json").read_text(encoding="utf-8"))
        if not isinstance(meta, dict) or meta.get("schema") != SCHEMA:
            return None
        if any((target / name).stat().st_size != size for name, size in meta["sizes"].items()):
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
