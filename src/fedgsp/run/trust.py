"""Code from outside the package: what a configuration names of it, and whether the user lets it run.

A configuration may name code: a model, a part of a method, an encoder or a transform of samples (`package.module:name`). One
that somebody else wrote would run that code on this machine, whatever it does. So a file that names code is read only where the
user says so (`--trust`, `trust=True`), or where it belongs to a run directory that was begun here: what is named on a command
line or in Python is the user's own word.

A directory that was begun here has a file `.trusted` with a random token; the user's state folder has that token and the
names, under the directory's path. So neither a directory from elsewhere, nor one that was put in the place of another, nor
one whose configuration now names other code passes for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from fedgsp.core.errors import InputError
from fedgsp.core.files import replace_whole

Trust = bool | frozenset[str]
"""True: whatever is named may run. Else only what the user named: this, or nothing."""
MARK = ".trusted"
SOURCE_CODE = ("encoder", "transform")
"""Options of a source that may name code."""


def code_named(table: Any) -> list[str]:
    """The code that a configuration's tables name, each once, sorted; empty for one of built-in parts only."""
    if not isinstance(table, dict):
        return []
    found = list(_kinds(table.get("method")))
    model, data = table.get("model"), table.get("data")
    if isinstance(model, dict):
        found.append(model.get("name"))
    if isinstance(data, dict):
        found += [*_of_source(data.get("source")), data.get("transform")]
    return sorted({name for name in found if isinstance(name, str) and ":" in name})


def check_trusted(path: Path, table: Any, trust: Trust) -> None:
    """Refuse a configuration file that names code, unless the user trusts it.

    Args:
        path: The file.
        table: Its tables.
        trust: Whether the user said so; then a run directory that it is in is marked, so that it need not be said again. Or
            the names of code that the user named elsewhere.

    Raises:
        InputError: It names code, and nobody said that it may run.
    """
    names = code_named(table)
    if not names or (isinstance(trust, frozenset) and trust.issuperset(names)):
        return
    if trust is True:
        if path.name == "config.toml" and (path.parent / "journal.jsonl").exists():
            mark_trusted(path.parent, names)
        return
    if path.name != "config.toml" or not is_trusted(path.parent, names):
        what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        raise InputError(
            f"{path} names code that is not part of fedgsp ({what}), and it was not begun here; if you trust whoever wrote "
            f"it and the code that this name finds, say `trust=True`."
        )


def is_trusted(directory: Path, names: list[str]) -> bool:
    """Whether a run directory was begun, or trusted, here with this code."""
    with suppress(OSError, ValueError, RecursionError):
        token = _read_small(directory / MARK).decode()
        known = json.loads(_record(directory).read_bytes())
        return isinstance(known, dict) and secrets.compare_digest(str(known["token"]), token) and known["names"] == names
    return False


def mark_trusted(directory: Path, names: list[str]) -> None:
    """Remember that a run directory may run this code; where nothing can be remembered, the user is asked again."""
    token, record = secrets.token_hex(16), _record(directory)
    with suppress(OSError):
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_whole(record, json.dumps({"directory": str(directory.resolve()), "token": token, "names": names}).encode())
        replace_whole(directory / MARK, token.encode())


def state_root() -> Path:
    """Where the package keeps what it knows of this user: $FEDGSP_STATE, else the user's state folder."""
    chosen = os.environ.get("FEDGSP_STATE")
    return Path(chosen) if chosen else user_state_path("fedgsp", appauthor=False)


def _record(directory: Path) -> Path:
    return state_root() / "trusted" / f"{hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:32]}.json"


def _read_small(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(descriptor, 64)
    finally:
        os.close(descriptor)


def _kinds(table: Any) -> Iterator[Any]:
    """The kinds of all parts in a table, however deep they are."""
    if isinstance(table, dict):
        yield table.get("kind")
        for value in table.values():
            yield from _kinds(value)
    elif isinstance(table, list):
        for value in table:
            yield from _kinds(value)


def _of_source(source: Any) -> list[str | None]:
    """The functions that a source of data names; what cannot be read is refused by whoever loads it."""
    from fedgsp.data.sources import parse  # all readers of data

    if not isinstance(source, str):
        return []
    try:
        return [parse(source).options.get(name) for name in SOURCE_CODE]
    except (InputError, OSError, ValueError):
        return [source] if any(name in source for name in SOURCE_CODE) else []
