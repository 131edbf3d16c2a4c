"""The cache as a person manages it: what is in it, how large it is, and throwing things away."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fedgsp.core.cache_folder import cache_root
from fedgsp.core.errors import InputError
from fedgsp.data import cache
from fedgsp.data.digests import FOLDER as DIGESTS


@dataclass(frozen=True)
class Item:
    """Something in the cache: a whole entry (`state` "whole"), one being built or left by a kill, or a damaged one."""

    key: str
    state: str
    size: int
    meta: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, without the long lists."""
        brief = {name: self.meta.get(name) for name in ("kind", "origin", "clients_count", "samples", "made")}
        return {"key": self.key, "state": self.state, "bytes": self.size, **brief}


def items() -> list[Item]:
    """Everything in the cache, by key."""
    root = cache_root()
    found = []
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        if not path.is_dir() or path.name in (DIGESTS, cache.LOCKS):
            continue
        if path.name.startswith("."):
            found.append(Item(path.name, _unfinished(path), cache.folder_size(path), {}))
            continue
        entry = cache.open_entry(path)
        found.append(Item(path.name, "whole" if entry else "damaged", cache.folder_size(path), entry.meta if entry else {}))
    return found


def clear(keys: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Remove some entries (any unique beginning of a key will do), or all; (bytes freed, keys left because they are in use).

    Entries that a running process has mapped stay readable to it; entries that are just being built are left alone.
    """
    root = cache_root()
    there = [item.key for item in items()]
    chosen = [_resolve(key, there) for key in keys] if keys else there
    freed, busy = 0, []
    for key in chosen:
        if key.startswith(cache.SCRATCH) and _unfinished(root / key) == "being built":
            busy.append(key)
        else:
            freed += cache.discard(root / key)
    if not keys:
        shutil.rmtree(root / DIGESTS, ignore_errors=True)
    return freed, busy


def _resolve(text: str, there: Sequence[str]) -> str:
    matches = [key for key in there if key == text] or [key for key in there if key.startswith(text)]
    if len(matches) != 1:
        what = "nothing" if not matches else f"{len(matches)} entries"
        raise InputError(f"'{text}' fits {what} in the cache; see `fedgsp data list`.")
    return matches[0]


def _unfinished(path: Path) -> str:
    """Whether somebody is at work in a scratch folder: it is locked, or named after a process that lives."""
    if not path.name.startswith(cache.SCRATCH):
        return "rubbish"
    name = path.name.removeprefix(cache.SCRATCH)
    process = re.search(r"-(\d+)-[^-]*$", name)
    if process is not None and psutil.pid_exists(int(process[1])):
        return "being built"
    with cache.locked(path.parent, name, block=False) as alone:
        return "unfinished" if alone else "being built"
