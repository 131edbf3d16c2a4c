"""How a round's chains are dealt to workers: what each will take, in which order they start, which go together."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from fedgsp.core.chain import HopReport, Plan
from fedgsp.data.federated import FederatedData
from fedgsp.engine.job import planned_work

BUNDLE_SECONDS = 0.05
"""Chains that take less are handed out together until they take as much: a message costs a fraction of a millisecond."""
MOST_CHAINS = 64
MOST_BYTES = 32 * 2**20
TURNS = 8
"""Every worker gets at least so many bundles a round, so that all end together."""


class Speed:
    """What a visit takes, learned from those that were made: so much a client and so much a sample (least squares)."""

    def __init__(self) -> None:
        self._n = self._x = self._xx = self._t = self._xt = 0.0

    def learn(self, report: HopReport) -> None:
        """Take in one visit."""
        x, t = float(report.samples), report.seconds
        self._n, self._x, self._xx, self._t, self._xt = (
            self._n + 1, self._x + x, self._xx + x * x, self._t + t, self._xt + x * t,
        )  # fmt: skip

    def rates(self) -> tuple[float, float]:
        """Seconds a visit and seconds a sample; before anything was seen, a guess that only samples count."""
        if self._n < 2 or self._t <= 0:
            return 0.0, 1e-3
        spread = self._n * self._xx - self._x**2
        each = (self._n * self._xt - self._x * self._t) / spread if spread > 0 else self._t / max(self._x, 1.0)
        each = max(each, 1e-9)
        return max(0.0, (self._t - each * self._x) / self._n), each

    def hop(self, samples: int) -> float | None:
        """Seconds that a visit with so many samples usually takes, once some were seen."""
        a_visit, a_sample = self.rates()
        return a_visit + a_sample * samples if self._n >= 2 and self._t > 0 else None

    def work(self, plan: Plan, data: FederatedData) -> list[float]:
        """Seconds that each chain of a plan is expected to take."""
        a_visit, a_sample = self.rates()
        samples = planned_work(plan, data)
        return [a_visit * len(chain) + a_sample * n for chain, n in zip(plan.chains, samples, strict=True)]


def bundles(work: Sequence[float], workers: int, chain_bytes: int) -> list[tuple[int, ...]]:
    """Chain numbers in the order they should start, short ones together; a bundle's results fit in memory at once."""
    order = sorted(range(len(work)), key=lambda i: (-work[i], i))
    fair = max(1, len(order) // (workers * TURNS))
    most = max(1, min(MOST_CHAINS, MOST_BYTES // max(1, chain_bytes), fair))
    found: list[tuple[int, ...]] = []
    bundle: list[int] = []
    seconds = 0.0
    for index in order:
        bundle.append(index)
        seconds += work[index]
        if len(bundle) >= most or seconds >= BUNDLE_SECONDS:
            found.append(tuple(bundle))
            bundle, seconds = [], 0.0
    return [*found, tuple(bundle)] if bundle else found


def idle_share(work: Sequence[float], workers: int) -> float:
    """The part of the workers' time that is left over when chains of this length are dealt longest first."""
    busy = [0.0] * max(1, workers)
    for seconds in sorted(work, reverse=True):
        heapq.heapreplace(busy, busy[0] + seconds)
    longest = max(busy)
    return 1 - sum(busy) / (len(busy) * longest) if longest > 0 else 0.0
