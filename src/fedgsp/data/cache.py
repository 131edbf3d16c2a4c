"""A visible, content-addressed cache of prepared data: one folder an entry, arrays as memory-mapped .npy files.

An entry is built in a scratch folder and renamed into place, so it is whole or absent, also after a kill. Long work is done
under a file lock: a second process waits instead of doing the same, the system drops the lock of a killed process, and whoever
comes next goes on with what it left.
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
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError

SCHEMA = 1
SCRATCH = ".building-"
LOCK = ".lock-"


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
            _sync(file)
        _sync(scratch)
        with locked(target.parent, f"{target.name}.install"):
            if open_entry(target) is None:  # absent, damaged or old; a whole one is another process's, and may be in use
                discard(target)
                scratch.rename(target)
        _sync(target.parent)
    except OSError as error:
        raise InputError(f"cannot write the data cache {target.parent}: {error.strerror or error}.") from error
    finally:
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)
    return open_entry(target) or Entry(target, meta)


@contextmanager
def locked(root: Path, key: str, waiting: Callable[[], None] | None = None, block: bool = True) -> Iterator[bool]:
    """Hold the lock of a key; yields False where it cannot be had (not blocking, or a file system without locks).

    The lock file is removed when it is let go, so whoever got the lock of a file that is gone by then asks again.
    """
    path = root / f"{LOCK}{key}"
    while True:
        handle = path.open("ab")
        held = _flock(handle, waiting, block)
        if not held or _is_at(handle, path):
            break
        handle.close()
    try:
        yield held
    finally:
        if held:
            path.unlink(missing_ok=True)
        handle.close()


def _flock(handle: BinaryIO, waiting: Callable[[], None] | None, block: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not block:
            return False
        if waiting is not None:
            waiting()
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def _is_at(handle: BinaryIO, path: Path) -> bool:
    try:
        return os.fstat(handle.fileno()).st_ino == path.stat().st_ino
    except OSError:
        return False


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


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
