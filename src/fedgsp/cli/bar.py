"""A progress bar for long work on data: on a terminal a bar with the time left, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedgsp.data.cache import Progress  # only for the type: commands that need no data must start at once

LINE_EVERY = 10.0


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress]:
    """What to hand to `load`: it writes to stderr, so that results on stdout stay clean."""
    if quiet:
        yield lambda what, done, total: None
    elif not sys.stderr.isatty():
        yield _lines()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description}"), BarColumn(None), TaskProgressColumn(), TimeRemainingColumn())
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            tasks: dict[str, int] = {}

            def report(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = int(bars.add_task(what, total=total or None))
                bars.update(tasks[what], completed=done, total=total or None)  # type: ignore[arg-type]

            yield report


def _lines() -> Progress:
    """One line every ten seconds, none for short work."""
    last = time.monotonic()

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY:
            last = time.monotonic()
            print(f"{what}: {100 * done / total:.0f} %" if total else what, file=sys.stderr, flush=True)

    return report
