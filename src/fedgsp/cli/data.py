"""`fedgsp data`: see what a source holds, prepare it, write it out, and look after the cache."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgsp.cli import common
from fedgsp.cli.bar import progress_bar

data_app = typer.Typer(
    help="Bring your own data: inspect it, prepare it, write it out, manage the cache.", no_args_is_help=True
)

Source = Annotated[str, typer.Argument(help="E.g. leaf:DIR, csv:FILE:label=y,client=site; see docs/data.md.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(data_app, name="data")


@data_app.command("inspect")
def inspect(
    source: Source,
    plot: Annotated[Path | None, typer.Option(help="Draw a picture into this file (.png, .pdf, .svg).")] = None,
    clients: common.Clients = None,
    data_seed: common.DataSeed = None,
    as_json: common.AsJson = False,
) -> None:
    """Show how many clients a source has, how large and how skewed they are, and what is wrong."""
    from fedgsp.data import load
    from fedgsp.report.inspect import inspect as look

    with progress_bar(as_json) as progress:
        data = load(source, data_seed=data_seed, clients=clients, progress=progress)
        found = look(data, progress=progress)
    if plot is not None:
        from fedgsp.report.picture import draw

        draw(data, found, plot)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    from fedgsp.cli.inspection import show

    show(found)
    if plot is not None:
        typer.echo(f"picture: {plot}")


@data_app.command("prepare")
def prepare(source: Source, quiet: common.Quiet = False) -> None:
    """Convert a source into the cache now, so that runs start at once."""
    from fedgsp.data import load

    began = time.monotonic()
    with progress_bar(quiet) as progress:
        data = load(source, progress=progress)
        fingerprint = data.fingerprint
    if not quiet:
        typer.echo(
            f"{len(data):,} clients, {data.samples:,} samples, fingerprint {fingerprint[:16]}, "
            f"ready after {time.monotonic() - began:.1f} s"
        )


@data_app.command("export")
def export(
    source: Source,
    to: Annotated[str, typer.Option(help="Format: npz or leaf.")],
    out: Annotated[Path, typer.Option(help="New file (npz) or directory (leaf).")],
    quiet: common.Quiet = False,
) -> None:
    """Write a source as one .npz file or as a LEAF directory, to be read back exactly."""
    from fedgsp.data import load
    from fedgsp.data.export import export as write

    with progress_bar(quiet) as progress:
        data = load(source, progress=progress)
        write(data, to, out, progress)
    if not quiet:
        typer.echo(f"{out}: {len(data):,} clients, {data.samples:,} samples, fingerprint {data.fingerprint[:16]}")


@data_app.command("list")
def list_entries(as_json: common.AsJson = False) -> None:
    """List what is in the cache, where it is and how large it is."""
    from fedgsp.cli.display import size
    from fedgsp.core.cache_folder import cache_root
    from fedgsp.data.cache_admin import items

    found = items()
    total = sum(item.size for item in found)
    if as_json:
        table = {"schema": 1, "folder": str(cache_root()), "bytes": total, "entries": [item.as_dict() for item in found]}
        typer.echo(json.dumps(table, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if found:
        table_view = Table("key begins", "from", "clients", "samples", "size", "made", box=None, padding=(0, 2, 0, 0))
        for item in found:
            table_view.add_row(*_cells(item.as_dict(), size(item.size)))
        console.print(table_view)
    console.print(f"{cache_root()}: {len(found)} entries, {size(total)}", soft_wrap=True)


@data_app.command("clear")
def clear(
    keys: Annotated[list[str] | None, typer.Argument(help="Keys, or their beginnings (default: everything).")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete prepared data. It is made again when it is needed."""
    from fedgsp.cli.display import size
    from fedgsp.data import cache_admin

    found = cache_admin.items()
    if not keys and found and not yes:
        typer.confirm(f"Remove all {len(found)} entries ({size(sum(item.size for item in found))})?", abort=True)
    freed, busy = cache_admin.clear(keys or [])
    typer.echo(f"{size(freed)} freed")
    for key in busy:
        typer.echo(f"{key} is being built by another process and stays", err=True)


def _cells(item: dict[str, Any], room: str) -> list[str]:
    made = time.strftime("%Y-%m-%d", time.localtime(item["made"])) if item["made"] else ""
    state = "" if item["state"] == "whole" else f"({item['state']})"
    count, samples = (f"{item[name]:,}" if item[name] else "" for name in ("clients_count", "samples"))
    return [item["key"][:20], state or str(item["origin"] or item["kind"] or ""), count, samples, room, made]
