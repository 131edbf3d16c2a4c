"""`fedgsp methods`: the table of named methods and their parts."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from fedgsp.cli import common
from fedgsp.core.cache_folder import cache_root
from fedgsp.core.files import replace_whole


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("methods")(methods)


def methods(as_json: common.AsJson = False) -> None:
    """List the methods and the parts they are made of."""
    typer.echo(kept()["json" if as_json else "text"])


def kept() -> dict[str, str]:
    """The table in both forms. It is kept in the user's cache, since making it takes torch, which takes seconds to import.

    The file's name is a digest of all sources of the package: a changed one makes the table anew.
    """
    root = cache_root()
    file = root / f"methods-{sources_digest(Path(__file__).parents[1])}.json"
    try:
        found: dict[str, str] = json.loads(file.read_text())
        if found.keys() == {"text", "json"}:
            return found
    except (OSError, ValueError, AttributeError):
        pass
    table = {"text": as_text(), "json": as_data()}
    with suppress(OSError):  # a cache that cannot be written only costs time
        root.mkdir(parents=True, exist_ok=True)
        for old in root.glob("methods-*.json"):
            old.unlink(missing_ok=True)
        replace_whole(file, json.dumps(table).encode(), sync=False)
    return table


def sources_digest(package: Path) -> str:
    """Changes with any source file of a package: by name, size and time of change, which need not be read."""
    found = ((file.relative_to(package), file.stat()) for file in package.rglob("*.py"))
    facts = [f"{name} {about.st_size} {about.st_mtime_ns}" for name, about in found]
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:32]


def as_data() -> str:
    """The table as JSON."""
    from fedgsp.methods import METHODS, named

    table = {
        name: {"summary": row.summary, "yields": named(name).yields, **named(name).encode()} for name, row in METHODS.items()
    }
    return json.dumps(table, indent=2)


def as_text() -> str:
    """The table for people."""
    from fedgsp.method import EVALUATED_ON
    from fedgsp.methods import METHODS, named, words

    lines = []
    for name, row in METHODS.items():
        parts, yields = named(name).encode(), named(name).yields
        lines.append(f"{name}\n    {row.summary}")
        if yields != "one":
            lines.append(f"    {'yields':<12}{EVALUATED_ON[yields]}")
        roles = [role for role in ("preparation", "planner", "local", "server") if role in parts]
        lines += [f"    {role:<12}{spell(parts[role])}" for role in roles]
    lines.append(f"Parts can be put in place of a method's own, as in fedgsp+yogi or fedgsp+prox+adam: {', '.join(words())}.")
    return "\n".join(lines)


def spell(part: dict[str, Any]) -> str:
    """A part in one line: its kind, then its parts and its parameters, but for what is turned off."""
    nested = [spell(value) for key, value in part.items() if isinstance(value, dict) and key != "schedule"]
    plain = {key: value for key, value in part.items() if key != "kind" and not isinstance(value, dict) and value is not False}
    shown = {key: value for key, value in plain.items() if value or key not in USUALLY_OFF}
    told = [f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in shown.items()]
    inside = ", ".join([*nested, *told])
    return f"{part['kind']}({inside})" if inside else str(part["kind"])


USUALLY_OFF = ("momentum", "weight_decay")
