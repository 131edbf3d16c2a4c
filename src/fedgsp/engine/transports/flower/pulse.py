"""Whose heart beats: nodes that are gone are known within seconds, long before the SuperLink takes them for gone.

A SuperLink gives a node up 20 s after its last heartbeat at the earliest. It tells how long it takes each for online, and that
moves with every heartbeat; so whoever looks can see that a heart has stopped. Only nodes that promise to beat often are judged
by it: `fedgsp node` does while it works, by the interval it tells, and a stock SuperNode never does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flwr.serverapp import Grid

from fedgsp.core.heartbeat import PROMISE
from fedgsp.engine.transports.flower.post import Clock

LOOK_SECONDS = 1.0


@dataclass
class Pulse:
    """When each heart was last heard, by this process's own clock. A node is silent after `seconds` (0: never)."""

    grid: Grid
    clock: Clock
    seconds: float
    _heard: dict[int, tuple[float, float]] = field(default_factory=dict)
    _looked: float = float("-inf")

    def look(self) -> None:
        """Listen, unless that was done a moment ago."""
        now = self.clock.now()
        if not self.seconds or now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        told = {int(node.node_id): node.online_until for node in self.grid.get_nodes() if node.heartbeat_interval == PROMISE}
        before = self._heard
        self._heard = {
            node: before[node] if node in before and before[node][0] == until else (until, now) for node, until in told.items()
        }

    def silent(self, node: int) -> bool:
        """Whether a node that promised to beat often has not done so for too long."""
        return node in self._heard and self._looked - self._heard[node][1] >= self.seconds
