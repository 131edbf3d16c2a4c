"""Writing that survives: whole files by write, fsync, rename; and reading of settings. Every failure is one sentence."""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from fedgsp.core.errors import InputError, RunFailed


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
        elif error.errno == errno.ELOOP:
            what = f"{path} is a link to another place, through which nothing is written; put the file itself there"
        else:
            what = f"{path} could not be written ({error.strerror})"
        raise CannotWrite(f"{what}. Nothing of the last finished round is lost: fedgsp resume goes on from there.") from error


def write_whole(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Replace a file by new content so that a reader, or a crash, sees the old or the new one and nothing between.

    Without `sync` it may still be lost when the machine itself stops.
    """
    with explained(path):
        replace_whole(path, content, sync=sync)


def replace_whole(path: Path, content: bytes, *, sync: bool = True) -> None:
    """As `write_whole`, with the system's own errors."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        scratch.unlink(missing_ok=True)  # whatever is there is not ours: a link would be written through
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            write_all(descriptor, content)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        scratch.replace(path)
        if sync:
            sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, or the content of a file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write until all of it is written."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def open_regular(path: Path) -> BinaryIO:
    """A file opened for reading; what is no file (a folder, a pipe, which would be waited for) is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most: int | None = None) -> bytes:
    """The content of a file, or its first bytes; what is no file is an OSError."""
    with open_regular(path) as file:
        return file.read() if most is None else file.read(most)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a settings file of the user's; `what` names it where it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {what} {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from error
