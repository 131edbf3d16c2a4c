"""What a person sees while a study's units run: which of how many, and the run's own display on a terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from fedgsp.cli.display import LiveDisplay
from fedgsp.core.chain import Plan
from fedgsp.core.errors import Terminated
from fedgsp.engine.messages import HopDone
from fedgsp.progress import duration
from fedgsp.run.callbacks import Callback, Failure
from fedgsp.run.metrics import window_words
from fedgsp.run.result import RunResult
from fedgsp.run.run import Run

LINE_EVERY = 60.0


class UnitLines(Callback):
    """A line when a unit begins, one a minute, and one when it ends; on the error stream, so that results stay clean.

    On a terminal there is a live display between the first line and the last, and no others.
    """

    def __init__(self, name: str, number: Callable[[], str], live: Callback | None = None) -> None:
        self._name, self._number, self._live = name, number, live or Callback()
        self._began = self._told = time.monotonic()
        self._every = math.inf if live else LINE_EVERY
        self._rounds, self._score, self._ending = 0, "loss", ""

    def on_run_start(self, run: Run, history: list[dict[str, Any]]) -> None:
        """Which unit, and where it goes on."""
        self._rounds, self._score = run.config.run.rounds, run.worker_setup.task.score or "loss"
        gone_on = f", going on after round {history[-1]['round']}" if history else ""
        typer.echo(f"[{self._number()}] {self._name}: {self._rounds} rounds{gone_on}", err=True)
        self._live.on_run_start(run, history)

    def on_round_start(self, plan: Plan) -> None:
        """For the live display."""
        self._live.on_round_start(plan)

    def on_hop_end(self, hop: HopDone) -> None:
        """For the live display."""
        self._live.on_hop_end(hop)

    def on_failure(self, failure: Failure) -> None:
        """For the live display."""
        self._live.on_failure(failure)

    def on_evaluate_start(self, round_: int) -> None:
        """For the live display."""
        self._live.on_evaluate_start(round_)

    def on_round_end(self, entry: dict[str, Any]) -> None:
        """A line now and then."""
        self._live.on_round_end(entry)
        if time.monotonic() - self._told >= self._every:
            self._told = time.monotonic()
            shown = f", {self._score} {entry[self._score]:.4f}" if self._score in entry else ""
            typer.echo(f"    round {entry['round']} of {self._rounds}{shown}", err=True)

    def on_run_end(self, result: RunResult) -> None:
        """Its figure and its time."""
        value, rounds = result.figures.final.get(self._score), result.figures.final_rounds
        shown = f"{self._score} {value:.4f} ({window_words(rounds)}), " if value is not None else ""
        self._ending = f"    {shown}{duration(time.monotonic() - self._began)}"

    def close(self) -> None:
        """Say how it ended, after the live display is gone."""
        self._live.close()
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


def watcher(pending: int, quiet: bool) -> Callable[[str], Sequence[Callback]]:
    """What to hand to a lab: callbacks for each unit, by its name; `pending` units are not finished yet."""
    begun = 0

    def number() -> str:
        nonlocal begun
        begun += 1
        return f"{begun}/{max(begun, pending)}"

    def watch(name: str) -> Sequence[Callback]:
        if quiet:
            return []
        return [UnitLines(name, number, LiveDisplay() if sys.stderr.isatty() and sys.stdout.isatty() else None)]

    return watch
