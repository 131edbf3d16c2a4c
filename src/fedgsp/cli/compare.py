"""`fedgsp compare`: methods, or finished runs, side by side."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgsp.cli import common

if TYPE_CHECKING:
    from fedgsp.study.findings import Findings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(compare)


def compare(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="METHOD...|RUN_DIR...", help="Methods to train, or folders of finished runs.")
    ] = None,
    data: Annotated[str, typer.Option(help="Data source, such as glyphs:clients=100 or npz:FILE.")] = "glyphs",
    model: Annotated[str, typer.Option(help="Model: a name (`fedgsp models`) or package.module:callable.")] = "small_cnn",
    rounds: Annotated[int, typer.Option(help="Rounds of every run.")] = 30,
    seeds: Annotated[int, typer.Option(help="Number of seeds: 3 means 0, 1 and 2. One seed says nothing of the noise.")] = 3,
    lr: Annotated[float | None, typer.Option(help="Learning rate of every method. Default: each method's own.")] = None,
    clients: Annotated[int | None, typer.Option(help="Use only this many clients.")] = None,
    holdout_clients: Annotated[int, typer.Option(help="Number of clients that never train and are only evaluated.")] = 0,
    target_accuracy: Annotated[
        float | None,
        typer.Option(help="Count rounds, steps, traffic and time until this accuracy. Default: the weakest method's end."),
    ] = None,
    fleet: Annotated[
        str, typer.Option(help="Fleet that times are estimated for: paper, phone-4g, phone-wifi, hospital-fibre or FILE.toml.")
    ] = "paper",
    workers: Annotated[str | None, typer.Option(help="Worker processes: a number, auto, or 0 for none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the comparison. Give it again to go on.")] = Path("runs/compare"),
    sets: Annotated[list[str] | None, typer.Option("--set", help="PATH=VALUE sets an entry of every run's config.")] = None,
    trust: common.Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON, nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Compare methods on your data, or finished runs: a table, the curves, and which differences are more than noise."""
    from fedgsp.cli.study import FIGURES
    from fedgsp.core.errors import InputError, did_you_mean
    from fedgsp.cost import FLEETS
    from fedgsp.study.compare import CompareOptions

    if fleet not in FLEETS:
        raise InputError(f"unknown fleet '{fleet}': {did_you_mean(fleet, FLEETS)}")
    how = CompareOptions(fleet, target_accuracy)
    command = shlex.join(["fedgsp", "compare", *(names or [])])
    if _are_runs(names or []):
        found, drawn = _finished(names or [], how, out, command, trust)
    else:
        words = {"--data": data, "--model": model, "--rounds": rounds, "--seeds": seeds, "--lr": lr, "--clients": clients,
                 "--target-accuracy": target_accuracy, "--holdout-clients": holdout_clients or None}  # fmt: skip
        for option, value in words.items():
            command += "" if value is None else f" {option} {shlex.quote(str(value))}"
        command += "".join(f" --set {shlex.quote(text)}" for text in sets or [])
        options = (data, clients, model, rounds, seeds, lr, holdout_clients, workers, sets or [], quiet or as_json)
        found, drawn = _run(names or [], how, out, command, *options)
    if as_json:
        typer.echo(json.dumps(found.facts, indent=2))
    elif not quiet:
        typer.echo("\n\n".join([*(table.markdown().rstrip() for table in found.tables), *found.notes]))
        typer.echo(f"\nfiles in {out}: README.md, compare.json, tables as .csv{FIGURES[drawn]}")


def _are_runs(names: list[str]) -> bool:
    """Whether these are run directories; a mixture is refused, as is nothing."""
    from fedgsp.core.errors import InputError
    from fedgsp.methods import METHODS

    if not names:
        raise InputError("there is nothing to compare: name methods (fedgsp compare fedavg fedgsp), or finished runs.")
    kinds = {name: name.split("+")[0] not in METHODS and ("/" in name or Path(name).exists()) for name in names}
    if len(set(kinds.values())) > 1:
        first, second = (next(name for name, is_run in kinds.items() if is_run is kind) for kind in (True, False))
        raise InputError(f"'{first}' is a run directory and '{second}' a method; compare either runs or methods.")
    return all(kinds.values())


def _finished(names: list[str], how: Any, out: Path, command: str, trust: bool) -> tuple[Findings, bool]:
    from fedgsp.study.compare import compared, from_runs
    from fedgsp.study.findings import Origin, write_findings
    from fedgsp.study.finished import read_finished

    runs = read_finished([Path(name) for name in names], trust=trust)
    found = compared(*_arguments(from_runs(runs), how))
    used = {
        str(run.directory): {"method": run.config.method.name, "seed": run.config.run.seed, "rounds": len(run.history)}
        for run in runs
    }
    return found, write_findings(found, Origin("runs", command, runs[0].facts["data"], used), out)


def _run(
    names: list[str], how: Any, out: Path, command: str, data: str, clients: int | None, model: str, rounds: int, seeds: int,
    lr: float | None, holdout: int, workers: str | None, sets: list[str], quiet: bool,
) -> tuple[Findings, bool]:  # fmt: skip
    from fedgsp.cli.bar import progress_bar
    from fedgsp.cli.common import worker_count
    from fedgsp.cli.options import changed
    from fedgsp.cli.units import hint_on_interrupt, watcher
    from fedgsp.core.errors import InputError
    from fedgsp.data import load
    from fedgsp.study.compare import compared, run_methods
    from fedgsp.study.findings import write_findings
    from fedgsp.study.study_runner import Arm, DataFacts, StudyRunner

    if seeds < 1:
        raise InputError(f"--seeds must be at least 1, not {seeds}.")
    with progress_bar(quiet) as progress:
        federation = load(data, clients=clients, progress=progress)
    runner = StudyRunner(
        federation, DataFacts.of(federation, data), out, seeds=seeds, workers=worker_count(workers or "auto"), clients=clients,
        adjust=lambda config: changed(config, sets), watch=watcher(len(names) * seeds, quiet),
    )  # fmt: skip
    with hint_on_interrupt():
        entrants = run_methods(runner, names, Arm(model, rounds, seeds), lr=lr, holdout=holdout)
    found = compared(entrants, how)
    return found, write_findings(found, runner.origin(command, "compare"), out)


def _arguments(grouped: tuple[Any, Any], how: Any) -> tuple[Any, Any, Any]:
    entrants, notes = grouped
    return entrants, how, notes
