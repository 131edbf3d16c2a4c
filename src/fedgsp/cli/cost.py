"""`fedgsp cost`: how long would these runs take on a fleet of devices?"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("cost")(cost)


def cost(
    directories: Annotated[list[Path], typer.Argument(help="Run directories.")],
    fleet: Annotated[
        str, typer.Option("--profile", "--fleet", help="paper, phone-4g, phone-wifi, hospital-fibre or FILE.toml.")
    ] = "paper",
    rounds: Annotated[int | None, typer.Option(help="Only the first so many rounds.")] = None,
    device_gflops: Annotated[float | None, typer.Option(help="What a device computes, in GFLOP/s.")] = None,
    down_mbps: Annotated[float | None, typer.Option(help="A client's download, in Mbit/s.")] = None,
    up_mbps: Annotated[float | None, typer.Option(help="A client's upload, in Mbit/s.")] = None,
    latency_ms: Annotated[float | None, typer.Option(help="One way, in ms.")] = None,
    server_mbps: Annotated[float | None, typer.Option(help="The server's link, shared by all chains; 0: wide enough.")] = None,
    relay: Annotated[str | None, typer.Option(help="manager (up, then down) or direct (device to device).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Work out what runs would take on a fleet: by what really happened, and by the paper's formulas."""
    from fedgsp.cost import fleet_named

    said: dict[str, Any] = {
        "device_flops": None if device_gflops is None else device_gflops * 1e9,
        "down_bits": None if down_mbps is None else down_mbps * 1e6,
        "up_bits": None if up_mbps is None else up_mbps * 1e6,
        "latency": None if latency_ms is None else latency_ms / 1e3,
        "server_bits": None if server_mbps is None else server_mbps * 1e6,
        "relay": relay,
    }
    chosen = replace(fleet_named(fleet), **{name: value for name, value in said.items() if value is not None and value != 0})
    if server_mbps == 0:
        chosen = replace(chosen, server_bits=None)
    verdicts = [_of_run(directory, chosen, rounds) for directory in directories]
    if as_json:
        typer.echo(json.dumps({"fleet": asdict(chosen), "runs": verdicts}, indent=2))
        return
    _show(verdicts)


def _of_run(directory: Path, fleet: Any, rounds: int | None) -> dict[str, Any]:
    from fedgsp.cost import paper_costs, run_cost
    from fedgsp.plan import Grouped
    from fedgsp.run.config import read_config
    from fedgsp.run.directory import latest_checkpoint
    from fedgsp.run.files import read_lines
    from fedgsp.run.flops import flops_per_sample
    from fedgsp.run.setup import prepare

    config = read_config(directory / "config.toml")
    found = latest_checkpoint(directory)
    if found is None or found[0].round == 0:
        from fedgsp.core.errors import InputError

        raise InputError(f"{directory} has not finished a round, so it has no cost yet.")
    count = min(found[0].round, rounds or found[0].round)
    setup = prepare(config)
    epochs = config.method.local.epochs
    flops = flops_per_sample(setup)
    real = run_cost(read_lines(directory / "events.jsonl"), fleet, flops, epochs, count)
    verdict: dict[str, Any] = {"run": str(directory), "method": config.method.name, "flops_per_sample": flops, **asdict(real)}
    if isinstance(config.method.planner, Grouped):
        planner = config.method.planner
        paper = paper_costs(planner.growth, len(setup.roster), count, planner.kappa, epochs)
        verdict["paper"] = {**asdict(paper), "computing": paper.computing}
    return verdict


def _show(verdicts: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from fedgsp.cli.display import duration, plain_console, size

    table = Table(
        "run", "method", "rounds", "visits", "time", "longest chains", "of it computing", "through the server",
        "paper: T_comp", "T_comm", "D_comm",
    )  # fmt: skip
    for verdict in verdicts:
        paper = verdict.get("paper")
        formulas = (
            (duration(paper["computing"]), duration(paper["communication"]), size(paper["traffic"])) if paper else ("", "", "")
        )
        table.add_row(
            verdict["run"], verdict["method"], str(verdict["rounds"]), str(verdict["visits"]), duration(verdict["seconds"]),
            duration(verdict["chains"]), duration(verdict["computing"]), size(verdict["traffic"]), *formulas,
        )  # fmt: skip
    plain_console().print(table)
