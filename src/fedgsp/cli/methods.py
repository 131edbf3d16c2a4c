"""`fedgsp methods`: the table of named methods and their parts."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("methods")(methods)


def methods(as_json: Annotated[bool, typer.Option("--json", help="As JSON, with every parameter.")] = False) -> None:
    """List the methods and the parts they are made of."""
    from fedgsp.method import JUDGED
    from fedgsp.methods import METHODS, WORDS, named

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
            typer.echo(f"    {'yields':<12}{JUDGED[yields]}")
        for role in ("preparation", "planner", "local", "server"):
            if role in parts:
                typer.echo(f"    {role:<12}{spell(parts[role])}")
    typer.echo(f"Parts can be put in place of a method's own, as in fedgsp+yogi or fedgsp+prox+adam: {', '.join(WORDS)}.")


def spell(part: dict[str, Any]) -> str:
    """A part in one line: its kind, then its parts and the parameters that say most."""
    nested = [spell(value) for key, value in part.items() if isinstance(value, dict) and key != "schedule"]
    shown = {key: value for key, value in part.items() if key in SHOWN and value is not False}
    plain = [f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in shown.items()]
    inside = ", ".join([*nested, *plain])
    return f"{part['kind']}({inside})" if inside else str(part["kind"])


SHOWN = (
    "alpha", "beta", "count", "kappa", "order", "gamma", "passes", "target", "tau_d", "lr", "batch_size", "epochs", "mu", "lam",
    "most_clients", "least_samples", "rounds", "period", "judge", "eps1", "eps2", "linkage", "first_round",
    "operator", "anchor", "report_accuracy", "report_steps", "weights", "variant", "center", "beta1", "beta2", "tau", "keep",
    "eval_ref", "step", "share", "personal_steps",
)  # fmt: skip
