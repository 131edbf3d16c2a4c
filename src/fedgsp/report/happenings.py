"""What a run's event log amounts to: what rounds cost on fleets, what goes on right now, and how the run stands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.cost import FLEETS, RunCosts, round_cost, walked_chains
from fedgsp.report.tail import LineTail

ENDINGS = ("finished", "target", "paused", "interrupted", "failed")
SHOWN = (*ENDINGS, "started", "resumed")


class Happenings:
    """An event log as far as it was read. Costs need `flops_per_sample`; without it there are none."""

    def __init__(self, path: Path, flops_per_sample: float | None, epochs: int) -> None:
        self._tail = LineTail(path / "events.jsonl")
        self._flops, self._epochs = flops_per_sample, epochs
        self._forget()

    def _forget(self) -> None:
        self.costs: dict[int, dict[str, RunCosts]] = {}
        self.began: float | None = None
        self.versions: dict[str, str] = {}
        self.last = ""
        self.cause: str | None = None
        self.lost = self.skipped = self.resumed = 0
        self.round: int | None = None
        self.chains = 0
        self.hops: list[Mapping[str, Any]] = []

    def read(self) -> bool:
        """Take in what is new; true where the log is another one than before."""
        void, events = self._tail.read()
        if void:
            self._forget()
        for event in events:
            with suppress(KeyError, TypeError, ValueError):  # a line of somebody else's making tells us nothing
                self._take(event)
        return void

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "round":
            self._close()
            self.round, self.chains, self.hops = int(event["round"]), int(event["chains"]), []
        elif kind == "hop":
            self.hops.append(event)
        elif kind in SHOWN:
            if kind in ENDINGS:
                self._close()
            self.last, self.cause = kind, event.get("cause")
            if kind == "started":
                self.began = float(event["at"])
            self.resumed += kind == "resumed"
            self.versions = dict(event.get("versions", self.versions))
        self.lost += kind == "lost"
        self.skipped += kind == "skipped"

    def _close(self) -> None:
        """A round is over, or begins anew: work out what it cost as far as it came."""
        if self.round is not None and self.hops and self._flops is not None:
            self.costs[self.round] = self._cost()
        self.round, self.hops = None, []

    def _cost(self) -> dict[str, RunCosts]:
        assert self._flops is not None
        assert self.round is not None
        begun = {"event": "round", "round": self.round}
        try:
            chains = walked_chains([begun, *self.hops], self.round).get(self.round, {})
        except InputError:  # recorded before hops had their bytes
            return {}
        return {name: round_cost(chains, fleet, self._flops, self._epochs) for name, fleet in FLEETS.items()}

    def costs_of(self, round_: int) -> dict[str, RunCosts]:
        """The costs of a round by fleet; the round under way is worked out as far as it is."""
        if round_ == self.round and self.hops and self._flops is not None:
            return self._cost()
        return self.costs.get(round_, {})

    def lanes(self) -> list[list[int]]:
        """The round under way: the clients that have trained so far, chain by chain in the order they did."""
        walked: dict[int, dict[int, int]] = {}
        for hop in self.hops:
            walked.setdefault(int(hop["chain"]), {})[int(hop["hop"])] = int(hop["client"])
        most = max(walked, default=-1) + 1
        return [[client for _, client in sorted(walked.get(chain, {}).items())] for chain in range(max(self.chains, most))]


def held(path: Path) -> bool:
    """Whether a process holds a run directory: asked without locking it, which could keep a run from starting."""
    lock = path / ".lock"
    try:
        inode = lock.stat().st_ino
        table = Path("/proc/locks").read_text()
    except FileNotFoundError:
        return _alive(lock)
    return any(fields[1] == "FLOCK" and fields[5].endswith(f":{inode}") for fields in _rows(table))


def _rows(table: str) -> list[list[str]]:
    return [fields for line in table.splitlines() if len(fields := line.split()) >= 6]


def _alive(lock: Path) -> bool:
    """Where the system has no list of locks: whether the process that wrote its number there is alive."""
    try:
        os.kill(int(lock.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True
