"""`fedgsp sweep`: one method over a grid of hyper-parameters, side by side on test samples."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedgsp.cli import common


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sweep")(sweep)


def sweep(
    grid: Annotated[list[str], typer.Argument(metavar="NAME=VALUES...", help="Values to try, as NAME=VALUE,VALUE,...")],
    method: Annotated[str, typer.Option(help="Method: a name, a config file or package.module:METHOD.")] = "fedgsp",
    data: Annotated[str | None, typer.Option(help="Data source. Default: glyphs.")] = None,
    model: Annotated[str | None, typer.Option(help="Model: a name (`fedgsp models`) or package.module:callable.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run. Default: 30.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds: 3 means 0, 1 and 2.")] = 3,
    clients: Annotated[int | None, typer.Option(help="Use only this many clients.")] = None,
    workers: Annotated[str | None, typer.Option(help="Worker processes: a number, auto, or 0 for none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the sweep. Give it again to go on.")] = Path("runs/sweep"),
    trust: common.Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON, nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Compare a method with itself over a grid. Figures are those of test samples; to choose a value, use `fedgsp tune`."""
    from fedgsp.cli.common import worker_count
    from fedgsp.cli.study import FIGURES
    from fedgsp.cli.units import hint_on_interrupt, watcher
    from fedgsp.study.sweep import sweep as compare_values

    words = {"--data": data, "--model": model, "--rounds": rounds, "--seeds": seeds, "--clients": clients}
    command = shlex.join(["fedgsp", "sweep", *grid, "--method", method])
    command += "".join("" if value is None else f" {option} {shlex.quote(str(value))}" for option, value in words.items())
    with hint_on_interrupt():
        found = compare_values(
            method, grid, data=data, model=model, rounds=rounds, seeds=seeds, clients=clients, out=out, command=command,
            workers=worker_count(workers or "auto"), callbacks=watcher(0, quiet or as_json), trust=trust,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found.facts, indent=2))
    elif not quiet:
        typer.echo("\n\n".join([*(table.markdown().rstrip() for table in found.findings.tables), *found.findings.notes]))
        typer.echo(f"\nfiles in {out}: README.md, compare.json, tables as .csv{FIGURES[found.figures_drawn]}")
