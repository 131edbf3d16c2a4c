"""The paper's group manager: it walks one group's model from client to client.

A pure state machine, `step(event) -> actions`: no clock, no I/O, no tensors (a model is an opaque token). It says which client
is next and what it is handed, tries again or skips a client that fails, ignores answers that come too late or twice, and says
in the end what happened. There is one a chain, beside the scheduler, in every engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fedgsp.core.chain import Chain, Hop, HopReport


@dataclass(frozen=True)
class Policy:
    """What to do when a hop fails: try again `retries` times, then stop the chain or skip the client."""

    on_failure: Literal["stop", "skip"] = "stop"
    retries: int = 0


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


Event = Begin | Trained | Failed


@dataclass(frozen=True)
class Train:
    """Hand the model behind `token` to `hop.client`; answers carry `attempt`."""

    hop: Hop
    attempt: int
    token: Any


@dataclass(frozen=True)
class Skipped:
    """The chain goes on without this hop, from the last good model."""

    hop: Hop
    cause: str


@dataclass(frozen=True)
class Finished:
    """The chain is done; `token` is the last good model, `hops` what took place (empty if every client failed)."""

    token: Any
    hops: tuple[HopReport, ...]


@dataclass(frozen=True)
class GaveUp:
    """The chain cannot go on."""

    hop: Hop
    cause: str


Action = Train | Skipped | Finished | GaveUp


class GroupManager:
    """One group's manager for one round. `absent` are hops known to be skipped (a replay reads them off the event log)."""

    def __init__(self, chain: Chain, policy: Policy, absent: frozenset[int] = frozenset()) -> None:
        self._policy = policy
        self._absent = absent
        self._remaining: Iterator[Hop] = chain.hops()
        self._current: Hop | None = None
        self._attempt = 0
        self._tries_left = 0
        self._token: Any = None
        self._hops: list[HopReport] = []
        self._over = False

    @property
    def over(self) -> bool:
        """Whether the chain has finished or been given up."""
        return self._over

    def step(self, event: Event) -> list[Action]:
        """Take in what happened, say what to do."""
        if self._over:
            return []
        if isinstance(event, Begin):
            if self._current is not None:
                raise ValueError("a chain begins once")
            self._token = event.token
            return self._next()
        if self._current is None:
            raise ValueError("the chain has not begun")
        if event.hop != self._current.index or event.attempt != self._attempt:
            return []  # late or twice: that hop has been decided
        if isinstance(event, Failed):
            return self._failed(event.cause)
        self._token = event.token
        self._hops.append(event.report)
        return self._next()

    def _next(self) -> list[Action]:
        actions: list[Action] = []
        for hop in self._remaining:
            self._current = hop
            if hop.index in self._absent:
                actions.append(Skipped(hop, "absent in the event log"))
                continue
            self._tries_left = self._policy.retries
            return [*actions, self._train()]
        self._over = True
        return [*actions, Finished(self._token, tuple(self._hops))]

    def _train(self) -> Train:
        assert self._current is not None
        self._attempt += 1
        return Train(self._current, self._attempt, self._token)

    def _failed(self, cause: str) -> list[Action]:
        assert self._current is not None
        if self._tries_left > 0:
            self._tries_left -= 1
            return [self._train()]
        if self._policy.on_failure == "skip":
            return [Skipped(self._current, cause), *self._next()]
        self._over = True
        return [GaveUp(self._current, cause)]
