"""`fedgsp models`: the models that go by a name, and which of them fit some data."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fedgsp.cli import common


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("models")(models)


def models(
    data: Annotated[
        str | None, typer.Option(help="List the models that fit this data source, with their sizes for it.")
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """List the models that go by a name."""
    from dataclasses import asdict

    from fedgsp.report.model_table import models as named_models

    found = named_models(data)
    if found.fitting is None:
        table = found.summaries
        typer.echo(json.dumps(table, indent=2) if as_json else "\n".join(f"{n:<18}{told}" for n, told in table.items()))
        return
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found.fitting], indent=2))
        return
    if not found.fitting:
        typer.echo("No named model fits these samples; give one of your own.")
    for one in found.fitting:
        typer.echo(f"{one.name:<18}{one.shape} in, {one.outputs} out, {one.parameters:,} parameters")
