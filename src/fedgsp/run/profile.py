"""Where a run's time went: a table a round, and a trace for chrome://tracing or a Perfetto viewer (`fedgsp run --profile`)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.run.callbacks import Callback
from fedgsp.run.files import write_whole

if TYPE_CHECKING:
    from fedgsp.engine.base import Span
    from fedgsp.run.result import RunResult
    from fedgsp.run.run import Run

MAIN = -1
"""The number under which the driving process appears among the workers."""
LAPS = ("plan", "broadcast", "train", "aggregate", "evaluate")


class Profiler(Callback):
    """Adds up what was spent on what, and who was idle; writes `profile.json` and `trace.json` into a run directory.

    `train` and `evaluate` are wall-clock seconds of the round, `aggregate` and `broadcast` the part of them that the driving
    process spent so; `idle` is each worker's share of the time in which it had nothing to do.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._since = self._zero = time.perf_counter()
        self._rounds: list[dict[str, Any]] = []
        self._spans: list[Span] = []
        self._workers = 1

    def on_run_start(self, run: Run, history: list[dict[str, Any]]) -> None:
        """The first round's time begins here: it has the start of the workers in it."""
        self._workers = max(1, run.workers())
        self._since = self._zero = time.perf_counter()

    def on_worker_spans(self, entry: dict[str, Any], spans: list[Span]) -> None:
        """One round more."""
        now, laps = time.perf_counter(), entry["timings"]
        whole = now - self._since
        busy = [0.0] * self._workers
        broadcast = 0.0
        for span in spans:
            seconds = max(0.0, span.end - max(span.begin, self._since))
            if span.worker == MAIN:
                broadcast += seconds
            elif span.worker < self._workers:
                busy[span.worker] += seconds
        self._rounds.append(
            {
                "round": entry["round"],
                "seconds": round(whole, 4),
                **{name: laps.get(name, 0.0) for name in LAPS},
                "broadcast": round(broadcast, 6),
                "idle": [round(max(0.0, 1 - seconds / whole), 4) if whole else 0.0 for seconds in busy],
            }
        )
        self._spans += spans
        self._since = now

    def on_run_end(self, result: RunResult) -> None:
        """Write both files, also where the run was stopped on the way."""
        self.write()

    def close(self) -> None:
        """An interrupted run has a profile too."""
        self.write()

    def summary(self) -> dict[str, Any]:
        """Totals over all rounds; the first is left out of `idle` where there are others, since workers start in it."""
        later = self._rounds[1:] or self._rounds
        spent = sum(row["seconds"] for row in later) or 1.0
        idle = [sum(row["idle"][w] * row["seconds"] for row in later) / spent for w in range(self._workers)]
        return {
            "rounds": len(self._rounds),
            "seconds": round(sum(row["seconds"] for row in self._rounds), 4),
            **{name: round(sum(row[name] for row in self._rounds), 4) for name in LAPS},
            "idle": [round(share, 4) for share in idle],
        }

    def write(self) -> None:
        """`profile.json` and `trace.json`."""
        if not self._rounds or not self._place.is_dir():
            return
        table = {"schema": 1, "totals": self.summary(), "rounds": self._rounds}
        write_whole(self._place / "profile.json", (json.dumps(table, indent=1) + "\n").encode())
        write_whole(self._place / "trace.json", json.dumps({"traceEvents": self._events()}).encode())

    def _events(self) -> list[dict[str, Any]]:
        """Complete events, in microseconds, a line for each worker and one for the driving process."""
        names = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "server"}}]
        names += [
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": w + 1, "args": {"name": f"worker {w}"}}
            for w in range(self._workers)
        ]
        return [
            *names,
            *(
                {
                    "ph": "X", "name": span.label, "cat": span.kind, "pid": 0, "tid": span.worker + 1,
                    "ts": round((span.begin - self._zero) * 1e6), "dur": round((span.end - span.begin) * 1e6),
                }
                for span in self._spans
            ),
        ]  # fmt: skip
