"""The Ray engine: chains walk through workers on many machines, models through Ray's object store, to the same bits.

A worker walks as many hops of a chain as it has samples for, usually all; another goes on from there with a reference to the
model. Results are added up where they are, if the server rule is a mere sum, and the sums are fetched in the end. What a dead
worker or node had done of the round is done again by others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.state import ServerState, beside
from fedgsp.engine.bundles import Speed, idle_share
from fedgsp.engine.job import Absent, Job, Listener, Scoring, Span, Wanted
from fedgsp.engine.patience import Patience, Watch
from fedgsp.engine.ray.asked import Asked
from fedgsp.engine.ray.parcel import pack
from fedgsp.engine.ray.round import Round
from fedgsp.engine.ray.settings import RaySettings
from fedgsp.engine.ray.staff import Staff
from fedgsp.engine.ray.tasks import Board
from fedgsp.engine.walk import peak_memory_bytes
from fedgsp.server.mean import Weighing


class RayEngine:
    """`most` is how many workers could ever have a chain to walk."""

    def __init__(
        self, job: Job, settings: RaySettings, most: int, patience: Patience = Patience()  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        self.job = job
        self.speed = Speed()
        self.staff = Staff(job, settings, most, Watch(patience, self.speed))
        self._board: tuple[ServerState, frozenset[str], Any] | None = None
        self._closed = False

    def run(
        self,
        plan: Plan,
        state: ServerState,
        listener: Listener,
        absent: Absent | None = None,
        meanwhile: Scoring | None = None,
        weighing: Weighing | None = None,
    ) -> Iterator[ChainResult]:
        """See `Engine.run`: nodes that have come since the last round are used from now on."""
        self.staff.grow()
        self.staff.supply.settle(self.staff.ready())
        self.staff.watch.listener = listener
        asked = meanwhile if isinstance(meanwhile, Asked) else None
        began = time.perf_counter()
        board = self.board(state)
        self.staff.spans.append(Span(-1, "broadcast", f"round {plan.round}", began, time.perf_counter()))
        return Round(self.staff, self.job, self.speed, plan, state, board, listener, absent or {}, asked, weighing).results()

    def ask(self, state: ServerState, wanted: Wanted, owners: Sequence[int | None] | None = None) -> Scoring:
        """See `Engine.ask`."""
        views = {name for name, _ in wanted}
        board = self.board(state, frozenset(state.slots.keys() & (views | {beside(name) for name in views})))
        return Asked(self.staff, self.job, board, state, wanted, [None] * len(wanted) if owners is None else owners)

    def board(self, state: ServerState, slots: frozenset[str] = frozenset()) -> Any:
        """A reference to the models of a state; moments and the like stay with the server."""
        if self._board is None or self._board[0] is not state or not slots <= self._board[1]:
            models = {name: pack(tensors) for name, tensors in state.models.items()}
            shown = Board(models, pack(state.shared), {name: pack(state.slots[name]) for name in slots})
            self._board = (state, slots, self.staff.cluster.ray.put(shown))
        return self._board[2]

    def idle_share(self, plan: Plan) -> float:
        """See `Engine.idle_share`."""
        return idle_share(self.speed.work(plan, self.job.data), max(1, len(self.staff.members)))

    def spans(self) -> list[Span]:
        """See `Engine.spans`."""
        done, self.staff.spans = self.staff.spans, []
        return done

    def peak_memory(self) -> dict[str, int]:
        """See `Engine.peak_memory`."""
        return {"main": peak_memory_bytes(), **self.staff.peaks}

    def close(self) -> None:
        """See `Engine.close`."""
        if not self._closed:
            self._closed = True
            self.staff.close()
