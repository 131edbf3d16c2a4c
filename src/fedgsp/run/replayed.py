"""An engine and an attendance that do as an event log says: who was there, who was skipped, who was not judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.state import ServerState
from fedgsp.data.federated import FederatedData
from fedgsp.engine.job import Absent, Engine, Listener, Scored, Scoring, Span, Wanted
from fedgsp.evaluate.forward import SampleScores
from fedgsp.run.attendance import Event, Present
from fedgsp.run.roster import Attempt, Kind, Log, Member, outline, profiles_of
from fedgsp.server.mean import Weighing


class FromLog:
    """A local engine that leaves out the hops that were skipped and, with `apart`, scores client by client, as sites do."""

    def __init__(self, engine: Engine, log: Log, data: FederatedData, metrics: Sequence[str], apart: bool = True) -> None:
        self._engine, self._log, self._metrics, self._scores_apart = engine, log, tuple(metrics), apart
        self._owner = np.full(len(data.features), -1, dtype=np.int64)
        for part in (data.train, data.validation, data.test):
            self._owner[part.rows] = np.repeat(np.arange(len(data)), part.sizes)

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
        skips: dict[int, set[int]] = {}
        for one in self._attempt(plan.round).skipped:
            listener(one)
            skips.setdefault(one.chain, set()).add(one.hop)
        left_out = {chain: frozenset(hops) for chain, hops in skips.items()}
        return self._engine.run(plan, state, listener, left_out, meanwhile, weighing)

    def ask(self, state: ServerState, wanted: Wanted, owners: Sequence[int | None] | None = None) -> Scoring:
        """See `Engine.ask`."""
        if not self._scores_apart:
            return self._engine.ask(state, wanted, owners)
        whose = [None] * len(wanted) if owners is None else owners
        missing = tuple(self._attempt(state.round).not_judged)
        gone = frozenset(one.client for one in missing)
        pieces: list[tuple[str, NDArray[np.int64]]] = []
        owned: list[int | None] = []
        places: list[tuple[int, int]] = []
        for which, ((name, rows), owner) in enumerate(zip(wanted, whose, strict=True)):
            for at, part in self._apart(rows):
                if int(self._owner[part[0]]) not in gone:
                    pieces.append((name, part))
                    owned.append(owner)
                    places.append((which, at))
        found = self._engine.ask(state, pieces, owned).result()
        scores = [
            SampleScores(np.zeros(len(rows), np.float32), {m: np.zeros(len(rows), np.float32) for m in self._metrics})
            for _, rows in wanted
        ]
        for (which, at), piece in zip(places, found, strict=True):
            to = slice(at, at + len(piece.loss))
            scores[which].loss[to] = piece.loss
            for name in self._metrics:
                scores[which].metrics[name][to] = piece.metrics[name]
        return Scored(scores, missing)

    def _apart(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The rows client by client, and where each begins."""
        if len(rows) == 0:
            return
        owners = self._owner[rows]
        begins = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(rows)]
        for begin, end in pairwise(begins):
            yield begin, rows[begin:end]

    def _attempt(self, round_: int) -> Attempt:
        return self._log.attempts.get(round_, Attempt({}))

    def idle_share(self, plan: Plan) -> float:
        """See `Engine.idle_share`."""
        return 0.0 if self._scores_apart else self._engine.idle_share(plan)

    def spans(self) -> list[Span]:
        """See `Engine.spans`."""
        return self._engine.spans()

    def peak_memory(self) -> dict[str, int]:
        """See `Engine.peak_memory`."""
        return self._engine.peak_memory()

    def close(self) -> None:
        """See `Engine.close`."""
        self._engine.close()


@dataclass(frozen=True)
class Recalled:
    """Who was there, round by round; `data` is what the sites held, all in one place."""

    log: Log
    kind: Kind
    data: FederatedData
    steady: bool = False

    def gather(self, round_: int, event: Event) -> Present:
        """As the log has it."""
        attempt = self.log.attempts[round_]
        return present(self.kind, attempt.members, attempt.number, self.data)

    def enough(self, round_: int, trained: int, planned: int, event: Event) -> bool:
        """It was."""
        return True


def present(kind: Kind, members: dict[int, Member], attempt: int, data: FederatedData | None = None) -> Present:
    """The round of these members; `data` are their samples, or without it the outline of the federation."""
    there = sorted(members)
    facts = {"present": len(there)}
    seen = outline(kind, members.values()) if data is None else data
    numbers = np.array(there, dtype=np.int64)
    return Present(profiles_of(kind, members.values()), seen, seen, numbers, numbers[:0], attempt, facts)
