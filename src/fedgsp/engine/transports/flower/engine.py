"""The engine whose clients are elsewhere: chains go over a Flower Grid, with their group managers beside the server.

It relays: every hop's model comes back here, is checked, and goes on to the chain's next client. Seeds, steps and sums are
those of the local engines, so without failures the model has their bits; with failures the skipped hops are in the event log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedgsp.data.federated import SPLITS, FederatedData
from fedgsp.engine.base import (
    Absent,
    EvaluationRequests,
    FinishedEvaluation,
    PendingEvaluation,
    Span,
    WorkerSetup,
    planned_work,
)
from fedgsp.engine.chain_runner import peak_memory_bytes
from fedgsp.engine.messages import EngineEvent, HopDone, HopSkipped, Listener, NotEvaluated
from fedgsp.engine.scheduler import ChainScheduler
from fedgsp.engine.transports.flower.adaptive_limit import AdaptiveTimeLimit
from fedgsp.engine.transports.flower.base_model import BaseSupply
from fedgsp.engine.transports.flower.board import Board, NoBoard
from fedgsp.engine.transports.flower.post import Clock
from fedgsp.engine.transports.flower.pulse import Pulse
from fedgsp.engine.transports.flower.site_checks import SiteLimits
from fedgsp.engine.transports.flower.site_messages import Evaluating, SiteAddress, SiteQuestion, Training
from fedgsp.engine.transports.flower.transport import FlowerTransport, ask
from fedgsp.engine.transports.flower.update_guard import UpdateGuard
from fedgsp.evaluate.forward import SampleScores

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Hop, Plan
    from fedgsp.core.state import ServerState
    from fedgsp.engine.transports.flower.conversation import Conversation
    from fedgsp.engine.transports.flower.run_spec import RunSpec
    from fedgsp.server.mean import Weighing


class Sites(Protocol):
    """The sites of a run as they are known at the moment."""

    @property
    def data(self) -> FederatedData:
        """The federation without its samples: who has how many, in which part."""
        ...

    def station(self, client: int) -> SiteAddress | None:
        """Where a client is to be found; None if it is not there."""
        ...

    def refused(self, client: int, cause: str, *, for_good: bool, changed: bool) -> None:
        """A client would not do what it was asked: it cannot, or its data is not what it was."""
        ...


@dataclass(frozen=True)
class MessageSettings:
    """How messages are sent: at most so many at once, how long each may take, how far an update may reach, what is believed."""

    in_flight: int = 8
    time_limit: AdaptiveTimeLimit = field(default_factory=lambda: AdaptiveTimeLimit(60.0, 3600.0))
    guard: UpdateGuard = field(default_factory=lambda: UpdateGuard(10.0))
    clock: Clock = field(default_factory=Clock)
    board: Board = field(default_factory=NoBoard)
    limits: SiteLimits = field(default_factory=SiteLimits)
    pulse: Pulse | None = None
    squeeze: bool = False


class FlowerEngine:
    """See `Engine`."""

    def __init__(self, grid: Grid, sites: Sites, setup: WorkerSetup, run_spec: RunSpec, messages: MessageSettings) -> None:
        self._grid, self._sites, self._setup, self._run_spec, self._messages = grid, sites, setup, run_spec, messages
        self._base = BaseSupply(setup)

    def run(
        self,
        plan: Plan,
        state: ServerState,
        listener: Listener,
        absent: Absent | None = None,
        meanwhile: PendingEvaluation | None = None,
        weighing: Weighing | None = None,
    ) -> Iterator[ChainResult]:
        """See `Engine.run`."""
        guard, limits = self._messages.guard, self._messages.limits
        guard.next_round(plan)
        conversation = Training(
            plan, state, self._setup, self._run_spec, self._sites, guard, limits, self._base, self._messages.squeeze
        )

        def told(event: EngineEvent) -> None:
            if isinstance(event, HopDone) and event.waited is not None:
                report = event.report
                self._messages.time_limit.learn(report.client, report.samples, report.seconds, event.waited)
            listener(event)
            board.note(event)

        board = self._messages.board
        board.begin(plan)
        transport = self._transport(conversation, self._sites.data.train.sizes, plan.round)
        transport.asked = board.asked
        scheduler = ChainScheduler(transport)
        work = planned_work(plan, self._sites.data)
        return scheduler.run_chains(plan, state, told, absent, work=work)

    def evaluate(
        self, state: ServerState, requests: EvaluationRequests, owners: Sequence[int | None] | None = None
    ) -> PendingEvaluation:
        """See `Engine.evaluate`: every client scores its own samples, and tells their sum only."""
        whose = [None] * len(requests) if owners is None else owners
        return self._asked(state, requests, [owner is not None for owner in whose])

    def _asked(self, state: ServerState, requests: EvaluationRequests, personal: Sequence[bool]) -> FinishedEvaluation:
        data = self._sites.data
        questions: dict[tuple[int, str, bool], dict[str, tuple[int, int]]] = {}
        for which, ((name, rows), own) in enumerate(zip(requests, personal, strict=True)):
            for client, part, at in _runs(data, rows):
                questions.setdefault((client, name, own), {})[part] = (which, at)
        asked = [SiteQuestion(*key, tuple(parts)) for key, parts in questions.items()]
        conversation = Evaluating(asked, state, self._setup, self._run_spec, self._sites, self._messages.limits, self._base)
        transport, missing = self._transport(conversation, data.sizes, state.round), []

        def skipped(event: HopSkipped) -> None:
            missing.append(NotEvaluated(state.round, event.client, event.cause))

        scores = [_empty(len(rows), self._setup) for _, rows in requests]
        for index in ask(transport, [question.client for question in asked], skipped, state.round):
            question = asked[index]
            places = questions[question.client, question.model, question.personal]
            for part, means in transport.answers[index].items():
                which, at = places[part]
                _put(scores[which], at, means)
        missing.sort(key=lambda one: one.client)
        return FinishedEvaluation(scores, tuple(missing))

    def _transport(self, conversation: Conversation, sizes: NDArray[np.int64], round_: int) -> FlowerTransport:
        def limit(hop: Hop) -> float:
            return self._messages.time_limit.limit(hop.client, int(sizes[hop.client]))

        messages = self._messages
        return FlowerTransport(
            self._grid, conversation, limit, messages.in_flight, messages.clock, str(round_), messages.pulse
        )  # fmt: skip

    def idle_share(self, plan: Plan) -> float:
        """See `Engine.idle_share`: an evaluation is never put off, since clients may have left by then."""
        return 0.0

    def spans(self) -> list[Span]:
        """See `Engine.spans`: what sites do is theirs to know."""
        return []

    def peak_memory(self) -> dict[str, int]:
        """See `Engine.peak_memory`."""
        return {"main": peak_memory_bytes()}

    def close(self) -> None:
        """The Grid is not ours to close."""


def _runs(data: FederatedData, rows: NDArray[np.int64]) -> Iterator[tuple[int, str, int]]:
    """Which client's which part each row is, and its place among the rows: an outline has one row for a whole part."""
    for at, row in enumerate(rows):
        yield *_place(data, int(row)), at


def _place(data: FederatedData, row: int) -> tuple[int, str]:
    """(client, part) of a row: an outline numbers its rows part by part, client by client."""
    for part in SPLITS:
        rows = getattr(data, part)
        if len(rows.rows) and rows.rows[0] <= row <= rows.rows[-1]:
            return int(np.searchsorted(rows.offsets, row - rows.rows[0], side="right")) - 1, part
    raise ValueError(f"row {row} is nobody's")


def _empty(length: int, setup: WorkerSetup) -> SampleScores:
    return SampleScores(np.zeros(length), {name: np.zeros(length) for name in setup.task.metrics})


def _put(scores: SampleScores, at: int, means: dict[str, float]) -> None:
    """A client's mean over a part stands in the one row that the part has."""
    scores.loss[at] = means["loss"]
    for name, column in scores.metrics.items():
        column[at] = means[name]
