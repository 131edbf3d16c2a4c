"""`fedgsp report`: runs as one page that opens anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    places: Annotated[list[Path], typer.Argument(help="Run directories, or directories with runs inside (a study).")],
    out: Annotated[Path | None, typer.Option(help="The page (default: report.html in the directory given).")] = None,
    figures: Annotated[Path | None, typer.Option(help="Also the figures as PNG and SVG, into this folder.")] = None,
    title: Annotated[str | None, typer.Option(help="A title of your own.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Write a self-contained HTML page about runs: no network needed, made to be shown."""
    from fedgsp.report.build import default_place, read_runs, write_report

    if figures is not None:
        from fedgsp.report.plotting import require_plotting

        require_plotting()
    runs = read_runs(places)
    made = write_report(runs, out or default_place(places), title)
    drawn: list[Path] = []
    if figures is not None:
        from fedgsp.report.figures import draw_figures

        drawn = draw_figures(runs, figures)
    if not quiet:
        typer.echo(f"report: {made} ({made.stat().st_size / 1e6:.1f} MB, {len(runs)} run{'s' * (len(runs) != 1)})")
        if drawn:
            typer.echo(f"figures: {len(drawn)} files in {figures}")
    if open_:
        import webbrowser

        webbrowser.open(made.resolve().as_uri())
