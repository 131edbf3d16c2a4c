"""How a deployment stands: its processes, its nodes, and its newest run, as facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgsp.core.errors import FedgspError
from fedgsp.deploy.layout import Deployment
from fedgsp.deploy.local import Presence, control, presence
from fedgsp.deploy.supervise import recorded
from fedgsp.report.runview import RunView
from fedgsp.run.files import read_lines
from fedgsp.run.metrics import score_words

FAULTS = ("skipped", "lost", "not_judged")


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands, and who failed in it."""

    path: Path
    method: str
    status: str
    round: int
    rounds: int
    score: str | None
    value: float | None
    """The final figure of the rounds so far, as `run/metrics.py` has it; `told` says of which rounds, and what the last had."""
    told: str
    faults: dict[str, Counter[str]]
    """For each client, by name, how often and why it was left out."""

    @property
    def resumable(self) -> bool:
        """Whether going on with it would do anything."""
        return self.status in ("stopped", "interrupted", "failed", "paused")


@dataclass(frozen=True)
class Status:
    """All of it; `nodes` is None, and `trouble` says why, where the SuperLink could not be asked."""

    local: bool
    processes: list[tuple[str, int, bool]]
    nodes: Presence | None
    trouble: str | None
    run: RunStatus | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for --json."""
        run = self.run
        return {
            "local": self.local,
            "processes": [{"name": name, "pid": pid, "alive": alive} for name, pid, alive in self.processes],
            "superlink": {"reachable": self.nodes is not None, "trouble": self.trouble},
            "nodes": None if self.nodes is None else vars(self.nodes),
            "run": None
            if run is None
            else {
                "directory": str(run.path), "method": run.method, "status": run.status, "round": run.round,
                "rounds": run.rounds, "score": run.score, "value": run.value, "told": run.told,
                "faults": {name: dict(causes) for name, causes in run.faults.items()},
            },
        }  # fmt: skip


def status_of(place: Deployment) -> Status:
    """Look at everything, and change nothing."""
    at_work, processes = recorded(place.root)
    nodes, trouble = None, None
    try:
        nodes = presence(place, control(place))
    except FedgspError as error:
        trouble = str(error)
    run = place.newest_run()
    listed = [(p.name, p.pid, p.alive) for p in processes]
    return Status(at_work, listed, nodes, trouble, None if run is None else run_status(run))


def run_status(run: Path) -> RunStatus:
    """A run directory in a few facts."""
    view = RunView(run)
    view.read()
    judged = view.score or "loss"
    value = view.final(judged)
    done = view.entries[-1]["round"] if view.entries else 0
    return RunStatus(
        run, view.method, view.status, done, view.rounds_planned, judged if value is not None else None, value,
        score_words(view.entries, judged), faults_of(run),
    )  # fmt: skip


def faults_of(run: Path) -> dict[str, Counter[str]]:
    """Who was left out, how often and why, over all rounds."""
    names = dict(enumerate(_names(run)))
    found: dict[str, Counter[str]] = {}
    for event in _events(run):
        if event.get("event") == "sites":  # who came later is not among those that the plans begin with
            names.update({int(member["number"]): str(member["name"]) for member in event.get("members", [])})
        if event.get("event") in FAULTS:
            client = event.get("client")
            name = names.get(client, str(client)) if isinstance(client, int) else str(client)
            found.setdefault(name, Counter())[f"{event['event']}: {event.get('cause')}"] += 1
    return found


def _events(run: Path) -> list[dict[str, Any]]:
    try:
        return list(read_lines(run / "events.jsonl"))
    except (OSError, ValueError):
        return []


def _names(run: Path) -> list[str]:
    try:
        first = next(read_lines(run / "plans.jsonl"), {})
    except (OSError, ValueError):
        return []
    return [str(name) for name in first.get("clients", [])]
