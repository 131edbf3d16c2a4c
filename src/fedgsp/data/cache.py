"""A visible, content-addressed cache of prepared data: one folder an entry, arrays as memory-mapped .npy files.

An entry is built in a scratch folder and renamed into place, so it is whole or absent, also after a kill; two processes
that build the same entry at once both end up with the one that was renamed first.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError

SCHEMA = 1


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


def get_or_build(key: str, build: Callable[[Path], dict[str, Any]]) -> Entry:
    """The entry called `key`, built by `build(folder)` (which writes arrays there and returns its metadata) if absent."""
    root = cache_root()
    target = root / key
    entry = _open(target)
    if entry is not None:
        return entry
    try:
        root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=root))
    except OSError as error:
        raise InputError(
            f"cannot write the data cache {root} ({error.strerror}); set FEDGSP_CACHE to a folder you may write."
        ) from error
    try:
        meta = {"schema": SCHEMA, "key": key, **build(scratch)}
        meta["sizes"] = {file.name: file.stat().st_size for file in scratch.glob("*.npy")}
        (scratch / "meta.json").write_text(json.dumps(meta))
        for file in scratch.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        with _alone(root):
            if _open(target) is None:  # absent, damaged or old; a whole one is another process's, and may be in use
                shutil.rmtree(target, ignore_errors=True)
                scratch.rename(target)
    except OSError as error:
        raise InputError(f"cannot write the data cache {root}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return _open(target) or Entry(target, meta)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One process (or thread) at a time: between looking at an entry and replacing it nobody else may put one there."""
    with (root / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def save_array(folder: Path, name: str, array: NDArray[Any]) -> None:
    """Write one array of an entry that is being built."""
    np.save(folder / f"{name}.npy", array, allow_pickle=False)


def _open(target: Path) -> Entry | None:
    """The entry if it is there, of this version, and all its arrays have the length they were written with."""
    try:
        meta = json.loads((target / "meta.json").read_text())
        whole = meta["schema"] == SCHEMA and all((target / name).stat().st_size == n for name, n in meta["sizes"].items())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Entry(target, meta) if whole else None
