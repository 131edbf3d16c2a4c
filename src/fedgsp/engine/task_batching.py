"""How a round's chains are dealt to workers: what each will take, in which order they start, which go together."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedgsp.engine.base import planned_work

if TYPE_CHECKING:
    from fedgsp.core.chain import HopReport, Plan
    from fedgsp.data.federated import FederatedData

Fit = Literal["together", "alone", "no"]
"""Whether a worker can do a chain next: with others, by itself, or not at all."""
TURNS = 8
"""Every worker gets at least so many batches a round, so that all end together."""


@dataclass(frozen=True)
class BatchLimits:
    """Short chains are handed out together until they take `seconds`, since a message costs as much as a small client.

    At most so many `chains`, whose results take at most so many `bytes` together.
    """

    seconds: float = 0.05
    chains: int = 64
    bytes: int = 32 * 2**20

    def most(self, chains: int, workers: int, chain_bytes: int) -> int:
        """How many of a round's chains may go together."""
        return max(1, min(self.chains, self.bytes // max(1, chain_bytes), chains // (workers * TURNS)))


class Speed:
    """What a hop takes, learned from those that were made: so much a client and so much a sample (least squares)."""

    def __init__(self) -> None:
        self._n = self._x = self._xx = self._t = self._xt = 0.0

    def learn(self, report: HopReport) -> None:
        """Take in one hop."""
        x, t = float(report.samples), report.seconds
        self._n, self._x, self._xx, self._t, self._xt = (
            self._n + 1, self._x + x, self._xx + x * x, self._t + t, self._xt + x * t,
        )  # fmt: skip

    def rates(self) -> tuple[float, float]:
        """Seconds a hop and seconds a sample; before anything was seen, a guess that only samples count."""
        if self._n < 2 or self._t <= 0:
            return 0.0, 1e-3
        spread = self._n * self._xx - self._x**2
        each = (self._n * self._xt - self._x * self._t) / spread if spread > 0 else self._t / max(self._x, 1.0)
        each = max(each, 1e-9)
        return max(0.0, (self._t - each * self._x) / self._n), each

    def hop(self, samples: int) -> float | None:
        """Seconds that a hop with so many samples usually takes, once some were seen."""
        a_hop, a_sample = self.rates()
        return a_hop + a_sample * samples if self._n >= 2 and self._t > 0 else None

    def work(self, plan: Plan, data: FederatedData) -> list[float]:
        """Seconds that each chain of a plan is expected to take."""
        a_hop, a_sample = self.rates()
        samples = planned_work(plan, data)
        return [a_hop * len(chain) + a_sample * n for chain, n in zip(plan.chains, samples, strict=True)]


def longest_first(work: Sequence[float]) -> list[int]:
    """Chain numbers in the order they should start, so that the round does not end waiting for a long one."""
    return sorted(range(len(work)), key=lambda i: (-work[i], i))


def next_batch(
    pending: Iterable[int],
    work: Sequence[float],
    most: int,
    seconds: float,
    fits: Callable[[int], Fit] = lambda index: "together",
) -> list[int]:
    """What a worker is handed next: the first of the pending chains that fits it, with others that are short too."""
    batch, total = [], 0.0
    for index in pending:
        fit = fits(index)
        if fit == "together":
            batch.append(index)
            total += work[index]
            if len(batch) >= most or total >= seconds:
                break
        elif fit == "alone" and not batch:
            return [index]
    return batch


def idle_share(work: Sequence[float], workers: int) -> float:
    """The part of the workers' time that is left over when chains of this length are dealt longest first."""
    busy = [0.0] * max(1, workers)
    for seconds in sorted(work, reverse=True):
        heapq.heapreplace(busy, busy[0] + seconds)
    longest = max(busy)
    return 1 - sum(busy) / (len(busy) * longest) if longest > 0 else 0.0
