"""Who can take part in a round. In a simulation all clients, always; in a deployment whoever is there when it is planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedgsp.core.profiles import Profiles
    from fedgsp.data.federated import FederatedData
    from fedgsp.run.run import Run


@dataclass(frozen=True)
class Work:
    """Training that was planned, or done: how many samples count, of how many clients."""

    samples: int
    clients: int


RecordEvent = Callable[..., None]
"""How something is put into the event log: `event(kind, **facts)`, on disk when it returns."""


@dataclass(frozen=True)
class Participants:
    """A round's clients.

    Attributes:
        profiles: What a planner may know of them.
        training: What they train on.
        data: What the model is evaluated on.
        evaluated: The clients whose test samples count.
        held_out: The clients that never train.
        attempt: How often this round has been tried, this time included.
        facts: Entries for the round's journal line.
    """

    profiles: Profiles
    training: FederatedData
    data: FederatedData
    evaluated: NDArray[np.int64]
    held_out: NDArray[np.int64]
    attempt: int = 1
    facts: dict[str, Any] = field(default_factory=dict)


class Availability(Protocol):
    """Says who can take part, and whether those that trained were enough."""

    @property
    def fixed(self) -> bool:
        """Whether it is always the same clients, so that the next round can be planned before the last is evaluated."""
        ...

    def participants(self, round_: int, event: RecordEvent) -> Participants:
        """Who can take part in a round; may wait for them."""
        ...

    def enough(self, round_: int, trained: Work, planned: Work, event: RecordEvent) -> bool:
        """Whether a round counts in which so much of what was planned was trained; else it is planned and run again."""
        ...


@dataclass(frozen=True)
class AlwaysAvailable:
    """All clients of a simulation, in every round."""

    run: Run
    fixed: bool = True

    @cached_property
    def _all(self) -> Participants:
        run, training = self.run, self.run.worker_setup.data
        return Participants(training.profiles(run.participants), training, run.data, run.evaluated, run.held_out)

    def participants(self, round_: int, event: RecordEvent) -> Participants:
        """See `Availability.participants`."""
        return self._all

    def enough(self, round_: int, trained: Work, planned: Work, event: RecordEvent) -> bool:
        """See `Availability.enough`: nobody is ever missing."""
        return True
