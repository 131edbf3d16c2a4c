"""What every engine is given, and what it says while it works."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.client.batching import Batching
from fedgsp.client.keep import ClientStore
from fedgsp.client.rules import SGD
from fedgsp.core.chain import ChainResult, HopReport, Plan
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import ServerState
from fedgsp.core.tensors import Tensors
from fedgsp.core.wire import FULL, Wire
from fedgsp.data.batches import gather
from fedgsp.data.federated import FederatedData
from fedgsp.evaluate.forward import SampleScores
from fedgsp.fast import PLAIN, Kernel
from fedgsp.models.catalog import ModelSpec
from fedgsp.models.task import Task
from fedgsp.server.mean import Weighing


@dataclass(frozen=True)
class Job:
    """What is the same for every chain of a run; `store` is where clients keep their states, if the rule has such.

    Clients `at_server` are the server's own samples: nothing is sent to or from them. `wire` says what a model is on its
    way from client to client.
    """

    model: ModelSpec
    rule: SGD
    task: Task
    data: FederatedData
    seeds: Seeds
    device: str = "cpu"
    store: ClientStore | None = None
    at_server: frozenset[int] = frozenset()
    kernel: Kernel = PLAIN
    wire: Wire = FULL

    def fresh_model(self) -> nn.Module:
        """A model with what the rule adds to it, on the CPU, its weights still to be loaded."""
        return self.equip(self.model.build())

    def equip(self, model: nn.Module) -> nn.Module:
        """What the rule adds to a model for this data."""
        example, _ = gather(self.data, np.zeros(1, dtype=np.int64))
        return self.rule.equip(model, example)

    def batching(self) -> Batching:
        """How clients' samples are cut into batches."""
        example, _ = gather(self.data, np.zeros(1, dtype=np.int64))
        with torch.random.fork_rng(devices=[]):
            return Batching.of(self.rule, self.fresh_model(), example)

    def beside_model(self) -> tuple[Tensors, Tensors]:
        """What the rule has every client keep between visits, and what it has every hop send beside the model, by example."""
        if type(self.rule).keeps is SGD.keeps and type(self.rule).sends is SGD.sends:
            return {}, {}
        with torch.random.fork_rng(devices=[]):
            model = self.fresh_model()
        return self.rule.keeps(model), self.rule.sends(model)


@dataclass(frozen=True)
class HopDone:
    """A client of chain `chain` has trained; `waited` is how long it took from asking it to its answer, where that is known."""

    round: int
    chain: int
    report: HopReport
    waited: float | None = None


@dataclass(frozen=True)
class HopSkipped:
    """A client failed, was late or sent what cannot be used: its chain goes on without it, from the last good model.

    `lost_bytes` were sent to it for nothing, `seconds` went by until that was known.
    """

    round: int
    chain: int
    hop: int
    client: int
    cause: str
    lost_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class NotJudged:
    """A client gave no scores of a round's model, so the round's figures are about the others."""

    round: int
    client: int
    cause: str


@dataclass(frozen=True)
class WorkerLost:
    """A worker process died or failed while it walked chain `chain`; `trace` is the exception's, where there was one."""

    round: int
    chain: int
    client: int | None
    cause: str
    trace: str | None = None


@dataclass(frozen=True)
class WorkerSlow:
    """A worker has been at `what` (a client's training, an evaluation, its start) for far longer than `usual`: it may hang."""

    round: int
    chain: int | None
    client: int | None
    what: str
    worker: str
    seconds: float
    usual: float | None

    def __str__(self) -> str:
        usual = "" if self.usual is None else f", where {self.usual:.2g} s is usual"
        return f"worker ({self.worker}) has been at {self.what} for {self.seconds:.0f} s{usual}; it may hang"


@dataclass(frozen=True)
class Span:
    """What one worker did from when to when, by this process's clock (`time.perf_counter`)."""

    worker: int
    kind: str
    label: str
    begin: float
    end: float


EngineEvent = HopDone | HopSkipped | WorkerLost | WorkerSlow
Listener = Callable[[EngineEvent], None]
Absent = Mapping[int, frozenset[int]]
"""Hops to leave out, by chain: what a replay reads off the event log."""


Wanted = Sequence[tuple[str, NDArray[np.int64]]]
"""(model name, rows) that are to be scored."""


class Scoring(Protocol):
    """Scores that were asked for and may not all be there yet."""

    @property
    def done(self) -> bool:
        """Whether all are there."""
        ...

    def result(self) -> list[SampleScores]:
        """The scores, after waiting for those that are still missing."""
        ...

    @property
    def missing(self) -> tuple[NotJudged, ...]:
        """Clients whose scores will never come, as is known after `result`; what stands in their place means nothing."""
        ...


@dataclass(frozen=True)
class Scored:
    """Scores that are there, but for those of the clients that are `missing`."""

    scores: list[SampleScores]
    missing: tuple[NotJudged, ...] = ()
    done: bool = True

    def result(self) -> list[SampleScores]:
        """They are."""
        return self.scores


class Engine(Protocol):
    """Where chains run."""

    def run(
        self,
        plan: Plan,
        state: ServerState,
        listener: Listener,
        absent: Absent | None = None,
        meanwhile: Scoring | None = None,
        weighing: Weighing | None = None,
    ) -> Iterator[ChainResult]:
        """Walk the chains in parallel, the clients of each in sequence; results come in any order.

        A result's tensors are only valid until the next one is asked for (`server.rule.hand` copies them for rules that keep
        them). A chain in which no client trained yields none. Who
        would be idle goes on with `meanwhile`. An engine whose results are far away may add them up there, by `weighing`;
        others hand on each of them.
        """
        ...

    def ask(self, state: ServerState, wanted: Wanted, owners: Sequence[int | None] | None = None) -> Scoring:
        """Per-sample scores of (model name, rows), for each of `wanted`; one asking at a time.

        `owners` names for each of them the client, if any, that makes the model its own before (`SGD.personalise`).
        """
        ...

    def idle_share(self, plan: Plan) -> float:
        """Which part of the workers' time this plan will leave unused, with chains that cannot be cut."""
        ...

    def spans(self) -> list[Span]:
        """What workers did since the last call."""
        ...

    def peak_memory(self) -> dict[str, int]:
        """The largest resident memory in bytes of each process so far."""
        ...

    def close(self) -> None:
        """Stop everything that was started; may be called twice."""
        ...


def planned_samples(plan: Plan, data: FederatedData) -> list[int]:
    """Training samples each chain is planned to see (each client once)."""
    sizes = data.train.sizes
    return [int(sizes[list(set(chain.clients))].sum()) for chain in plan.chains]


def planned_work(plan: Plan, data: FederatedData) -> list[int]:
    """Samples each chain is planned to go through, all passes."""
    return [n * chain.passes for n, chain in zip(planned_samples(plan, data), plan.chains, strict=True)]


def longest_first(plan: Plan, data: FederatedData) -> list[int]:
    """Chain numbers in the order they should start, so that the round does not end waiting for a long one."""
    work = planned_work(plan, data)
    return sorted(range(len(work)), key=lambda i: (-work[i], i))
