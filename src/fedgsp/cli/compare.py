"""`fedgsp compare`: methods, or finished runs, side by side."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedgsp.cli import common

SEEDS = 3


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(compare)


def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD...|RUN_DIR...",
            help="Methods to train (names, config files or package.module:METHOD), and folders of finished runs.",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Data source. Default: that of the runs, else glyphs.")] = None,
    model: Annotated[str | None, typer.Option(help="Model. Default: that of the runs, else small_cnn.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run. Default: those of the runs, else 30.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds: 3 means 0, 1 and 2. One says nothing of the noise. Default: 3.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of every method. Default: each method's own.")] = None,
    clients: Annotated[int | None, typer.Option(help="Use only this many clients.")] = None,
    holdout_clients: Annotated[int, typer.Option(help="Number of clients that never train and are only evaluated.")] = 0,
    target_accuracy: Annotated[
        float | None,
        typer.Option(help="Count rounds, steps, traffic and time until this accuracy. Default: the weakest method's end."),
    ] = None,
    fleet: Annotated[
        str, typer.Option(help="Fleet that times are estimated for: paper, phone-4g, phone-wifi or hospital-fibre.")
    ] = "paper",
    workers: Annotated[str | None, typer.Option(help="Worker processes: a number, auto, or 0 for none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the comparison. Give it again to go on.")] = Path("runs/compare"),
    sets: Annotated[list[str] | None, typer.Option("--set", help="PATH=VALUE sets an entry of every run's config.")] = None,
    trust: common.Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON, nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Compare methods on your data, or finished runs: a table, the curves, and which differences are more than noise."""
    from fedgsp.cli.bar import progress_bar
    from fedgsp.cli.common import worker_count
    from fedgsp.cli.study import FIGURES
    from fedgsp.cli.units import hint_on_interrupt, watcher
    from fedgsp.data import load
    from fedgsp.run.config import DataSection
    from fedgsp.run.overlay import changed
    from fedgsp.study.comparison import compare as compare_methods
    from fedgsp.study.entries import read_entries

    silent = quiet or as_json
    words = {"--data": data, "--model": model, "--rounds": rounds, "--seeds": seeds, "--lr": lr, "--clients": clients,
             "--target-accuracy": target_accuracy, "--holdout-clients": holdout_clients or None}  # fmt: skip
    command = shlex.join(["fedgsp", "compare", *(names or [])])
    command += "".join("" if value is None else f" {option} {shlex.quote(str(value))}" for option, value in words.items())
    command += "".join(f" --set {shlex.quote(text)}" for text in sets or [])
    given, federation = read_entries(names or [], trust=trust), None
    if data is not None or not given.runs:
        with progress_bar(silent) as progress:
            federation = load(data or DataSection.source, clients=clients, progress=progress)
        federation = replace(federation, source=data or DataSection.source)
    with hint_on_interrupt():
        found = compare_methods(
            *(names or []), data=federation, model=model, rounds=rounds, seeds=SEEDS if seeds is None else seeds, lr=lr,
            clients=clients, holdout_clients=holdout_clients, target=target_accuracy, fleet=fleet,
            workers=worker_count(workers or "auto"), out=out, adjust=lambda config: changed(config, sets or []),
            callbacks=watcher(len(given.methods) * (seeds or SEEDS), silent), command=command, trust=trust,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(found.facts, indent=2))
    elif not quiet:
        typer.echo("\n\n".join([*(table.markdown().rstrip() for table in found.findings.tables), *found.findings.notes]))
        typer.echo(f"\nfiles in {out}: README.md, compare.json, tables as .csv{FIGURES[found.figures_drawn]}")
