"""Writing that survives: whole files by write, fsync, rename; lines by append and fsync. Every failure is one sentence."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedgsp.core.errors import RunFailed


class CannotWrite(RunFailed):
    """A file of the run cannot be written; what was there before is untouched."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into a sentence with what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what = f"the disk is full, {path} could not be written; free some space"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what = f"{path} may not be written ({error.strerror}); make its folder writable"
        else:
            what = f"{path} could not be written ({error.strerror})"
        raise CannotWrite(f"{what}. Nothing of the last finished round is lost: fedgsp resume goes on from there.") from error


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file by new content so that a reader, or a crash, sees the old or the new one and nothing between."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with explained(path):
        try:
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                _write_all(descriptor, content)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            scratch.replace(path)
            sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LineLog:
    """A file of JSON lines that is only appended to."""

    def __init__(self, path: Path, keep: int | None = None) -> None:
        self.path = path
        with explained(path):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
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
            _write_all(self._descriptor, line.encode() + b"\n")
            if sync:
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_lines(path: Path, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """The whole lines of a log, up to `limit` bytes; a last line that a crash cut short is left out."""
    with path.open("rb") as file:
        content = file.read() if limit is None else file.read(limit)
    for line in content.split(b"\n")[:-1]:
        yield json.loads(line)


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
