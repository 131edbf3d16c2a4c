"""The logs of a run: lines by append and fsync. Every failure is one sentence; whole files are `fedgsp.core.files`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fedgsp.core.files import CannotWrite, explained, sync_folder, write_all, write_whole

__all__ = ["CannotWrite", "LineLog", "explained", "sync_folder", "write_whole"]


class LineLog:
    """A file of JSON lines that is only appended to."""

    def __init__(self, path: Path, keep: int | None = None) -> None:
        self.path = path
        with explained(path):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
            if keep is not None:
                os.ftruncate(self._descriptor, keep)

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._descriptor).st_size

    def append(self, record: dict[str, Any], *, sync: bool) -> None:
        """Add a line; with `sync` it is on the disk when this returns."""
        line = json.dumps(record, separators=(",", ":"), allow_nan=False)
        with explained(self.path):
            write_all(self._descriptor, line.encode() + b"\n")
            if sync:
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
