"""What an engine is, and what each of its workers is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.client.batching import Batching
from fedgsp.client.client_state import ClientStore
from fedgsp.client.rules import SGD
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import FULL, Tensors, Wire
from fedgsp.data.batches import gather
from fedgsp.data.federated import FederatedData
from fedgsp.engine.messages import Listener, NotEvaluated
from fedgsp.evaluate.forward import SampleScores
from fedgsp.fast import PLAIN, Kernel
from fedgsp.models.catalog import ModelSpec
from fedgsp.models.state import frozen_names, frozen_tensors
from fedgsp.models.task import Task

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.state import ServerState
    from fedgsp.server.mean import Weighing


@dataclass(frozen=True)
class WorkerSetup:
    """What is the same for every chain of a run; `store` is where clients keep their states, if the rule has such.

    Clients `at_server` are the server's own samples: nothing is sent to or from them. `wire` says what a model is on its
    way from client to client.

    Args:
        model: The model and how to build it.
        rule: The local rule.
        task: Loss and metrics.
        data: The federation.
        seeds: Source of all random numbers.
        device: Where to compute.
        store: Where clients keep their states, if the rule has such.
        at_server: Clients that are the server's own samples.
        kernel: Who makes the steps.
        wire: What a model is on its way.
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
        """A model with what the rule adds to it, on the CPU, its weights still to be loaded.

        What is frozen is never loaded, so it is drawn as the initial weights are: the same everywhere.
        """
        model = self.wrap_model(self.model.build())
        if not frozen_names(model):
            return model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seeds.init())
            return self.wrap_model(self.model.build())

    def frozen_base(self) -> Tensors:
        """What of the model is frozen, and so does not travel; nothing where all of it is trained."""
        with torch.random.fork_rng(devices=[]):
            return frozen_tensors(self.fresh_model())

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """What the rule adds to a model for this data."""
        example, _ = gather(self.data, np.zeros(1, dtype=np.int64))
        return self.rule.wrap_model(model, example)

    def batching(self) -> Batching:
        """How clients' samples are cut into batches."""
        example, _ = gather(self.data, np.zeros(1, dtype=np.int64))
        with torch.random.fork_rng(devices=[]):
            return Batching.of(self.rule, self.fresh_model(), example)

    def beside_model(self) -> tuple[Tensors, Tensors]:
        """What the rule has every client keep between rounds, and what it has every hop send beside the model, by example."""
        if type(self.rule).initial_client_state is SGD.initial_client_state and type(self.rule).upload_spec is SGD.upload_spec:
            return {}, {}
        with torch.random.fork_rng(devices=[]):
            model = self.fresh_model()
        return self.rule.initial_client_state(model), self.rule.upload_spec(model)


@dataclass(frozen=True)
class Span:
    """What one worker did from when to when, by this process's clock (`time.perf_counter`)."""

    worker: int
    kind: str
    label: str
    begin: float
    end: float


Absent = Mapping[int, frozenset[int]]
"""Hops to leave out, by chain: what a replay reads off the event log."""


EvaluationRequests = Sequence[tuple[str, NDArray[np.int64]]]
"""(model name, rows) that are to be evaluated."""


class PendingEvaluation(Protocol):
    """Scores that were asked for and may not all be there yet."""

    @property
    def done(self) -> bool:
        """Whether all are there."""
        ...

    def result(self) -> list[SampleScores]:
        """The scores, after waiting for those that are still missing."""
        ...

    @property
    def missing(self) -> tuple[NotEvaluated, ...]:
        """Clients whose scores will never come, as is known after `result`; what stands in their place means nothing."""
        ...


@dataclass(frozen=True)
class FinishedEvaluation:
    """Scores that are there, but for those of the clients that are `missing`."""

    scores: list[SampleScores]
    missing: tuple[NotEvaluated, ...] = ()
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
        meanwhile: PendingEvaluation | None = None,
        weighing: Weighing | None = None,
    ) -> Iterator[ChainResult]:
        """Train the chains in parallel, the clients of each in sequence.

        Args:
            plan: The round's chains.
            state: What the server knows: its models, and the versions of the clients' states.
            listener: Told of every hop and failure, before it takes effect.
            absent: Hops to leave out.
            meanwhile: An evaluation for workers that would be idle.
            weighing: How results may be added up where they are, if they are far away.

        Returns:
            Results in any order. A result's tensors are only valid until the next one is asked for (`server.rule.hand` copies
            them for rules that keep them). A chain in which no client trained yields none.

        Raises:
            RunFailed: A client failed too often, or workers cannot start.
        """
        ...

    def evaluate(
        self, state: ServerState, requests: EvaluationRequests, owners: Sequence[int | None] | None = None
    ) -> PendingEvaluation:
        """Begin an evaluation; one at a time.

        Args:
            state: Where the models are.
            requests: Which model on which rows.
            owners: For each request the client, if any, that makes the model its own first (`SGD.personalise`).

        Returns:
            The scores of every row, once they are there.
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
    sizes = data.train.counted
    return [int(sizes[list(set(chain.clients))].sum()) for chain in plan.chains]


def planned_work(plan: Plan, data: FederatedData) -> list[int]:
    """Samples each chain is planned to go through, all passes."""
    return [n * chain.passes for n, chain in zip(planned_samples(plan, data), plan.chains, strict=True)]
