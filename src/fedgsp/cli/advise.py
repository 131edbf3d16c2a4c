"""`fedgsp advise`: which method reaches a target soonest with this data, model and fleet."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fedgsp.cli import common


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("advise")(advise)


def advise(
    data: Annotated[str, typer.Option(help="Data source, such as glyphs:clients=100 or npz:FILE.")],
    fleet: Annotated[str, typer.Option(help="Fleet: paper, phone-4g, phone-wifi, hospital-fibre or FILE.toml.")] = "paper",
    model: Annotated[str, typer.Option(help="Model: small_cnn, leaf_cnn or package.module:callable.")] = "small_cnn",
    target: Annotated[float, typer.Option(help="Accuracy to reach, between 0 and 1. Needs --pilot.")] = 0.8,
    pilot: Annotated[int, typer.Option(min=0, help="Try each method for this many rounds on your data first. 0: do not.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the pilot.")] = 0,
    quiet: common.Quiet = False,
    as_json: common.AsJson = False,
) -> None:
    """Say which method and settings reach the target soonest and cheapest, and how sure that is."""
    from fedgsp.study.advise import advise as advice_on

    said = (lambda line: None) if quiet or as_json else (lambda line: typer.echo(line, err=True))
    found = advice_on(data, fleet, model=model, target=target, pilot=pilot, seed=seed, told=said)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    from rich.table import Table

    from fedgsp.cli.display import plain_console, size
    from fedgsp.progress import duration

    console = plain_console()
    console.print(
        f"{found.clients} clients, label skew {found.label_skew:.0f} of 100, {size(found.model_bytes)} a model, "
        f"fleet {found.fleet}; to {100 * found.target:.0f} %"
    )
    table = Table("method", "rounds", "time", "through the server", "rounds are", "options")
    for one in found.best:
        table.add_row(one.name, str(one.rounds), duration(one.seconds), size(one.bytes), one.basis, one.options)
    console.print(table)
    console.print(f"least traffic: {found.cheapest}")
    for line in (*(f"not sure: {doubt}" for doubt in found.doubts), *(f"change: {change}" for change in found.changes)):
        console.print(line, soft_wrap=True)
    for line in found.left_out:
        console.print(f"no estimate for {line}", soft_wrap=True)
