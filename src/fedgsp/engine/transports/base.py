"""What the scheduler needs of a transport: who is idle, send this, what came back, replace this one."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedgsp.engine.manager import Policy
from fedgsp.engine.messages import Answer, ChainOutput, Task, TrainDone, WorkerGone
from fedgsp.engine.task_batching import BatchLimits

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.engine.time_limits import Activity


@dataclass(eq=False)
class WorkerHandle:
    """A worker as the scheduler sees it: what it does, `since` when, and for whom.

    `warm`: it has trained before. `hops_done` of a lone segment it has told. `summed` are the chains whose results it has
    added up and not yet handed over.
    """

    number: int
    ready: bool = False
    task: Task | None = None
    sender: Any = None
    since: float = field(default_factory=time.perf_counter)
    warm: bool = False
    hops_done: int = 0
    summed: list[int] = field(default_factory=list)

    holds_all = True

    def holds(self, client: int) -> bool:
        """Whether it has this client's samples."""
        return True


class Transport(ABC):
    """How tasks reach workers.

    Class constants are policy: `policy` says whether a hop that fails stops its chain or skips the client; a chain that was
    stopped begins again, so that its client fails at most `most_exceptions` times by an exception and `most_deaths` times by
    the death of its worker. `sums_there`: results are far away, and may be added up where they are. `hops_at_once`: the most
    hops in a segment.
    """

    policy: Policy = Policy(on_failure="stop")
    batch_limits: BatchLimits = BatchLimits()
    most_exceptions = 2  # an exception will most likely repeat itself
    most_deaths = 3
    sums_there = False
    hops_at_once: int | None = None

    def __init__(self) -> None:
        self.workers: list[WorkerHandle] = []

    def idle(self) -> Iterator[Any]:
        """Who could be handed a task now."""
        return (worker for worker in self.workers if worker.ready and worker.task is None)

    @abstractmethod
    def send(self, worker: Any, task: Task) -> None:
        """Hand a task to a worker that is idle."""

    @abstractmethod
    def receive(self, seconds: float) -> Iterator[tuple[Any, Answer]]:
        """Wait for answers, at most so long; those who died are replaced and reported."""

    @abstractmethod
    def replace(self, worker: Any, cause: str | None = None, blameless: bool = False) -> WorkerGone:
        """End a worker, or bury one that died (`cause` None: find out why), and start another."""

    @abstractmethod
    def publish(self, state: ServerState, slots: frozenset[str] | None = None) -> Any:
        """Make a state's models available to all workers; with `slots`, for an evaluation that needs these too.

        Models published for an evaluation stay available while those of the next round are.
        """

    @abstractmethod
    def fetch(self, worker: Any, done: TrainDone, round_: int) -> Sequence[ChainOutput] | None:
        """What a task's segments hand on, here; None if the node is gone that had it."""

    @abstractmethod
    def activity(self, worker: Any) -> Activity | None:
        """What a worker is at; None for one that is idle, or has said something that is not read yet."""

    def begin_round(self) -> None:
        """A round begins: workers that have joined since the last one may be used."""
        return

    def cost_of(self, worker: Any) -> tuple[int, float]:
        """Bytes that were sent for nothing, and seconds that went by, where a worker's hop is skipped."""
        return 0, 0.0

    @abstractmethod
    def close(self) -> None:
        """End all workers; may be called twice."""
