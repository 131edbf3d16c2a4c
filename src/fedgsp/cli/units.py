"""What a person sees while a study's units run: which of how many, and the run's own display on a terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from fedgsp.cli.display import LiveDisplay, duration
from fedgsp.core.chain import Plan
from fedgsp.core.errors import Terminated
from fedgsp.engine.job import EngineEvent
from fedgsp.run.metrics import window_words
from fedgsp.run.observers import Observer
from fedgsp.run.result import RunResult
from fedgsp.run.setup import Setup

LINE_EVERY = 60.0


class UnitLines(Observer):
    """A line when a unit begins, one a minute, and one when it ends; on the error stream, so that results stay clean.

    On a terminal there is a live display between the first line and the last, and no others.
    """

    def __init__(self, name: str, number: Callable[[], str], live: Observer | None = None) -> None:
        self._name, self._number, self._live = name, number, live or Observer()
        self._began = self._told = time.monotonic()
        self._every = math.inf if live else LINE_EVERY
        self._rounds, self._score, self._ending = 0, "loss", ""

    def started(self, setup: Setup, journal: list[dict[str, Any]]) -> None:
        """Which unit, and where it goes on."""
        self._rounds, self._score = setup.config.run.rounds, setup.job.task.score or "loss"
        gone_on = f", going on after round {journal[-1]['round']}" if journal else ""
        typer.echo(f"[{self._number()}] {self._name}: {self._rounds} rounds{gone_on}", err=True)
        self._live.started(setup, journal)

    def round_begun(self, plan: Plan) -> None:
        """For the live display."""
        self._live.round_begun(plan)

    def event(self, event: EngineEvent) -> None:
        """For the live display."""
        self._live.event(event)

    def evaluating(self, round_: int) -> None:
        """For the live display."""
        self._live.evaluating(round_)

    def round_done(self, entry: dict[str, Any]) -> None:
        """A line now and then."""
        self._live.round_done(entry)
        if time.monotonic() - self._told >= self._every:
            self._told = time.monotonic()
            shown = f", {self._score} {entry[self._score]:.4f}" if self._score in entry else ""
            typer.echo(f"    round {entry['round']} of {self._rounds}{shown}", err=True)

    def ended(self, result: RunResult) -> None:
        """Its figure and its time."""
        value, rounds = result.figures.final.get(self._score), result.figures.final_rounds
        shown = f"{self._score} {value:.4f} ({window_words(rounds)}), " if value is not None else ""
        self._ending = f"    {shown}{duration(time.monotonic() - self._began)}"

    def closed(self) -> None:
        """Say how it ended, after the live display is gone."""
        self._live.closed()
        if self._ending:
            typer.echo(self._ending, err=True)


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
        return [UnitLines(name, number, LiveDisplay() if sys.stderr.isatty() and sys.stdout.isatty() else None)]

    return watch
