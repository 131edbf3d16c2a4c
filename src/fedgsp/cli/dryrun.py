"""`fedgsp run --dry-run`: the schedule, the memory, the traffic and an estimate of the time; nothing is trained or written."""

from __future__ import annotations

import json
from typing import Any

import typer

from fedgsp.cli.display import duration, headline, plain_console, size
from fedgsp.run.forecast import Forecast, forecast
from fedgsp.run.setup import Setup


def show_dry_run(setup: Setup, as_json: bool) -> None:
    """Print what a run would be."""
    expected = forecast(setup)
    if as_json:
        typer.echo(json.dumps(expected.as_dict(), indent=2))
        return
    from rich.table import Table

    console = plain_console()
    console.print(headline(setup))
    for note in setup.notes:
        console.print(f"note: {note}", style="yellow")
    table = Table("from round", "groups", "clients a chain", "chains that train", "clients that train", title="Schedule")
    for row in expected.schedule:
        table.add_row(*map(str, _cells(row)))
    console.print(table)
    for line in _lines(expected):
        console.print(line)


def _cells(row: dict[str, int]) -> tuple[Any, ...]:
    length = f"{row['shortest']}" if row["shortest"] == row["longest"] else f"{row['shortest']}-{row['longest']}"
    return row["round"], row["groups"], length, row["sampled"], row["trained"]


def _lines(expected: Forecast) -> list[str]:
    more = f", and {size(expected.beside_bytes)} beside it" if expected.beside_bytes else ""
    disk = f"disk     up to {size(expected.disk)} for what clients keep between visits, {size(expected.state_bytes)} each"
    return [
        f"traffic  {size(expected.bytes)} handed on: "
        + (
            f"{size(expected.model_bytes)} down and up for every client that trains"
            if expected.hands_on
            else "no model is sent"
        )
        + more,
        f"memory   about {size(expected.memory)} in all processes",
        f"time     about {duration(expected.seconds)} of training: {expected.steps} SGD steps at {expected.step_ms:.2f} ms, "
        f"measured now on a scratch model, over {expected.workers} worker(s)",
        *([disk] if expected.disk else []),
    ]
