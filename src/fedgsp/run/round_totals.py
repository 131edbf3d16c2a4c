"""What a round amounts to: counts of its chains, and the time it took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedgsp.core.adding import added
from fedgsp.core.errors import RunFailed
from fedgsp.engine.messages import EngineEvent, HopDone, HopSkipped

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult


@dataclass
class RoundTotals:
    """Sums over a round's chains, and the longest of the chains that ran side by side."""

    samples: int = 0
    steps: int = 0
    serial_steps: int = 0
    bytes: int = 0
    clients: int = 0
    chains: int = 0
    losses: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    client_versions: dict[int, str] = field(default_factory=dict)
    skipped: list[HopSkipped] = field(default_factory=list)
    hop_seconds: dict[str, float] = field(default_factory=dict)
    """Of hops elsewhere, added over all of them: in `training`, in `transfer` at the server, and else (`waiting`)."""

    def add(self, result: ChainResult) -> None:
        """Count one chain."""
        self.chains += 1
        self.clients += len({hop.client for hop in result.hops})
        self.samples += result.samples
        self.steps += result.steps
        self.serial_steps = max(self.serial_steps, result.steps)
        self.bytes += result.bytes_moved
        for hop in result.hops:
            self.losses[result.index, hop.hop] = (hop.metrics["loss"], hop.samples)
        if twice := self.client_versions.keys() & result.client_versions.keys():
            raise RunFailed(
                f"client number {min(twice)} trains in two chains of one round, so the state it keeps would depend on which "
                f"came last; a rule with client state needs a planner that puts every client in one chain only."
            )
        self.client_versions.update(result.client_versions)

    def note(self, event: EngineEvent) -> None:
        """Remember who was skipped, and where the seconds of the others went."""
        if isinstance(event, HopSkipped):
            self.skipped.append(event)
        elif isinstance(event, HopDone) and event.waited is not None:
            moving = min(event.moving or 0.0, event.waited)
            training = min(event.report.seconds, event.waited - moving)
            parts = {"training": training, "transfer": moving, "waiting": event.waited - moving - training}
            for name, seconds in parts.items():
                self.hop_seconds[name] = self.hop_seconds.get(name, 0.0) + seconds

    def skipped_clients(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Who was skipped, why, and the bytes that were sent for nothing, in the plan's order."""
        ordered = sorted(self.skipped, key=lambda one: (one.chain, one.hop))
        return [
            {
                "chain": s.chain,
                "hop": s.hop,
                "client": s.client,
                "cause": s.cause,
                "bytes": s.lost_bytes,
                "name": names[s.client],
            }
            for s in ordered
        ]

    def train_loss(self) -> float:
        """Mean training loss over the round's samples, summed in the plan's order so that arrival cannot change it."""
        ordered = [self.losses[key] for key in sorted(self.losses)]
        return added(loss * n for loss, n in ordered) / max(1, sum(n for _, n in ordered))


class Stopwatch:
    """Wall-clock laps of one round: kept apart from everything that must repeat to the bit."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {"at": round(time.time(), 3)}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """What went by since the last lap."""
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 4)
        self._last = now

    @contextmanager
    def spending(self, name: str) -> Iterator[None]:
        """What is spent inside, added to what was spent on this before."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.laps[name] = round(self.laps.get(name, 0.0) + time.perf_counter() - began, 6)
