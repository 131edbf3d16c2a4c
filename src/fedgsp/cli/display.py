"""What a person sees while a run goes on: a live display on a terminal, plain lines elsewhere, and a summary at the end."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from fedgsp.core.chain import Plan
from fedgsp.core.errors import in_options
from fedgsp.engine.messages import HopDone, HopSkipped, WorkerSlow
from fedgsp.method import EVALUATED_ON
from fedgsp.progress import duration
from fedgsp.run.callbacks import Callback, Failure, in_words
from fedgsp.run.metrics import best, evaluations, score_words
from fedgsp.run.result import RunResult
from fedgsp.run.run import Run

BARS = "▁▂▃▄▅▆▇█"
MOST_CHAINS_SHOWN = 12


@dataclass(frozen=True)
class About:
    """What a display says of a run: a line, remarks, how many rounds, and the metric that it is judged by."""

    headline: str
    rounds: int
    score: str | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: Run) -> About:
        """A run of this process."""
        return cls(headline(run), run.config.run.rounds, run.worker_setup.task.score, tuple(map(in_options, run.notes)))


def display() -> LiveDisplay | PlainLines:
    """The live display on a terminal, plain lines elsewhere."""
    return LiveDisplay() if sys.stdout.isatty() else PlainLines()


def plain_console() -> Console:
    """A console that takes texts as they are, and does not wrap lines for a pipe."""
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 200)


def sparkline(values: list[float], width: int = 40) -> str:
    """Values as a row of bars, the last `width` of them."""
    shown = values[-width:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    span = (high - low) or 1.0
    return "".join(BARS[int((value - low) / span * (len(BARS) - 1))] for value in shown)


def size(count: float) -> str:
    """Bytes as a person says them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def headline(run: Run) -> str:
    """What is about to run, in a line."""
    config = run.config
    held = f", {len(run.held_out)} held out" if len(run.held_out) else ""
    clients = len(run.participants) - len(run.worker_setup.at_server)
    return (
        f"{config.method.name}: {config.run.rounds} rounds, {clients} clients{held}, {run.data.samples} samples of "
        f"{run.data.source or 'data in memory'} (fingerprint {run.data.fingerprint[:12]}), model {config.model.name}, "
        f"{_crew(run)}, {run.worker_setup.kernel.said()}"
    )


def _crew(run: Run) -> str:
    """Who walks the chains."""
    if run.config.engine.name == "ray":
        wanted = run.config.run.workers
        return "as many workers as Ray has room for" if wanted == "auto" else f"{wanted} worker(s) on Ray"
    return f"{run.workers() or 'no'} worker process(es)"


def round_line(entry: dict[str, Any], rounds: int, score: str | None) -> str:
    """A finished round in a line."""
    shown = f"{score} {entry[score]:.4f}  " if score and score in entry else ""
    loss = f"loss {entry['loss']:.4f}  " if "loss" in entry else ""
    laps = entry["timings"]
    seconds = laps["plan"] + laps["train"] + laps["evaluate"]
    return (
        f"round {entry['round']:>4}/{rounds}  groups {entry['groups']:>4}  chains {entry['chains']:>4}  "
        f"clients {entry['clients']:>4}  {shown}{loss}{seconds:.1f} s"
    )


def trouble(event: Failure) -> str:
    """A line about a client that was skipped, a chain that begins anew, or a worker that may hang."""
    return in_options(in_words(event))


class PlainLines(Callback):
    """A line a round, for logs and pipes."""

    def __init__(self) -> None:
        self._about: About | None = None

    def on_run_start(self, run: Run, history: list[dict[str, Any]]) -> None:
        """Say what runs, and where it goes on."""
        self.begin(About.of(run), history)

    def begin(self, about: About, history: list[dict[str, Any]]) -> None:
        """The same, for whoever knows the run by its directory only."""
        self._about = about
        print(about.headline)
        for note in about.notes:
            print(f"note: {note}")
        if history:
            print(f"going on after round {history[-1]['round']}")
        sys.stdout.flush()

    def on_failure(self, failure: Failure) -> None:
        """Only trouble is worth a line."""
        print(trouble(failure), flush=True)

    def on_round_end(self, entry: dict[str, Any]) -> None:
        """A line a round."""
        assert self._about is not None
        print(round_line(entry, self._about.rounds, self._about.score), flush=True)

    def advanced(self, chain: int, hops: int) -> None:
        """Not worth a line."""

    def say(self, text: str) -> None:
        """Anything else that a person should know."""
        print(text, flush=True)


class LiveDisplay(Callback):
    """Progress over rounds with the time left, this round's chains advancing, and the accuracy as a sparkline."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or plain_console()
        self._about: About | None = None
        self._history: list[dict[str, Any]] = []
        self._plan: Plan | None = None
        self._done: dict[int, int] = {}
        self._stage = "starting workers"
        self._round_seconds: list[float] = []
        self._began = time.monotonic()
        self._live: Live | None = None

    def on_run_start(self, run: Run, history: list[dict[str, Any]]) -> None:
        """Open the live view."""
        self.begin(About.of(run), history)

    def begin(self, about: About, history: list[dict[str, Any]]) -> None:
        """The same, for whoever knows the run by its directory only."""
        self._about, self._history = about, list(history)
        self._console.print(about.headline)
        for note in about.notes:
            self._console.print(f"note: {note}", style="yellow")
        if history:
            self._console.print(f"going on after round {history[-1]['round']}")
        self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=8, transient=True)
        self._live.start()

    def on_round_start(self, plan: Plan) -> None:
        """New chains."""
        self._plan, self._done, self._stage = plan, {}, f"round {plan.round}"
        self._began = time.monotonic()

    def on_hop_end(self, hop: HopDone) -> None:
        """A chain advances."""
        self.advanced(hop.chain, hop.report.hop + 1)

    def on_failure(self, failure: Failure) -> None:
        """A chain goes on without a client, or starts again."""
        if not isinstance(failure, WorkerSlow):
            self.advanced(failure.chain, failure.hop + 1 if isinstance(failure, HopSkipped) else 0)
        self._console.print(trouble(failure), style="yellow")

    def advanced(self, chain: int, hops: int) -> None:
        """So many hops of a chain are done."""
        self._done[chain] = hops

    def on_evaluate_start(self, round_: int) -> None:
        """The chains are done."""
        self._stage = f"round {round_}: evaluating"

    def on_round_end(self, entry: dict[str, Any]) -> None:
        """Remember the line."""
        self._history.append(entry)
        self._round_seconds.append(time.monotonic() - self._began)

    def say(self, text: str) -> None:
        """Anything else that a person should know."""
        self._console.print(text, style="yellow")

    def close(self) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _view(self) -> Group:
        assert self._about is not None
        rounds, score = self._about.rounds, self._about.score
        done = self._history[-1]["round"] if self._history else 0
        recent = self._round_seconds[-10:]
        left = duration(sum(recent) / len(recent) * (rounds - done)) + " left" if recent else ""
        bar = Progress(TextColumn("rounds"), BarColumn(None), MofNCompleteColumn(), TextColumn(left), expand=True)
        bar.add_task("", total=rounds, completed=done)
        lines: list[Any] = [bar, Text(self._stage)]
        if self._plan is not None:
            lines.append(self._chains(self._plan))
        if score and (top := best(self._history, score)) is not None:
            values = [figures[score] for _, figures in evaluations(self._history, score)]
            lines.append(Text(f"{score} {values[-1]:.4f} (best {top[1][score]:.4f})  {sparkline(values)}"))
        return Group(*lines)

    def _chains(self, plan: Plan) -> Group:
        """One bar a chain while they are few, one for all when they are many."""
        chains = list(enumerate(plan.chains))
        bars = Progress(TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), expand=True)
        if len(chains) > MOST_CHAINS_SHOWN:
            total = sum(len(chain) for _, chain in chains)
            bars.add_task(f"{len(chains)} chains", total=total, completed=sum(self._done.values()))
        else:
            for index, chain in chains:
                bars.add_task(f"chain {index + 1}", total=len(chain), completed=self._done.get(index, 0))
        return Group(bars)


def show_summary(result: RunResult) -> None:
    """What came out, what it cost, where it is, and what to type next."""
    console = plain_console()
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for row in _summary_rows(result):
        table.add_row(*row)
    console.print(table)
    if result.directory is not None:
        console.print(f"next: fedgsp resume {result.directory} --rounds {result.rounds * 2}", soft_wrap=True)


def _summary_rows(result: RunResult) -> list[tuple[str, str]]:
    facts, summary, score = result.facts, result.figures, result.run.worker_setup.task.score or "loss"
    rows = [("status", f"{facts['status']} after {result.rounds} rounds")]
    if result.yields != "one":
        rows.append(("yields", f"{EVALUATED_ON[result.yields]}: not comparable with methods of one global model"))
    if score in summary.final:
        rows.append((score, score_words(result.history, score)))
        if score != "loss":
            rows.append(("loss", f"{summary.final['loss']:.4f}"))
    if facts["target"] is not None:
        reached = summary.reached
        rows.append((f"target {facts['target']['accuracy']:g}", f"reached in round {reached}" if reached else "not reached"))
    seconds = sum(e["timings"]["plan"] + e["timings"]["train"] + e["timings"]["evaluate"] for e in result.history)
    rows.append(("time", f"{duration(seconds)} of training"))
    rows.append(
        (
            "traffic",
            f"{size(facts['totals']['bytes'])} handed on, longest serial path {facts['totals']['serial_steps']} SGD steps",
        )
    )
    if peaks := facts["timings"]["peak_memory"]:
        rows.append(("peak memory", ", ".join(f"{who} {size(count)}" for who, count in peaks.items())))
    if result.directory is not None:
        rows.append(("files", f"{result.directory}/ (journal.jsonl, plans.jsonl, result.json, model*.safetensors)"))
    return rows
