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

    from fedgsp.models.catalog import BUILT_IN, SampleKind, fitting, summary_of

    if data is None:
        table = {name: summary_of(factory) for name, factory in BUILT_IN.items()}
        typer.echo(json.dumps(table, indent=2) if as_json else "\n".join(f"{n:<18}{told}" for n, told in table.items()))
        return
    from fedgsp.data import load

    there = load(data)
    found = fitting(SampleKind(there.sample_shape, there.classes, there.target_shape, there.count_tokens, there.padding))
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    if not found:
        typer.echo(f"No named model fits samples of shape {there.sample_shape}; give one of your own.")
    for one in found:
        typer.echo(f"{one.name:<18}{one.shape} in, {one.outputs} out, {one.parameters:,} parameters")
