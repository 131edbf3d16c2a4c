"""Who is there in a round. In a simulation always the same; in a deployment whoever is there when the round is planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.profiles import Profiles
from fedgsp.data.federated import FederatedData
from fedgsp.run.setup import Setup

Event = Callable[..., None]
"""How something is put into the event log: `event(kind, **facts)`, on disk when it returns."""


@dataclass(frozen=True)
class Present:
    """A round's clients: what a planner may know of them, what they hold, and whose samples the model is judged on.

    `attempt` says how often this round has been tried, `facts` are entries for its journal line.
    """

    profiles: Profiles
    trained: FederatedData
    data: FederatedData
    judged: NDArray[np.int64]
    held_out: NDArray[np.int64]
    attempt: int = 1
    facts: dict[str, Any] = field(default_factory=dict)


class Attendance(Protocol):
    """Says who is there, and whether those that trained were enough."""

    @property
    def steady(self) -> bool:
        """Whether it is always the same clients, so that the next round can be planned before the last is evaluated."""
        ...

    def gather(self, round_: int, event: Event) -> Present:
        """Who is there for a round; may wait for them."""
        ...

    def enough(self, round_: int, trained: int, planned: int, event: Event) -> bool:
        """Whether a round counts in which so many of the planned samples were trained; else it is planned and run again."""
        ...


@dataclass(frozen=True)
class Everybody:
    """A simulation's clients."""

    setup: Setup
    steady: bool = True

    @cached_property
    def _present(self) -> Present:
        setup = self.setup
        profiles = setup.job.data.profiles(setup.roster)
        return Present(profiles, setup.job.data, setup.data, setup.judged, setup.held_out)

    def gather(self, round_: int, event: Event) -> Present:
        """All that train, every time."""
        return self._present

    def enough(self, round_: int, trained: int, planned: int, event: Event) -> bool:
        """Nobody is ever missing here."""
        return True
