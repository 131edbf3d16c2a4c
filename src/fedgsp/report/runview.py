"""A run as a report sees it: what its directory says, and what its rounds would have cost on fleets of devices."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.cost import FLEETS, RunCosts, round_cost, walked_chains
from fedgsp.run.event_log import EventLog
from fedgsp.run.reader import RunReader


class CostedEvents(EventLog):
    """An event log with the costs of its rounds; without `flops_per_sample` there are none."""

    def __init__(self, flops_per_sample: float | None, epochs: Callable[[int], int]) -> None:
        super().__init__()
        self._flops, self._epochs = flops_per_sample, epochs
        self.costs: dict[int, dict[str, RunCosts]] = {}

    def round_over(self, round_: int, hops: list[Mapping[str, Any]]) -> None:
        """Work out what a round cost as far as it came."""
        if self._flops is not None:
            self.costs[round_] = self._cost(round_, hops)

    def costs_of(self, round_: int) -> dict[str, RunCosts]:
        """The costs of a round by fleet; the round under way is worked out as far as it is."""
        if round_ == self.round and self.hops and self._flops is not None:
            return self._cost(round_, self.hops)
        return self.costs.get(round_, {})

    def _cost(self, round_: int, hops: list[Mapping[str, Any]]) -> dict[str, RunCosts]:
        assert self._flops is not None
        try:
            chains = walked_chains([{"event": "round", "round": round_}, *hops], round_).get(round_, {})
        except InputError:  # recorded before hops had their bytes
            return {}
        epochs = self._epochs(round_)
        return {name: round_cost(chains, fleet, self._flops, epochs) for name, fleet in FLEETS.items() if chains}


class RunView(RunReader):
    """A run for a page."""

    events: CostedEvents

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.id = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:10]

    def new_events(self) -> CostedEvents:
        """With costs."""
        return CostedEvents(self.facts.flops_per_sample if self.facts else None, self.epochs_in)

    @property
    def command(self) -> str:
        """What repeats the run."""
        return f"fedgsp run {shlex.quote(str(self.path / 'config.toml'))}"
