"""What a person sees while a study's units run: which of how many, and the run's own display on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from fedgsp.cli.display import LiveDisplay, duration
from fedgsp.core.errors import Terminated
from fedgsp.run.observers import Observer
from fedgsp.run.result import RunResult
from fedgsp.run.setup import Setup

LINE_EVERY = 60.0


class UnitLines(Observer):
    """A line when a unit begins, one a minute, and one when it ends; on the error stream, so that results stay clean."""

    def __init__(self, name: str, number: Callable[[], str]) -> None:
        self._name, self._number = name, number
        self._began = self._told = time.monotonic()
        self._rounds, self._score = 0, "loss"

    def started(self, setup: Setup, journal: list[dict[str, Any]]) -> None:
        """Which unit, and where it goes on."""
        self._rounds, self._score = setup.config.run.rounds, setup.job.task.score or "loss"
        gone_on = f", going on after round {journal[-1]['round']}" if journal else ""
        typer.echo(f"[{self._number()}] {self._name}: {self._rounds} rounds{gone_on}", err=True)

    def round_done(self, entry: dict[str, Any]) -> None:
        """Now and then."""
        if time.monotonic() - self._told >= LINE_EVERY:
            self._told = time.monotonic()
            shown = f", {self._score} {entry[self._score]:.4f}" if self._score in entry else ""
            typer.echo(f"    round {entry['round']} of {self._rounds}{shown}", err=True)

    def ended(self, result: RunResult) -> None:
        """Its figure and its time."""
        value = result.figures.final.get(self._score)
        shown = f"{self._score} {value:.4f}, " if value is not None else ""
        typer.echo(f"    {shown}{duration(time.monotonic() - self._began)}", err=True)


@contextmanager
def hint_on_interrupt() -> Iterator[None]:
    """After Ctrl-C or SIGTERM say that nothing is lost."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        typer.echo("fedgsp: interrupted; nothing finished is lost. Give the same command again to go on.", err=True)
        raise


def watcher(pending: int, quiet: bool) -> Callable[[str], Sequence[Observer]]:
    """What to hand to a lab: observers for each unit, by its name; `pending` units are not finished yet."""
    begun = 0

    def number() -> str:
        nonlocal begun
        begun += 1
        return f"{begun}/{max(begun, pending)}"

    def watch(name: str) -> Sequence[Observer]:
        if quiet:
            return []
        lines: list[Observer] = [UnitLines(name, number)]
        if sys.stderr.isatty() and sys.stdout.isatty():
            lines.append(LiveDisplay())
        return lines

    return watch
