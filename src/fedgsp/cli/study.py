"""`fedgsp study`: the paper's figures and tables, measured here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedgsp.study.findings import Findings
    from fedgsp.study.paper.dry_runner import PlannedUnit

FIGURES = {True: ", figures as .png and .svg", False: " (figures need matplotlib: pip install 'fedgsp[plot]')"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("study")(study)


def study(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Studies to run: cpd, curves, growth, kappa, table, cost-to-target, all (these six), rivals, fleets, "
            "ours, skew, few-clients, adaptive, ablation, advice or robustness. "
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
    merge: Annotated[
        Path | None, typer.Option(help="With 'report': first take in the finished runs and studies of this folder.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods of table, rivals, fleets, ours or skew, such as fedavg,fedgsp. For table also: all."),
    ] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="PATH=VALUE sets an entry of every run's config.")] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Estimate the time it will take. Train nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts (or the estimate) as JSON, nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Reproduce the paper's figures, tables and claims. Repeat the command to go on; finished runs are reused."""
    from fedgsp.cli.bar import progress_bar
    from fedgsp.cli.common import worker_count
    from fedgsp.cli.units import hint_on_interrupt, watcher
    from fedgsp.study.paper.conduct import StudyRequest, conduct, estimate_study

    wanted = None if methods is None else methods.split(",")
    asked = StudyRequest(names, preset, data, model, rounds, seeds, out, worker_count(workers), wanted, sets or ())
    if names == ["report"]:
        asked.chosen()
        _report(asked.place, merge, quiet)
        return
    silent = quiet or as_json
    with progress_bar(silent) as progress:
        opened = asked.opened(progress, trained=not estimate)
    if estimate:
        _estimate(estimate_study(asked, opened), as_json)
        return

    def show(one: str, found: Findings, drawn: bool) -> None:
        if not silent:
            typer.echo("\n\n".join([found.title, *(table.markdown().rstrip() for table in found.tables), *found.notes]))
            figures = FIGURES[drawn].replace(" and .svg", "")
            typer.echo(f"\nfiles in {asked.place / one}: README.md, {one}.json, tables as .csv{figures}\n")

    with hint_on_interrupt():
        told = conduct(asked, opened, lambda pending: watcher(pending, silent), show)
    if as_json:
        typer.echo(json.dumps({name: found.facts for name, found in told.items()}, indent=2))


def _report(place: Path, merge: Path | None, quiet: bool) -> None:
    from fedgsp.report.plotting import can_plot
    from fedgsp.run.overlay import changed
    from fedgsp.study.paper.report import derive
    from fedgsp.study.store import UnitStore

    if merge is not None:
        store = UnitStore(place)
        taken = store.merge(UnitStore(merge))
        store.save()
        if not quiet:
            typer.echo(f"took {len(taken)} runs from {merge}")
    drawn = can_plot()
    written = derive(place, adjusted=lambda sets: lambda config: changed(config, list(sets)), draw=drawn)
    if not quiet:
        for file in written:
            typer.echo(f"wrote {file}")
        if not drawn:
            typer.echo("the figures were left as they are: drawing them needs matplotlib (pip install 'fedgsp[plot]').")


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

    from fedgsp.cli.display import plain_console
    from fedgsp.progress import duration

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
