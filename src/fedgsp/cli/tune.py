"""`fedgsp tune`: a method over a grid of hyper-parameters, judged on the validation part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgsp.core.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tune")(tune)


def tune(
    more: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUES]...", help="More grid entries.")] = None,
    grid: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE,VALUE,...: lr, server_lr, mu, planner.growth.alpha.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="fedavg, fedgsp+yogi, ...: see `fedgsp methods`.")] = None,
    config: Annotated[Path | None, typer.Option(help="A config.toml to start from.")] = None,
    data: Annotated[str | None, typer.Option(help="Data source, e.g. glyphs:clients=100 or npz:FILE.")] = None,
    model: Annotated[str | None, typer.Option(help="small_cnn, leaf_cnn or package.module:callable.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run.")] = None,
    clients: Annotated[int | None, typer.Option(help="Use this many clients.")] = None,
    workers: Annotated[str | None, typer.Option(help="Worker processes: a number, auto, or 0 for none.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2: every grid point is run with each.")] = "0",
    data_seed: Annotated[int | None, typer.Option(help="Generated data, splits, subsets.")] = None,
    validation: Annotated[float | None, typer.Option(help="Share of train kept for choosing (default 0.1).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep (default: runs/tune-METHOD).")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="PATH=VALUE for any other entry.")] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw OUT/tune.png (needs the extra 'plot').")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the table.")] = False,
) -> None:
    """Try a grid of hyper-parameters on the validation part; test data has no say. Repeat the command to go on."""
    from fedgsp.cli.options import build_config
    from fedgsp.cli.run import _workers
    from fedgsp.report.plotting import require_plotting
    from fedgsp.report.tune_plot import plot_tuning
    from fedgsp.study import tune as study

    if plot:
        require_plotting()
    chosen = build_config(
        config,
        {
            "run": {"rounds": rounds, "workers": _workers(workers)},
            "data": {"source": data, "seed": data_seed, "clients": clients, "validation": validation},
            "model": {"name": model},
        },
        method,
        {},
        sets or [],
    )
    place = out or Path("runs") / f"tune-{chosen.method.name.replace('/', '-').replace(':', '-')}"

    def observers(unit: str) -> list[Any]:
        if not (quiet or as_json):
            typer.echo(unit)
        return []

    outcome = study.tune(chosen, [*(grid or []), *(more or [])], place, seeds=_seeds(seeds), observers=observers)
    if plot:
        plot_tuning(place / "tune.png", outcome.score, [(o.point.values, o.score, o.spread) for o in outcome.outcomes])
    if as_json:
        typer.echo(json.dumps(outcome.as_dict(), indent=2))
        return
    _show(outcome, place, plot)


def _show(outcome: Any, place: Path, plot: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedgsp.method import JUDGED
    from fedgsp.run.metrics import window_words
    from fedgsp.study.grid import shown

    console = Console()
    names = [axis.name for axis in outcome.axes]
    table = Table(
        *names, f"validation {outcome.score}", "over seeds", "validation loss", "", title=f"Tuning ({JUDGED[outcome.yields]})"
    )
    for row in outcome.outcomes:
        values = [shown(row.point.values[name]) for name in names]
        if row.score is None:
            table.add_row(*values, "-", "-", "-", "diverged")
            continue
        mark = "best" if row is outcome.best else ""
        table.add_row(*values, f"{abs(row.score):.4f}", f"± {row.spread:.4f}", f"{row.loss:.4f}", mark)
    console.print(table)
    for line in outcome.advice:
        console.print(f"note: {line}", style="yellow", soft_wrap=True)
    console.print(f"validation figures: {window_words(outcome.rounds)}", soft_wrap=True)
    files = f"{place}/tune.json" + (f", {place}/tune.png" if plot else "")
    console.print(f"best: {outcome.best.point.label} (chosen on validation samples; {files})", soft_wrap=True)


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"--seeds wants whole numbers such as 0,1,2, not '{text}'.") from None
