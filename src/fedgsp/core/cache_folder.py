"""Where the package keeps what can be made again."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from platformdirs import user_cache_path


def cache_root() -> Path:
    """Where prepared data and compiled code live: $FEDGSP_CACHE, else the user's cache folder.

    Where there is no home that can be written, as in many containers, it is a folder of the user's own among temporary files.
    """
    chosen = os.environ.get("FEDGSP_CACHE")
    if chosen:
        return Path(chosen)
    usual = user_cache_path("fedgsp", appauthor=False)
    try:
        usual.mkdir(parents=True, exist_ok=True)
        writable = os.access(usual, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    return usual if writable else (_temporary() or usual)


def _temporary() -> Path | None:
    """A folder that nobody else can write: code that was compiled is loaded from it."""
    folder = Path(tempfile.gettempdir()) / f"fedgsp-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if own else None
