"""`fedgsp report`: runs in, one page out, and figures for papers where they are wanted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from fedgsp.core import __version__
from fedgsp.core.errors import InputError
from fedgsp.report.page import build
from fedgsp.report.payload import payload
from fedgsp.report.runview import RunView
from fedgsp.run.discover import need_runs
from fedgsp.run.files import CannotWrite, write_whole
from fedgsp.run.result import RunResult


def read_runs(places: Sequence[Path]) -> list[RunView]:
    """All runs that are meant by some places, read."""
    runs = [RunView(path) for path in need_runs(list(places))]
    for run in runs:
        run.read()
    return runs


def write_report(runs: Sequence[RunView], out: Path, title: str | None = None) -> Path:
    """Write the page; it is whole or absent."""
    made = f"Made by fedgsp {__version__} on {time.strftime('%Y-%m-%d at %H:%M')}."
    page = build(payload(runs, title), made)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, page.encode())
    except (OSError, CannotWrite) as error:
        raise InputError(f"the report {out} cannot be written; choose another place with `out=`.") from error
    return out


def make_report(
    *places: str | Path | RunResult, out: str | Path | None = None, title: str | None = None, figures: str | Path | None = None
) -> Path:
    """Write the report of runs: one HTML page that needs nothing else.

    Args:
        places: Run directories, folders with runs inside, or results of runs that have a directory. A damaged run is shown as
            damaged.
        out: Where to write the page. None: `report.html` in the one directory given, or in the current one.
        title: The page's title.
        figures: Also the figures as PNG and SVG, into this folder; needs matplotlib.

    Returns:
        The page's path.

    Raises:
        InputError: There is no run in these places, or the page cannot be written.
    """
    folders = [_folder(place) for place in places]
    runs = read_runs(folders)
    if figures is not None:
        from fedgsp.report.figures import draw_figures
        from fedgsp.report.plotting import require_plotting

        require_plotting()
        draw_figures(runs, Path(figures))
    return write_report(runs, Path(out) if out else default_place(folders), title)


def _folder(place: str | Path | RunResult) -> Path:
    if not isinstance(place, RunResult):
        return Path(place)
    if place.directory is None:
        raise InputError("this run wrote nothing down, so there is nothing to report; train it with `out=...`.")
    return place.directory


def default_place(places: Sequence[Path]) -> Path:
    """Inside the one directory that was given; beside the person where there are several."""
    return places[0] / "report.html" if len(places) == 1 else Path("report.html")
