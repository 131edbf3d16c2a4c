"""`fedgsp tune`: a method over a grid of hyper-parameters, evaluated on the validation part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgsp.cli import common
from fedgsp.core.errors import InputError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tune")(tune)


def tune(
    more: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUES]...", help="More entries of the grid.")] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="Values to try, as NAME=VALUE,VALUE,... NAME is lr, server_lr, mu, planner.growth.alpha or the like. "
            "With --driver optuna also a range: NAME=LOW..HIGH, or NAME=LOW..HIGH,log."
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Method to tune, such as fedavg or fedgsp+yogi. See `fedgsp methods`.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Start from this config.toml.")] = None,
    data: Annotated[str | None, typer.Option(help="Data source, such as glyphs:clients=100 or npz:FILE.")] = None,
    model: Annotated[str | None, typer.Option(help="Model: a name (`fedgsp models`) or package.module:callable.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run.")] = None,
    clients: Annotated[int | None, typer.Option(help="Use only this many clients.")] = None,
    workers: Annotated[str | None, typer.Option(help="Worker processes: a number, auto, or 0 for none.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds of every grid point: 3 means 0, 1 and 2. Default: 1.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Run every grid point with this seed only.")] = None,
    data_seed: Annotated[int | None, typer.Option(help="Seed of generated data, splits and subsets.")] = None,
    validation: Annotated[float | None, typer.Option(help="Share of training samples kept for choosing. Default: 0.1.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep. Default: runs/tune-METHOD.")] = None,
    driver: Annotated[
        str, typer.Option(help="Who chooses the points: grid (all of them) or optuna (needs the extra optuna).")
    ] = "grid",
    trials: Annotated[int | None, typer.Option(help="Points that optuna tries. Default: 20.")] = None,
    prune: Annotated[bool, typer.Option(help="Let optuna stop points that fall behind.")] = True,
    search_seed: Annotated[int, typer.Option(help="Seed of optuna's choices.")] = 0,
    sets: Annotated[list[str] | None, typer.Option("--set", help="PATH=VALUE sets any other entry of the config.")] = None,
    trust: common.Trust = False,
    plot: Annotated[bool, typer.Option("--plot", help="Draw OUT/tune.png. Needs matplotlib.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the table.")] = False,
) -> None:
    """Try hyper-parameters on the validation part: a grid of them, or as Optuna chooses. Test data is not used.

    Repeat the command to go on.
    """
    from fedgsp.cli.options import build_config
    from fedgsp.report.plotting import require_plotting
    from fedgsp.report.tune_plot import plot_tuning
    from fedgsp.study import tune as study
    from fedgsp.study.grids import grid_of
    from fedgsp.study.search import Optuna, searched
    from fedgsp.study.tuning import driver_of

    if plot:
        require_plotting()
    options = {
        "method": method, "rounds": rounds, "workers": common.worker_count(workers), "data": data, "data_seed": data_seed,
        "clients": clients, "validation": validation, "model": model,
    }  # fmt: skip
    chosen = build_config(config, options, sets or [], trust=trust)
    place = out or Path("runs") / f"tune-{chosen.method.name.replace('/', '-').replace(':', '-')}"

    def callbacks(unit: str) -> list[Any]:
        if not (quiet or as_json):
            typer.echo(unit)
        return []

    search = driver_of(driver)
    if search is None and trials is not None:
        raise InputError("`trials=` is for `driver='optuna'`; a grid tries all of its points.")
    if search is not None:
        search = Optuna(search.trials if trials is None else trials, search_seed, prune)
    wanted: Any = [*(grid or []), *(more or [])]
    if search is not None and not wanted:
        wanted = searched(grid_of(chosen.method), chosen.method)
    outcome = study.tune(chosen, wanted, place, seeds=_seeds(seeds, seed), callbacks=callbacks, driver=search)
    if plot:
        rows = [(o.point.values, o.score, o.spread) for o in outcome.outcomes]
        plot_tuning(place / "tune.png", outcome.score, rows, joined=search is None)
    if as_json:
        typer.echo(json.dumps(outcome.as_dict(), indent=2))
        return
    _show(outcome, place, plot)


def _show(outcome: Any, place: Path, plot: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedgsp.method import EVALUATED_ON
    from fedgsp.run.metrics import window_words
    from fedgsp.study.grid import shown

    console = Console()
    names = [axis.name for axis in outcome.axes]
    table = Table(
        *names,
        f"validation {outcome.score}",
        "over seeds",
        "validation loss",
        "",
        title=f"Tuning ({EVALUATED_ON[outcome.yields]})",
    )
    for row in outcome.outcomes:
        values = [shown(row.point.values[name]) for name in names]
        if row.score is None:
            table.add_row(*values, "-", "-", "-", row.fate)
            continue
        mark = "best" if row is outcome.best else ""
        table.add_row(*values, f"{abs(row.score):.4f}", f"± {row.spread:.4f}", f"{row.loss:.4f}", mark)
    console.print(table)
    for line in outcome.advice:
        console.print(f"note: {line}", style="yellow", soft_wrap=True)
    console.print(f"validation figures: {window_words(outcome.rounds)}", soft_wrap=True)
    files = f"{place}/tune.json" + (f", {place}/tune.png" if plot else "")
    console.print(f"best: {outcome.best.point.label} (chosen on validation samples; {files})", soft_wrap=True)


def _seeds(count: int | None, one: int | None) -> list[int]:
    if count is not None and one is not None:
        raise InputError("--seeds is a number of seeds and --seed a single one: give one of them.")
    if count is not None and count < 1:
        raise InputError(f"--seeds must be at least 1, not {count}.")
    return list(range(count or 1)) if one is None else [one]
