"""`fedgsp run --dry-run`: the schedule, the memory, the traffic, the time here and on a fleet; nothing is trained."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import typer

from fedgsp.cli.display import headline, plain_console, size
from fedgsp.core.errors import in_options
from fedgsp.cost import FLEETS, Fleet, PaperCosts, RunCosts, fleet_named, paper_costs_of, planned_cost
from fedgsp.progress import duration
from fedgsp.run.flops import flops_per_sample
from fedgsp.run.forecast import Forecast, forecast
from fedgsp.run.run import Run


def show_dry_run(run: Run, as_json: bool, profile: str | None = None) -> None:
    """Print what a run would be; with a profile its cost on that fleet only, else on all that have a name."""
    fleets = {name: fleet_named(name) for name in ([profile] if profile is not None else FLEETS)}
    expected, formulas = forecast(run), _paper(run)
    costs = _fleet_costs(run, fleets, expected.bytes - run.prepared_bytes)
    if as_json:
        told = expected.as_dict() | {"cost": {name: asdict(cost) for name, cost in costs.items()}}
        if formulas is not None:
            told["paper"] = {**asdict(formulas), "computing": formulas.computing}
        typer.echo(json.dumps(told, indent=2))
        return
    from rich.table import Table

    console = plain_console()
    console.print(headline(run))
    for note in run.notes:
        console.print(f"note: {in_options(note)}", style="yellow")
    table = Table("from round", "groups", "clients a chain", "chains that train", "clients that train", title="Schedule")
    for row in expected.schedule:
        table.add_row(*map(str, _cells(row)))
    console.print(table)
    for line in (*_lines(expected), *_cost_lines(costs, formulas)):
        console.print(line)


def _fleet_costs(run: Run, fleets: dict[str, Fleet], traffic: int) -> dict[str, RunCosts]:
    method, clients = run.config.method, len(run.participants)
    rows = [method.planner.schedule(r, clients) for r in range(1, run.config.run.rounds + 1)]
    samples = float(run.worker_setup.data.train.sizes[run.participants].mean())
    each_way = traffic / 2 / max(1, sum(row.trained * row.passes for row in rows))  # what a client is handed, and hands on
    work = (flops_per_sample(run), method.local.epochs_in, samples, each_way)
    return {name: planned_cost(rows, fleet, *work) for name, fleet in fleets.items()}


def _paper(run: Run) -> PaperCosts | None:
    """The paper's own formulas, which are about groups of one size."""
    return paper_costs_of(run.config.method, len(run.participants), run.config.run.rounds)


def _cost_lines(costs: dict[str, RunCosts], formulas: PaperCosts | None) -> list[str]:
    lines = [
        f"fleet    {name}: {duration(cost.seconds)}; the longest chains take {duration(cost.chains)}, "
        f"{duration(cost.computing)} of it computing; {size(cost.traffic)} through the server"
        for name, cost in costs.items()
    ]
    if formulas is not None:
        lines.append(
            f"paper    by its formulas and constants: T_comp {duration(formulas.computing)}, "
            f"T_comm {duration(formulas.communication)}, D_comm {size(formulas.traffic)}"
        )
    return lines


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
