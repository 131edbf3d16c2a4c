"""`fedgsp watch`: a page that shows runs while they train."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedgsp.report.live.server import WatchServer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("watch")(watch)


def watch(
    places: Annotated[list[Path], typer.Argument(help="Run directories, or directories with runs inside.")],
    host: Annotated[
        str, typer.Option(help="Serve on this address; others than this machine then need the token.")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="Port (default: 8427 where it is free, else any).")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve a live page of runs, read-only, until Ctrl-C. Runs may start, stop and resume meanwhile."""
    from fedgsp.core.errors import InputError
    from fedgsp.report.live.server import WatchServer

    for place in places:
        if not place.is_dir():
            raise InputError(f"{place} is not a directory; give the directory of a run, or one that has runs inside.")
    with WatchServer(places, host, port) as server:
        announce(server, open_)
        server.serve_forever()


@contextmanager
def watched(place: Path, wanted: bool, quiet: bool) -> Iterator[None]:
    """Serve a live page of one run while it trains, where that is wanted."""
    if not wanted:
        yield
        return
    from fedgsp.report.live.server import WatchServer

    with WatchServer([place]) as server:
        server.in_background()
        if not quiet:
            announce(server)
        try:
            yield
        finally:
            server.shutdown()


def announce(server: WatchServer, open_: bool = False) -> None:
    """Say where the page is."""
    typer.echo(f"watching at {server.url}")
    if not server.is_local:
        typer.echo("note: others can reach this address; whoever has it, with its token, can see the runs.", err=True)
    if open_:
        import webbrowser

        webbrowser.open(server.url)
