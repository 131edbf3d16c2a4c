"""`fedgsp cost`: how long would these runs take on a fleet of devices?"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgsp.cli import common


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("cost")(cost)


def cost(
    directories: Annotated[list[Path], typer.Argument(help="Run directories.")],
    fleet: Annotated[
        str, typer.Option(help="Fleet that times are estimated for: paper, phone-4g, phone-wifi, hospital-fibre or FILE.toml.")
    ] = "paper",
    rounds: Annotated[int | None, typer.Option(help="Only the first so many rounds.")] = None,
    device_gflops: Annotated[float | None, typer.Option(help="What a device computes, in GFLOP/s.")] = None,
    down_mbps: Annotated[float | None, typer.Option(help="A client's download, in Mbit/s.")] = None,
    up_mbps: Annotated[float | None, typer.Option(help="A client's upload, in Mbit/s.")] = None,
    latency_ms: Annotated[float | None, typer.Option(help="One way, in ms.")] = None,
    server_mbps: Annotated[float | None, typer.Option(help="The server's link, shared by all chains; 0: wide enough.")] = None,
    relay: Annotated[
        str | None, typer.Option(help="How models are handed on: manager (up, then down) or direct (device to device).")
    ] = None,
    trust: common.Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Work out what runs would take on a fleet: by what really happened, and by the paper's formulas."""
    from fedgsp.cost import fleet_named
    from fedgsp.report.run_costs import cost as cost_of_runs

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
    costs = cost_of_runs(*directories, fleet=chosen, rounds=rounds, trust=trust).runs
    if as_json:
        typer.echo(json.dumps({"fleet": asdict(chosen), "runs": costs}, indent=2))
        return
    _show(costs)


def _show(costs: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from fedgsp.cli.display import plain_console, size
    from fedgsp.progress import duration

    table = Table(
        "run", "method", "rounds", "visits", "time", "longest chains", "of it computing", "through the server",
        "paper: T_comp", "T_comm", "D_comm",
    )  # fmt: skip
    for cost in costs:
        paper = cost.get("paper")
        formulas = (
            (duration(paper["computing"]), duration(paper["communication"]), size(paper["traffic"])) if paper else ("", "", "")
        )
        table.add_row(
            cost["run"], cost["method"], str(cost["rounds"]), str(cost["visits"]), duration(cost["seconds"]),
            duration(cost["chains"]), duration(cost["computing"]), size(cost["traffic"]), *formulas,
        )  # fmt: skip
    plain_console().print(table)
