"""`fedgsp evaluate`: a run's model on the same or other data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgsp.cli import common


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evaluate")(evaluate)


def evaluate(
    directory: Annotated[Path, typer.Argument(help="The run directory.")],
    data: Annotated[str | None, typer.Option(help="Data source (default: the run's own).")] = None,
    part: Annotated[str, typer.Option(help="Samples to evaluate on: test, train, validation or all.")] = "test",
    trust: common.Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with a line for every client.")] = False,
) -> None:
    """Evaluate a run's newest model, client by client."""
    from fedgsp.run.evaluate_run import evaluate as evaluate_model

    verdict = evaluate_model(directory, data, part=part, trust=trust).facts
    if as_json:
        typer.echo(json.dumps(verdict, indent=2))
        return
    _show(verdict)


def _show(verdict: dict[str, Any]) -> None:
    from rich.table import Table

    from fedgsp.cli.display import plain_console
    from fedgsp.method import EVALUATED_ON

    console = plain_console()
    console.print(
        f"{verdict['method']} after {verdict['round']} rounds, {verdict['part']} samples of {verdict['data']['source']}: "
        f"{verdict['clients']} clients, {verdict['samples']} samples"
    )
    if verdict["yields"] != "one":
        console.print(f"yields {EVALUATED_ON[verdict['yields']]}: not comparable with methods of one global model")
    table = Table("", "weighed as LEAF does", "every sample once", "worst client", "10 %", "median", "90 %", "best client")
    for name, quantiles in verdict["quantiles"].items():
        ends = ("0", "0.1", "0.5", "0.9", "1") if name != "loss" else ("1", "0.9", "0.5", "0.1", "0")
        row = [verdict[name], verdict[f"{name}_plain"], *(quantiles[q] for q in ends)]
        table.add_row(name, *(f"{value:.4f}" for value in row))
    console.print(table)
