"""Workers that hang are noticed. What a hop takes is learned from those that were made; one that takes far longer gets a line.

Where there is a limit, the worker is replaced after it, and its chain walked again from its start: so it never decides a bit.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from typing import Literal

from fedgsp.engine.bundles import Speed
from fedgsp.engine.job import Listener, WorkerSlow

TIMES = 20.0
"""So many times as long as usual is worth a line."""


@dataclass(frozen=True)
class Patience:
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
class At:
    """What a worker is at, and `since` when (`time.perf_counter`, which all processes of a machine share).

    `samples` are what the client trains on, or the largest of the clients that it may be at. `slack` is added to the limit:
    for a worker that is new, or is heard of only now and then.
    """

    kind: Literal["start", "train", "evaluate"]
    what: str
    since: float
    round: int = 0
    chain: int | None = None
    client: int | None = None
    samples: int = 0
    slack: float = 0.0


class Watch:
    """Looks at workers now and then; `listener` is told of those that may hang."""

    def __init__(self, patience: Patience, speed: Speed) -> None:
        self.patience, self._speed = patience, speed
        self.listener: Listener | None = None
        self._spoken_of: dict[str, float] = {}
        self._scored, self._scoring = 0, 0.0
        self._next = 0.0

    def due(self) -> bool:
        """Whether it is time to look again."""
        now = time.perf_counter()
        if now < self._next:
            return False
        self._next = now + self.patience.tick
        return True

    def scored(self, seconds: float) -> None:
        """Learn from an evaluation."""
        self._scored, self._scoring = self._scored + 1, self._scoring + seconds

    def overdue(self, worker: str, at: At) -> str | None:
        """Why a worker must be replaced, if it must; one that only may hang is spoken of, once.

        The limit is a hop's: evaluation may take longer if it always does.
        """
        seconds, usual, patience = time.perf_counter() - at.since, self._usual(at), self.patience
        notable = patience.start if at.kind == "start" else patience.notable(usual)
        if patience.limit is not None:
            last = patience.limit + at.slack if at.kind == "train" else max(patience.limit, notable)
            if seconds > last and at.kind == "start":
                return f"its worker ({worker}) was not ready after {last:g} s, and was replaced"
            if seconds > last:
                return f"its worker ({worker}) took longer than the {patience.limit:g} s that a hop may take, and was replaced"
        if seconds > notable and self._spoken_of.get(worker) != at.since:
            self._spoken_of[worker] = at.since
            self._say(WorkerSlow(at.round, at.chain, at.client, at.what, worker, seconds, usual))
        return None

    def _usual(self, at: At) -> float | None:
        if at.kind == "train":
            return self._speed.hop(at.samples)
        return self._scoring / self._scored if at.kind == "evaluate" and self._scored else None

    def _say(self, event: WorkerSlow) -> None:
        if self.listener is None:
            warnings.warn(str(event), stacklevel=2)
        else:
            self.listener(event)
