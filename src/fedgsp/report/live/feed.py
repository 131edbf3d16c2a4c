"""What a watched page is told: all that is new since what it says it has. Everything comes from the run directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.report.payload import FederationShelf, frame, plan_strides, run_body
from fedgsp.report.runview import RunView
from fedgsp.run.discover import find_runs

PLAN_BUDGET = 12_000_000
"""A page that is served may hold more plans than one that is sent around."""


class LiveRuns:
    """Runs as they stand now. What it keeps is only what it has read: a new one on the same directories tells the same."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = list(places)
        self._runs: dict[Path, RunView] = {}
        self._shelf = FederationShelf()
        self._lock = Lock()

    def look(self) -> list[RunView]:
        """Read what is new, also runs that have only now begun."""
        with suppress(InputError):
            for path in find_runs(self._places):
                if path not in self._runs:
                    self._runs[path] = RunView(path)
        for run in self._runs.values():
            run.read()
        return list(self._runs.values())

    def everything(self) -> dict[str, Any]:
        """The data of a fresh page."""
        return self.updates({}, 0)

    def updates(self, have: Mapping[str, tuple[str, int]], federations: int) -> dict[str, Any]:
        """What a page lacks that has rounds up to some one of each run (by id: epoch and round) and so many federations."""
        with self._lock:
            runs = self.look()
            bodies = []
            for run, stride in zip(runs, plan_strides(runs, PLAN_BUDGET), strict=True):
                epoch, last = have.get(run.id, ("", 0))
                fresh = epoch == run.epoch and last <= run.round
                bodies.append(run_body(run, self._shelf, stride, after=last if fresh else 0))
            known = federations if federations <= len(self._shelf.made) else 0
            return {**frame(runs), "runs": bodies, "federations": self._shelf.made[known:], "federationsFrom": known}
