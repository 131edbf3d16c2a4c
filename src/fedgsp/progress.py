"""A progress bar for runs that are started in Python: in a notebook as HTML that is updated in place, on a terminal by rich.

Nothing of it changes a run. The command line has a display of its own (`cli/display.py`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from fedgsp.run.callbacks import Callback

if TYPE_CHECKING:
    from fedgsp.core.chain import Plan
    from fedgsp.engine.messages import HopDone
    from fedgsp.run.result import RunResult
    from fedgsp.run.run import Run

EVERY = 0.2
"""Seconds between two updates on the way through a round."""
RECENT = 10
"""Rounds that the time left is judged by."""


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


class Surface(Protocol):
    """Where a bar is drawn."""

    def show(self, share: float, text: str) -> None:
        """So much of the work is done, and these are the words beside the bar."""
        ...

    def close(self) -> None:
        """Leave the last state, or nothing, behind."""
        ...


class NotebookSurface:
    """An output of a notebook's cell that is updated in place; it needs no widgets."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, share: float, text: str) -> None:
        """Update the cell's output."""
        from IPython import display as shown

        bar = f'<progress value="{share:.4f}" max="1" style="width:16em"></progress> <span>{escape(text)}</span>'
        if self._handle is None:
            self._handle = shown.display(shown.HTML(bar), display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(shown.HTML(bar))  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """The last state stays."""


class TerminalSurface:
    """A line at the end of the terminal, gone when the work is done; on the error stream, so that results stay clean."""

    def __init__(self) -> None:
        self._bars: Any = None

    def show(self, share: float, text: str) -> None:
        """Update the line."""
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            words = TextColumn("{task.description}", markup=False)
            self._bars = Progress(BarColumn(30), words, console=Console(stderr=True), transient=True)
            self._bars.add_task("", total=1.0)
            self._bars.start()
        self._bars.update(self._bars.task_ids[0], completed=share, description=text)

    def close(self) -> None:
        """Give the terminal back."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


class ProgressBar(Callback):
    """Shows how far a run is, its score, and the time left.

    Args:
        title: What is shown first; None: the method's name.
        surface: Where it is drawn; None: the notebook's output, else the terminal.

    Example:
        >>> import fedgsp
        >>> bar = fedgsp.ProgressBar("mine")
        >>> result = fedgsp.train("fedavg", "glyphs:clients=10", rounds=1, workers=0, callbacks=[bar])  # doctest: +SKIP
    """

    def __init__(self, title: str | None = None, surface: Surface | None = None) -> None:
        self._title, self._named = title, title is not None
        self._surface = surface or (NotebookSurface() if in_notebook() else TerminalSurface())
        self._rounds, self._done, self._score = 1, 0, "loss"
        self._hops, self._walked = 0, 0
        self._value: float | None = None
        self._seconds: list[float] = []
        self._began = self._shown = 0.0

    def on_run_start(self, run: Run, history: list[dict[str, Any]]) -> None:
        """Begin, or go on after the rounds before."""
        self._title = self._title if self._named else run.config.method.name
        self._rounds, self._score = run.config.run.rounds, run.worker_setup.task.score or "loss"
        self._done = history[-1]["round"] if history else 0
        self._show()

    def on_round_start(self, plan: Plan) -> None:
        """New chains."""
        self._hops, self._walked, self._began = sum(len(chain) for chain in plan.chains), 0, time.monotonic()

    def on_hop_end(self, hop: HopDone) -> None:
        """A client has trained."""
        self._walked += 1
        if time.monotonic() - self._shown >= EVERY:
            self._show()

    def on_round_end(self, entry: dict[str, Any]) -> None:
        """A round is done."""
        self._done, self._walked = entry["round"], 0
        self._value = entry.get(self._score, self._value)
        self._seconds = [*self._seconds, time.monotonic() - self._began][-RECENT:]
        self._show()

    def on_run_end(self, result: RunResult) -> None:
        """The final figure in place of the time left."""
        value = result.figures.final.get(self._score, self._value)
        figure = "" if value is None else f", {self._score} {value:.4f}"
        self._surface.show(1.0, f"{self._title}: {result.status} after {self._done} rounds{figure}")

    def close(self) -> None:
        """However the run ended."""
        self._surface.close()

    def _show(self) -> None:
        self._shown = time.monotonic()
        within = min(1.0, self._walked / self._hops) if self._hops else 0.0
        figure = "" if self._value is None else f", {self._score} {self._value:.4f}"
        seconds = sum(self._seconds) / len(self._seconds) * (self._rounds - self._done) if self._seconds else None
        left = "" if seconds is None or self._done >= self._rounds else f", {duration(seconds)} left"
        share = min(1.0, (self._done + within) / self._rounds)
        self._surface.show(share, f"{self._title}: round {self._done} of {self._rounds}{figure}{left}")


def run_bar(progress: bool | None) -> list[Callback]:
    """The bar of one run, if one is wanted: as told, else in notebooks and on terminals."""
    return [ProgressBar()] if _wanted(progress) else []


def unit_bars(units: int, progress: bool | None) -> Callable[[str], Sequence[Callback]]:
    """What gives each of several runs its bar; in a notebook they share one output."""
    if not _wanted(progress):
        return lambda unit: ()
    surface: Surface = NotebookSurface() if in_notebook() else TerminalSurface()
    begun = 0

    def bar(unit: str) -> Sequence[Callback]:
        nonlocal begun
        begun += 1
        return [ProgressBar(f"[{begun}/{max(begun, units)}] {unit}", surface)]

    return bar


def _wanted(progress: bool | None) -> bool:
    return progress if progress is not None else in_notebook() or sys.stderr.isatty()
