"""The paper's group manager: it walks one group's model from client to client.

A pure state machine, `step(event, now) -> actions`: no clock, no I/O, no tensors (a model is an opaque token). It says which
client is next and what it is handed, tries again or skips a client that fails, times a hop out, ignores answers that come too
late or twice, and says in the end what happened. Local engines run it inside the worker; a deployment beside the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fedgsp.core.chain import Chain, HopReport, Stop


@dataclass(frozen=True)
class Policy:
    """What to do when a hop fails: try again `retries` times, then stop the chain or skip the client.

    `hop_seconds` is how long a client may take, the same for all or a stop's own; None waits for ever (a local client cannot
    get lost on the way).
    """

    on_failure: Literal["stop", "skip"] = "stop"
    retries: int = 0
    hop_seconds: float | Callable[[Stop], float] | None = None

    def limit(self, stop: Stop) -> float | None:
        """How long this stop may take."""
        return self.hop_seconds(stop) if callable(self.hop_seconds) else self.hop_seconds


@dataclass(frozen=True)
class Begin:
    """The chain may start with the model behind `token`."""

    token: Any = None


@dataclass(frozen=True)
class Trained:
    """The client of hop `hop`, attempt `attempt`, handed on the model behind `token`."""

    hop: int
    attempt: int
    token: Any
    report: HopReport


@dataclass(frozen=True)
class Failed:
    """Hop `hop`, attempt `attempt`, came to nothing."""

    hop: int
    attempt: int
    cause: str


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = Begin | Trained | Failed | Tick


@dataclass(frozen=True)
class Train:
    """Hand the model behind `token` to `stop.client`; answers carry `attempt`, and count until `deadline`."""

    stop: Stop
    attempt: int
    token: Any
    deadline: float | None


@dataclass(frozen=True)
class Skipped:
    """The chain goes on without this stop, from the last good model."""

    stop: Stop
    cause: str


@dataclass(frozen=True)
class Finished:
    """The chain is walked; `token` is the last good model, `hops` what took place (empty if every client failed)."""

    token: Any
    hops: tuple[HopReport, ...]


@dataclass(frozen=True)
class GaveUp:
    """The chain cannot go on."""

    stop: Stop
    cause: str


Action = Train | Skipped | Finished | GaveUp


class GroupManager:
    """One group's manager for one round. `absent` are hops known to be skipped (a replay reads them off the event log)."""

    def __init__(self, chain: Chain, policy: Policy, absent: frozenset[int] = frozenset()) -> None:
        self._policy = policy
        self._absent = absent
        self._stops: Iterator[Stop] = chain.stops()
        self._current: Stop | None = None
        self._attempt = 0
        self._tries_left = 0
        self._limit: float | None = None
        self._deadline: float | None = None
        self._token: Any = None
        self._hops: list[HopReport] = []
        self._over = False

    @property
    def over(self) -> bool:
        """Whether the chain has finished or been given up."""
        return self._over

    @property
    def deadline(self) -> float | None:
        """When the client that has the model now will have taken too long."""
        return self._deadline

    def step(self, event: Event, now: float) -> list[Action]:
        """Take in what happened, say what to do."""
        if self._over:
            return []
        if isinstance(event, Begin):
            if self._current is not None:
                raise ValueError("a chain begins once")
            self._token = event.token
            return self._next(now)
        if self._current is None:
            raise ValueError("the chain has not begun")
        if isinstance(event, Tick):
            if self._deadline is None or now < self._deadline:
                return []
            return self._failed(f"no answer within {self._limit:g} s", now)
        if event.hop != self._current.hop or event.attempt != self._attempt:
            return []  # late or twice: that hop has been decided
        if isinstance(event, Failed):
            return self._failed(event.cause, now)
        self._token = event.token
        self._hops.append(event.report)
        return self._next(now)

    def _next(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for stop in self._stops:
            self._current = stop
            if stop.hop in self._absent:
                actions.append(Skipped(stop, "absent in the event log"))
                continue
            self._tries_left = self._policy.retries
            return [*actions, self._train(now)]
        self._over = True
        return [*actions, Finished(self._token, tuple(self._hops))]

    def _train(self, now: float) -> Train:
        assert self._current is not None
        self._attempt += 1
        self._limit = self._policy.limit(self._current)
        self._deadline = None if self._limit is None else now + self._limit
        return Train(self._current, self._attempt, self._token, self._deadline)

    def _failed(self, cause: str, now: float) -> list[Action]:
        assert self._current is not None
        if self._tries_left > 0:
            self._tries_left -= 1
            return [self._train(now)]
        if self._policy.on_failure == "skip":
            return [Skipped(self._current, cause), *self._next(now)]
        self._over = True
        return [GaveUp(self._current, cause)]
