"""`fedgsp study`: the paper's figures and tables, measured here."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedgsp.study.paper.dry_runner import DryRunner, PlannedUnit

FIGURES = {True: ", figures as .png and .svg", False: " (figures need matplotlib: pip install 'fedgsp[plot]')"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("study")(study)


def study(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Studies to run: cpd, curves, growth, kappa, table, cost-to-target, all (these six), rivals, fleets or ours. "
            "'report' makes all pages again from the finished runs and trains nothing.",
        ),
    ],
    preset: Annotated[str, typer.Option(help="Settings: smoke (minutes), laptop (hours) or paper (the paper's).")] = "smoke",
    data: Annotated[str | None, typer.Option(help="Data source. Default: the preset's.")] = None,
    model: Annotated[str | None, typer.Option(help="Use only this model. Default: the preset's models.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run. Default: the preset's.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 3 means 0, 1 and 2. Default: the preset's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the study. Default: runs/study-PRESET.")] = None,
    workers: Annotated[str | None, typer.Option(help="Worker processes of a run: a number, auto, or 0 for none.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods of table, rivals, fleets or ours, such as fedavg,fedgsp. For table also: all.")
    ] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="PATH=VALUE sets an entry of every run's config.")] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Estimate the time it will take. Train nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts (or the estimate) as JSON, nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Reproduce the paper's figures, tables and claims. Repeat the command to go on; finished runs are reused."""
    from fedgsp.cli.bar import progress_bar
    from fedgsp.cli.common import worker_count
    from fedgsp.cli.options import changed
    from fedgsp.cli.units import watcher
    from fedgsp.core.errors import InputError
    from fedgsp.data import load
    from fedgsp.study.paper.catalog import studies_named
    from fedgsp.study.paper.dry_runner import DryRunner
    from fedgsp.study.paper.presets import asked_preset
    from fedgsp.study.paper.runner import check_data
    from fedgsp.study.paper.table import all_methods
    from fedgsp.study.store import UnitStore, require_parquet
    from fedgsp.study.study_runner import DataFacts

    chosen = asked_preset(preset, model, rounds)
    _check_sets(sets or [])
    place = out or Path("runs") / f"study-{preset}"
    if names == ["report"]:
        _report(place, quiet)
        return
    wanted = studies_named(names)
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds must be at least 1, not {seeds}.")
    if not estimate:
        require_parquet()
    source = data or chosen.data
    with progress_bar(quiet or as_json) as progress:
        federation = load(source, progress=progress)
    check_data(federation)
    entrants = () if methods is None else all_methods() if methods == "all" else tuple(methods.split(","))
    store, facts = UnitStore(place), DataFacts.of(federation, source)
    options: dict[str, Any] = {"store": store, "seeds": seeds, "workers": worker_count(workers), "methods": entrants,
                               "adjust": lambda config: changed(config, sets or [])}  # fmt: skip
    dry_runner = DryRunner(chosen, federation, facts, place, timed=estimate, **options)
    by_study = _planned(dry_runner, wanted)
    if estimate:
        _estimate(by_study, as_json)
        return
    pending = sum(not unit.done and unit.rounds > 0 for unit in dry_runner.planned.values())
    options["watch"] = watcher(pending, quiet or as_json)
    words = {"preset": preset, "data": source, "model": model, "rounds": rounds, "seeds": seeds, "out": out, "methods": methods}
    asked = {"preset": preset, "model": model, "rounds": rounds, "seeds": seeds, "methods": list(entrants),
             "set": list(sets or []), "command": _command(names, sets, **words), "data": asdict(facts)}  # fmt: skip
    told = {}
    for one in wanted:
        told[one] = _run_study(one, asked, (chosen, federation, facts, place), options, quiet or as_json)
    if as_json:
        typer.echo(json.dumps(told, indent=2))


def _planned(dry_runner: DryRunner, wanted: list[str]) -> dict[str, list[PlannedUnit]]:
    """What each study wants; a unit that several want is with the first."""
    from fedgsp.study.paper.catalog import STUDIES

    by_study = {}
    for one in wanted:
        before = set(dry_runner.planned)
        STUDIES[one].gather(dry_runner)
        by_study[one] = [unit for key, unit in dry_runner.planned.items() if key not in before]
    return by_study


def _run_study(one: str, asked: dict[str, Any], where: tuple[Any, ...], options: dict[str, Any], quiet: bool) -> dict[str, Any]:
    """Train what is missing, write and print the findings; whatever happens, finished runs go into the store."""
    from fedgsp.cli.units import hint_on_interrupt
    from fedgsp.study.findings import write_findings
    from fedgsp.study.paper.catalog import STUDIES
    from fedgsp.study.paper.runner import PaperRunner

    runner, place = PaperRunner(*where, **options), where[-1]
    try:
        with hint_on_interrupt():
            found = STUDIES[one].show(runner, STUDIES[one].gather(runner))
        options["store"].add_study(one, asked)
    finally:
        options["store"].save()
    drawn = write_findings(found, runner.origin(asked["command"], asked["preset"]), place / one)
    if not quiet:
        typer.echo("\n\n".join([found.title, *(table.markdown().rstrip() for table in found.tables), *found.notes]))
        typer.echo(f"\nfiles in {place / one}: README.md, {one}.json, tables as .csv{FIGURES[drawn]}\n")
    return found.facts


def _report(place: Path, quiet: bool) -> None:
    from fedgsp.cli.options import changed
    from fedgsp.report.plotting import can_plot
    from fedgsp.study.paper.report import derive

    drawn = can_plot()
    written = derive(place, adjusted=lambda sets: lambda config: changed(config, list(sets)), draw=drawn)
    if not quiet:
        for file in written:
            typer.echo(f"wrote {file}")
        if not drawn:
            typer.echo("the figures were left as they are: drawing them needs matplotlib (pip install 'fedgsp[plot]').")


def _check_sets(sets: list[str]) -> None:
    """What a study decides itself cannot be set behind its back: its tables would say something else."""
    from fedgsp.core.errors import InputError

    options = {"run.rounds": "--rounds", "run.seed": "--seeds", "run.workers": "--workers", "data.source": "--data",
               "model.name": "--model", "method.name": "--methods"}  # fmt: skip
    for text in sets:
        path = text.partition("=")[0].strip()
        if path in options:
            raise InputError(f"--set cannot change {path} in a study; use {options[path]}.")


def _command(names: list[str], sets: list[str] | None, **options: Any) -> str:
    """The command that gives the same again."""
    words = ["fedgsp", "study", *names]
    for option, value in options.items():
        words += [] if value is None else [f"--{option}", str(value)]
    for text in sets or []:
        words += ["--set", text]
    return shlex.join(words)


def _estimate(by_study: dict[str, list[PlannedUnit]], as_json: bool) -> None:
    """Steps times the time of a step, study by study; a unit that several studies want is counted with the first."""
    if as_json:
        table = {
            study: [{"unit": u.name, "rounds": u.rounds, "steps": u.steps, "step_ms": 1000 * u.step_seconds, "done": u.done,
                     "cpu_seconds": u.seconds} for u in units] for study, units in by_study.items()
        }  # fmt: skip
        typer.echo(json.dumps(table, indent=2))
        return
    from rich.table import Table

    from fedgsp.cli.display import duration, plain_console

    table_ = Table("study", "units", "finished", "SGD steps to do", "ms a step", "longest unit", "one core")
    for name, units in by_study.items():
        left = [unit for unit in units if not unit.done]
        per_step = sorted({round(1000 * unit.step_seconds, 1) for unit in left if unit.step_seconds})
        table_.add_row(
            name, str(len(units)), str(len(units) - len(left)), f"{sum(u.steps for u in left):,}",
            ", ".join(f"{ms:g}" for ms in per_step), duration(max((u.seconds for u in left), default=0.0)),
            duration(sum(u.seconds for u in left)),
        )  # fmt: skip
    console = plain_console()
    console.print(table_)
    total = sum(unit.seconds for units in by_study.values() for unit in units)
    console.print(
        f"in all {duration(total)} of one core, evaluation not counted; a step is measured now on a scratch model, a unit that "
        f"several studies want is counted with the first, and runs longer than 40 minutes come to a whole end on the way.",
        soft_wrap=True,
    )
