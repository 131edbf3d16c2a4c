"""The engine whose clients are elsewhere: chains are walked over a Flower Grid by group managers beside the server.

It relays: every hop's model comes back here, is checked, and goes on to the chain's next client. Seeds, steps and sums are
those of the local engines, so without failures the model has their bits; with failures the skipped hops are in the event log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedgsp.core.chain import Chain, ChainResult, Plan, Stop
from fedgsp.core.state import ServerState
from fedgsp.data.federated import PARTS, FederatedData
from fedgsp.engine.flower.dialect import Baton, Evaluating, Question, Station, Training
from fedgsp.engine.flower.guard import Guard
from fedgsp.engine.flower.pace import Pace
from fedgsp.engine.flower.pump import Arrived, Clock, Hopped, Missed, Pump
from fedgsp.engine.flower.sheet import Sheet
from fedgsp.engine.job import (
    Absent,
    HopDone,
    HopSkipped,
    Job,
    Listener,
    NotJudged,
    Scored,
    Scoring,
    Span,
    Wanted,
    longest_first,
)
from fedgsp.engine.manager import Policy
from fedgsp.engine.walk import peak_memory_bytes
from fedgsp.evaluate.forward import SampleScores
from fedgsp.server.mean import Weighing


class Sites(Protocol):
    """The sites of a run as they are known at the moment."""

    @property
    def data(self) -> FederatedData:
        """The federation without its samples: who has how many, in which part."""
        ...

    def station(self, client: int) -> Station | None:
        """Where a client is to be found; None if it is not there."""
        ...

    def refused(self, client: int, cause: str, *, for_good: bool, changed: bool) -> None:
        """A client would not do what it was asked: it cannot, or its data is not what it was."""
        ...


@dataclass(frozen=True)
class Ways:
    """How messages are sent: at most so many at once, how long each may take, how far an update may reach."""

    in_flight: int = 8
    pace: Pace = field(default_factory=lambda: Pace(60.0, 3600.0))
    guard: Guard = field(default_factory=lambda: Guard(10.0))
    clock: Clock = field(default_factory=Clock)


class FlowerEngine:
    """See `Engine`."""

    def __init__(self, grid: Grid, sites: Sites, job: Job, sheet: Sheet, ways: Ways) -> None:
        self._grid, self._sites, self._job, self._sheet, self._ways = grid, sites, job, sheet, ways

    def run(
        self,
        plan: Plan,
        state: ServerState,
        listener: Listener,
        absent: Absent | None = None,
        meanwhile: Scoring | None = None,
        weighing: Weighing | None = None,
    ) -> Iterator[ChainResult]:
        """See `Engine.run`."""
        self._ways.guard.next_round()
        dialect = Training(plan, state, self._job, self._sheet, self._sites, self._ways.guard)
        sizes = self._sites.data.train.sizes

        def limit(stop: Stop) -> float:
            return self._ways.pace.limit(stop.client, int(sizes[stop.client]))

        chains = {index: plan.chains[index] for index in longest_first(plan, self._sites.data)}
        for happening in self._pump(dialect, limit, plan.round).walk(chains, dialect.begin, absent):
            if isinstance(happening, Hopped):
                report = happening.report
                self._ways.pace.learn(report.client, report.samples, report.seconds, happening.waited)
                listener(HopDone(plan.round, happening.index, report, happening.waited))
            elif isinstance(happening, Missed):
                stop = happening.stop
                listener(
                    HopSkipped(
                        plan.round, happening.index, stop.hop, stop.client, happening.cause, happening.lost_bytes,
                        happening.seconds,
                    )
                )  # fmt: skip
            elif happening.hops:
                baton: Baton = happening.token
                yield ChainResult(
                    happening.index, plan.chains[happening.index], baton.tensors, happening.hops, baton.sent, baton.marks
                )

    def ask(self, state: ServerState, wanted: Wanted, owners: Sequence[int | None] | None = None) -> Scoring:
        """See `Engine.ask`: every client scores its own samples, and tells their sum only."""
        whose = [None] * len(wanted) if owners is None else owners
        return self._asked(state, wanted, [owner is not None for owner in whose])

    def _asked(self, state: ServerState, wanted: Wanted, personal: Sequence[bool]) -> Scored:
        data = self._sites.data
        questions: dict[tuple[int, str, bool], dict[str, tuple[int, int]]] = {}
        for which, ((name, rows), own) in enumerate(zip(wanted, personal, strict=True)):
            for client, part, at in _runs(data, rows):
                questions.setdefault((client, name, own), {})[part] = (which, at)
        asked = [Question(*key, tuple(parts)) for key, parts in questions.items()]
        dialect = Evaluating(asked, state, self._job, self._sheet, self._sites)
        sizes = data.sizes

        def limit(stop: Stop) -> float:
            return self._ways.pace.limit(stop.client, int(sizes[stop.client]))

        scores = [_empty(len(rows), self._job) for _, rows in wanted]
        missing = []
        chains = {index: Chain((question.client,)) for index, question in enumerate(asked)}
        for happening in self._pump(dialect, limit, state.round).walk(chains):
            if isinstance(happening, Missed):
                missing.append(NotJudged(state.round, happening.stop.client, happening.cause))
            elif isinstance(happening, Arrived) and happening.hops:
                question = asked[happening.index]
                places = questions[question.client, question.model, question.personal]
                for part, sums in happening.token.items():
                    which, at = places[part]
                    _put(scores[which], at, sums)
        missing.sort(key=lambda one: one.client)
        return Scored(scores, tuple(missing))

    def _pump(self, dialect: Any, limit: Any, round_: int) -> Pump:
        policy = Policy(on_failure="skip", hop_seconds=limit)
        return Pump(self._grid, dialect, policy, self._ways.in_flight, self._ways.clock, str(round_))

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
    """Which client's which part the rows are, run by run, and where among the rows each begins; parts are asked for whole."""
    at = 0
    while at < len(rows):
        client, part, size = _place(data, int(rows[at]))
        yield client, part, at
        at += size


def _place(data: FederatedData, row: int) -> tuple[int, str, int]:
    """(client, part, its size) of a row: an outline numbers its rows part by part, client by client."""
    for part in PARTS:
        rows = getattr(data, part)
        if len(rows.rows) and rows.rows[0] <= row <= rows.rows[-1]:
            client = int(np.searchsorted(rows.offsets, row - rows.rows[0], side="right")) - 1
            return client, part, int(rows.sizes[client])
    raise ValueError(f"row {row} is nobody's")


def _empty(length: int, job: Job) -> SampleScores:
    return SampleScores(np.zeros(length), {name: np.zeros(length) for name in job.task.metrics})


def _put(scores: SampleScores, at: int, sums: dict[str, float]) -> None:
    """A client's sum stands in place of its first sample's value, and zeros after it: their sum is that, to the bit."""
    scores.loss[at] = sums["loss"]
    for name, column in scores.metrics.items():
        column[at] = sums[name]
