"""Workers that hang are noticed. What a hop takes is learned from those that were made; one that takes far longer gets a line.

Where there is a limit, the worker is replaced after it, and its chain run again from its start: so it never decides a bit.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedgsp.engine.messages import Listener, WorkerSlow

if TYPE_CHECKING:
    from fedgsp.engine.task_batching import Speed

TIMES = 20.0
"""So many times as long as usual is worth a line."""


@dataclass(frozen=True)
class TimeLimits:
    """Seconds. `limit` is how long a hop may take (None: for ever); the others say when a line is worth it.

    It never comes before `floor`; while nothing was learned `unknown` counts, and for a worker that is not set up yet `start`.
    A worker's first hop may take `warm_up` longer: torch imports its optimisers only then.
    """

    limit: float | None = None
    floor: float = 30.0
    unknown: float = 600.0
    start: float = 120.0
    warm_up: float = 20.0

    @property
    def tick(self) -> float:
        """How often to look."""
        return min(1.0, self.floor / 4, (math.inf if self.limit is None else self.limit) / 4)

    def notable(self, usual: float | None) -> float:
        """When a line is worth it, for what usually takes so long."""
        return self.unknown if usual is None else max(self.floor, TIMES * usual)


@dataclass(frozen=True)
class Activity:
    """What a worker is at, and `since` when (`time.perf_counter`, which all processes of a machine share).

    `samples` are what the client trains on, or the largest of the clients that it may be at. `slack` is added to the limit,
    for a worker that is heard of only now and then; `warm` says whether it has trained before.
    """

    kind: Literal["start", "train", "evaluate"]
    what: str
    since: float
    round: int = 0
    chain: int | None = None
    client: int | None = None
    samples: int = 0
    slack: float = 0.0
    warm: bool = True


class SlowWorkerWatch:
    """Looks at workers now and then; `listener` is told of those that may hang."""

    def __init__(self, limits: TimeLimits, speed: Speed) -> None:
        self.limits, self._speed = limits, speed
        self.listener: Listener | None = None
        self._spoken_of: dict[str, float] = {}
        self._evaluations, self._evaluation_seconds = 0, 0.0
        self._next = 0.0

    def due(self) -> bool:
        """Whether it is time to look again."""
        now = time.perf_counter()
        if now < self._next:
            return False
        self._next = now + self.limits.tick
        return True

    def evaluated(self, seconds: float) -> None:
        """Learn from an evaluation."""
        self._evaluations, self._evaluation_seconds = self._evaluations + 1, self._evaluation_seconds + seconds

    def overdue(self, worker: str, at: Activity) -> str | None:
        """Why a worker must be replaced, if it must; one that only may hang is spoken of, once.

        The limit is a hop's: evaluation may take longer if it always does.
        """
        seconds, usual, limits = time.perf_counter() - at.since, self._usual(at), self.limits
        notable = limits.start if at.kind == "start" else limits.notable(usual)
        if limits.limit is not None:
            slack = at.slack + (0.0 if at.warm else limits.warm_up)
            last = limits.limit + slack if at.kind == "train" else max(limits.limit, notable)
            if seconds > last and at.kind == "start":
                return f"its worker ({worker}) was not ready after {last:g} s, and was replaced"
            if seconds > last:
                return f"its worker ({worker}) took longer than the {limits.limit:g} s that a hop may take, and was replaced"
        if seconds > notable and self._spoken_of.get(worker) != at.since:
            self._spoken_of[worker] = at.since
            self._say(WorkerSlow(at.round, at.chain, at.client, at.what, worker, seconds, usual))
        return None

    def _usual(self, at: Activity) -> float | None:
        if at.kind == "train":
            return self._speed.hop(at.samples)
        return self._evaluation_seconds / self._evaluations if at.kind == "evaluate" and self._evaluations else None

    def _say(self, event: WorkerSlow) -> None:
        if self.listener is None:
            warnings.warn(str(event), stacklevel=2)
        else:
            self.listener(event)
