"""An engine that does as an event log says: who was skipped, who was not evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.chain import HopReport
from fedgsp.engine.base import Absent, Engine, EvaluationRequests, FinishedEvaluation, PendingEvaluation, Span
from fedgsp.evaluate.forward import SampleScores

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.state import ServerState
    from fedgsp.data.federated import FederatedData
    from fedgsp.engine.messages import Listener
    from fedgsp.run.recorded_rounds import RecordedRounds
    from fedgsp.server.mean import Weighing


Believed = Callable[[int, HopReport], HopReport]
"""What a round's hop counted for, as the log has it."""


class ReplayEngine:
    """A local engine that leaves out the hops that were skipped and, with `apart`, evaluates client by client, as sites do.

    `believed` says what each hop counted for, where that need not be all that the client trained.
    """

    def __init__(
        self,
        engine: Engine,
        log: RecordedRounds,
        data: FederatedData,
        metrics: Sequence[str],
        apart: bool = True,
        believed: Believed | None = None,
    ) -> None:
        self._engine, self._log, self._metrics, self._apart_by_client = engine, log, tuple(metrics), apart
        self._believed = believed
        self._owner = np.full(len(data.features), -1, dtype=np.int64)
        for part in (data.train, data.validation, data.test):
            self._owner[part.rows] = np.repeat(np.arange(len(data)), part.sizes)

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
        skips: dict[int, set[int]] = {}
        for one in self._log.of(plan.round).skipped:
            listener(one)
            skips.setdefault(one.chain, set()).add(one.hop)
        left_out = {chain: frozenset(hops) for chain, hops in skips.items()}
        believed = self._believed
        if believed is None:
            return self._engine.run(plan, state, listener, left_out, meanwhile, weighing)
        results = self._engine.run(plan, state, listener, left_out, meanwhile, None)
        return (replace(one, hops=tuple(believed(plan.round, hop) for hop in one.hops)) for one in results)

    def evaluate(
        self, state: ServerState, requests: EvaluationRequests, owners: Sequence[int | None] | None = None
    ) -> PendingEvaluation:
        """See `Engine.evaluate`."""
        if not self._apart_by_client:
            return self._engine.evaluate(state, requests, owners)
        whose = [None] * len(requests) if owners is None else owners
        missing = tuple(self._log.of(state.round).not_evaluated)
        gone = frozenset(one.client for one in missing)
        pieces: list[tuple[str, NDArray[np.int64]]] = []
        owned: list[int | None] = []
        places: list[tuple[int, int]] = []
        for which, ((name, rows), owner) in enumerate(zip(requests, whose, strict=True)):
            for at, part in self._apart(rows):
                if int(self._owner[part[0]]) not in gone:
                    pieces.append((name, part))
                    owned.append(owner)
                    places.append((which, at))
        found = self._engine.evaluate(state, pieces, owned).result()
        scores = [
            SampleScores(np.zeros(len(rows), np.float32), {m: np.zeros(len(rows), np.float32) for m in self._metrics})
            for _, rows in requests
        ]
        for (which, at), piece in zip(places, found, strict=True):
            to = slice(at, at + len(piece.loss))
            scores[which].loss[to] = piece.loss
            for name in self._metrics:
                scores[which].metrics[name][to] = piece.metrics[name]
        return FinishedEvaluation(scores, missing)

    def _apart(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The rows client by client, and where each begins."""
        if len(rows) == 0:
            return
        owners = self._owner[rows]
        begins = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(rows)]
        for begin, end in pairwise(begins):
            yield begin, rows[begin:end]

    def idle_share(self, plan: Plan) -> float:
        """See `Engine.idle_share`."""
        return 0.0 if self._apart_by_client else self._engine.idle_share(plan)

    def spans(self) -> list[Span]:
        """See `Engine.spans`."""
        return self._engine.spans()

    def peak_memory(self) -> dict[str, int]:
        """See `Engine.peak_memory`."""
        return self._engine.peak_memory()

    def close(self) -> None:
        """See `Engine.close`."""
        self._engine.close()
