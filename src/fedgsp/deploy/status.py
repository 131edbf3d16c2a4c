"""How a deployment stands: its processes, its nodes, and its newest run, as facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import FedgspError
from fedgsp.deploy.local import Presence, control, presence
from fedgsp.deploy.supervise import recorded
from fedgsp.engine.transports.flower.board import read_board
from fedgsp.run.metrics import score_words
from fedgsp.run.reader import RunReader

if TYPE_CHECKING:
    from fedgsp.deploy.layout import Deployment


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
    cause: str | None = None
    """Why it stands so: what a failed run died of, what of a damaged one cannot be read."""
    timings: dict[str, float] = field(default_factory=dict)
    """Where the seconds of the last finished round went, as its journal line has them."""
    managers: tuple[int, list[dict[str, Any]]] | None = None
    """While it runs: the round under way, and what the manager of each of its groups does."""

    @property
    def resumable(self) -> bool:
        """Whether going on with it would do anything."""
        return self.status in ("stopped", "interrupted", "failed", "paused", "damaged")


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
                "rounds": run.rounds, "score": run.score, "value": run.value, "told": run.told, "cause": run.cause,
                "faults": {name: dict(causes) for name, causes in run.faults.items()}, "timings": run.timings,
                "managers": None if run.managers is None else {"round": run.managers[0], "groups": run.managers[1]},
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
    reader = RunReader(run)
    reader.read()
    return status_from(reader)


def status_from(run: RunReader) -> RunStatus:
    """The same of one that was read."""
    metric = run.score or "loss"
    value = run.final(metric)
    names = {**dict(enumerate(run.names)), **run.events.sites}
    faults: dict[str, Counter[str]] = {}
    for (kind, client, cause), count in run.events.faults.items():
        name = str(client) if client is None else names.get(client, str(client))
        faults.setdefault(name, Counter())[f"{kind}: {cause}"] += count
    return RunStatus(
        run.path, run.method, run.status, run.round, run.rounds_planned, metric if value is not None else None, value,
        score_words(run.history, metric), faults, run.cause, dict(run.history[-1]["timings"]) if run.history else {},
        read_board(run.path) if run.status == "running" else None,
    )  # fmt: skip
