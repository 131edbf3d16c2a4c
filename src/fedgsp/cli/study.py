"""`fedgsp study`: the paper's figures and tables, measured here."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedgsp.study.lab import Planned


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("study")(study)


def study(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="cpd, curves, growth, kappa, table, cost-to-target, all (these), rivals, report"
        ),
    ],
    preset: Annotated[str, typer.Option(help="smoke (minutes), laptop (hours) or paper (the paper's settings).")] = "smoke",
    data: Annotated[str | None, typer.Option(help="Data source (default: the preset's).")] = None,
    model: Annotated[str | None, typer.Option(help="This model only (default: the preset's).")] = None,
    rounds: Annotated[int | None, typer.Option(help="So many rounds in every run (default: the preset's).")] = None,
    seeds: Annotated[int | None, typer.Option(help="So many seeds, 0, 1, .. (default: the preset's).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the study (default: runs/study-PRESET).")] = None,
    workers: Annotated[str | None, typer.Option(help="Worker processes of a run: a number, auto, or 0 for none.")] = None,
    methods: Annotated[str | None, typer.Option(help="For table and rivals: fedavg,fedgsp,.. (table: or all).")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="PATH=VALUE for any entry of every run.")] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what it will take; run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts (or the estimate) as JSON, nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Reproduce the paper: figures, tables, claims. Repeat the command to go on; finished units are reused."""
    from fedgsp.cli.bar import progress_bar
    from fedgsp.cli.options import changed
    from fedgsp.cli.run import _workers
    from fedgsp.cli.units import hint_on_interrupt, watcher
    from fedgsp.core.errors import InputError
    from fedgsp.data import load
    from fedgsp.report.plotting import require_plotting
    from fedgsp.study.catalog import STUDIES, studies_named
    from fedgsp.study.findings import write_findings
    from fedgsp.study.lab import Lab, Rehearsal, check_data
    from fedgsp.study.presets import preset_named, with_model, with_rounds
    from fedgsp.study.table import all_methods

    chosen = preset_named(preset) if model is None else with_model(preset_named(preset), model)
    chosen = chosen if rounds is None else with_rounds(chosen, rounds)
    _check_sets(sets or [])
    place = out or Path("runs") / f"study-{preset}"
    if names == ["report"]:
        _report(place, quiet)
        return
    wanted = studies_named(names)
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds must be at least 1, not {seeds}.")
    require_plotting()
    source = data or chosen.data
    with progress_bar(quiet or as_json) as progress:
        federation = load(source, progress=progress)
    check_data(federation)
    entrants = () if methods is None else all_methods() if methods == "all" else tuple(methods.split(","))
    options: dict[str, Any] = {
        "seeds": seeds, "workers": _workers(workers), "methods": entrants, "adjust": lambda config: changed(config, sets or []),
    }  # fmt: skip
    where = (chosen, federation, source, place)
    rehearsal = Rehearsal(*where, timed=estimate, **options)
    by_study = {}
    for one in wanted:
        before = set(rehearsal.planned)
        STUDIES[one].gather(rehearsal)
        by_study[one] = [unit for key, unit in rehearsal.planned.items() if key not in before]
    if estimate:
        _estimate(by_study, as_json)
        return
    pending = sum(not unit.done and unit.rounds > 0 for unit in rehearsal.planned.values())
    watch = watcher(pending, quiet or as_json)
    said = {"preset": preset, "data": source, "model": model, "rounds": rounds, "seeds": seeds, "out": out, "methods": methods}
    command = _command(names, sets, **said)
    facts = {}
    for one in wanted:
        lab = Lab(*where, watch=watch, **options)
        with hint_on_interrupt():
            found = STUDIES[one].show(lab, STUDIES[one].gather(lab))
        write_findings(found, lab.origin(command), place / one)
        facts[one] = found.facts
        if not (quiet or as_json):
            typer.echo("\n\n".join([found.title, *(table.markdown().rstrip() for table in found.tables), *found.notes]))
            typer.echo(f"\nfiles in {place / one}: README.md, {one}.json, tables as .csv, figures as .png and .svg\n")
    if as_json:
        typer.echo(json.dumps(facts, indent=2))


def _report(place: Path, quiet: bool) -> None:
    from fedgsp.study.summary import write_report

    written = write_report(place)
    if not quiet:
        for file in written:
            typer.echo(f"wrote {file}")


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


def _estimate(by_study: dict[str, list[Planned]], as_json: bool) -> None:
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
