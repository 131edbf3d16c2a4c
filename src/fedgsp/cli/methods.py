"""`fedgsp methods`: the table of named methods and their parts."""

from __future__ import annotations

import json
from typing import Any

import typer

from fedgsp.cli import common


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("methods")(methods)


def methods(as_json: common.AsJson = False) -> None:
    """List the methods and the parts they are made of."""
    from fedgsp.method import EVALUATED_ON
    from fedgsp.methods import METHODS, named, words

    if as_json:
        table = {
            name: {"summary": row.summary, "yields": named(name).yields, **named(name).encode()}
            for name, row in METHODS.items()
        }
        typer.echo(json.dumps(table, indent=2))
        return
    for name, row in METHODS.items():
        parts, yields = named(name).encode(), named(name).yields
        typer.echo(f"{name}\n    {row.summary}")
        if yields != "one":
            typer.echo(f"    {'yields':<12}{EVALUATED_ON[yields]}")
        for role in ("preparation", "planner", "local", "server"):
            if role in parts:
                typer.echo(f"    {role:<12}{spell(parts[role])}")
    typer.echo(f"Parts can be put in place of a method's own, as in fedgsp+yogi or fedgsp+prox+adam: {', '.join(words())}.")


def spell(part: dict[str, Any]) -> str:
    """A part in one line: its kind, then its parts and its parameters, but for what is turned off."""
    nested = [spell(value) for key, value in part.items() if isinstance(value, dict) and key != "schedule"]
    plain = {key: value for key, value in part.items() if key != "kind" and not isinstance(value, dict) and value is not False}
    shown = {key: value for key, value in plain.items() if value or key not in USUALLY_OFF}
    told = [f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in shown.items()]
    inside = ", ".join([*nested, *told])
    return f"{part['kind']}({inside})" if inside else str(part["kind"])


USUALLY_OFF = ("momentum", "weight_decay")
