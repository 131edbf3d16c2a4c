"""Scores that workers on a cluster were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgsp.core.blame import RemoteTraceback
from fedgsp.core.errors import RunFailed
from fedgsp.core.state import ServerState
from fedgsp.data.federated import Rows
from fedgsp.engine.crew import MOST_ATTEMPTS
from fedgsp.engine.job import Job, NotJudged, Wanted
from fedgsp.engine.pool import SCORE_ROWS
from fedgsp.engine.ray.parcel import pack
from fedgsp.engine.ray.staff import Died, Lost, Member, Staff
from fedgsp.engine.ray.tasks import Kept, ScoreTask
from fedgsp.engine.worker import Broke, Scored
from fedgsp.evaluate.forward import SampleScores, joined


def kept_by(member: Member, job: Job, state: ServerState, clients: Iterable[int]) -> Kept:
    """What some clients have kept, for a worker that sees the folder of states or is sent them."""
    marks = {client: state.kept[client] for client in clients if client in state.kept}
    if job.store is None or (member.hello is not None and member.hello.sees_states):
        return Kept(marks)
    return Kept(states={client: pack(job.store.read(client, mark)) for client, mark in marks.items()})


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows of one of those that were wanted: whole chunks, so that the cut never changes a bit."""

    which: int
    name: str
    rows: Rows
    owner: int | None


class Asked:
    """See `Scoring`."""

    missing: tuple[NotJudged, ...] = ()

    def __init__(
        self, staff: Staff, job: Job, board: Any, state: ServerState, wanted: Wanted, owners: Sequence[int | None]
    ) -> None:  # fmt: skip
        self._staff, self._job, self._board, self._state, self._count = staff, job, board, state, len(wanted)
        self._parts: list[_Part] = []
        for which, ((name, rows), owner) in enumerate(zip(wanted, owners, strict=True)):
            size = SCORE_ROWS if owner is None else max(1, len(rows))  # one task an owner
            self._parts += [_Part(which, name, rows[at : at + size], owner) for at in range(0, len(rows), size)]
        self._pending = list(range(len(self._parts)))
        self._found: dict[int, SampleScores] = {}
        self._deaths = 0

    @property
    def done(self) -> bool:
        """Whether all scores are there."""
        return len(self._found) == len(self._parts)

    def hand_out(self, member: Member) -> None:
        """Give an idle worker the next task that it can do, if there is one."""
        for number in self._pending:
            part, cut = self._parts[number], None
            if member.shards is not None:
                if part.owner is None:
                    cut = self._staff.supply.cut(part.rows)
                elif self._staff.supply.shard_of[part.owner] not in member.shards:
                    continue
            rows = part.rows if cut is None else np.arange(len(part.rows))
            kept = kept_by(member, self._job, self._state, [] if part.owner is None else [part.owner])
            task = ScoreTask(number, self._board, part.name, rows, cut, part.owner, self._state.round, kept)
            self._pending.remove(number)
            self._staff.hand(member, task)
            return

    def heard(self, task: Any, message: object) -> None:
        """Take in what a worker said of these tasks; what it says of a round that has failed is of no use any more."""
        if not isinstance(task, ScoreTask) or task.board is not self._board:
            return
        if isinstance(message, Scored):
            self._found[message.index] = message.scores
        elif isinstance(message, Broke):
            failed = RunFailed(f"evaluation failed in round {self._state.round}: {message.error}.").with_trace()
            raise message.expected or failed from RemoteTraceback(message.trace)
        elif isinstance(message, Lost):
            self._pending.insert(0, task.number)
        elif isinstance(message, Died):
            self._deaths += not message.with_node
            if self._deaths >= MOST_ATTEMPTS:
                said = f"evaluation failed {self._deaths} times in round {self._state.round}: {message.cause}."
                raise RunFailed(said)
            self._pending.insert(0, task.number)

    def result(self) -> list[SampleScores]:
        """All scores, in the order they were wanted."""
        while not self.done:
            for member in self._staff.idle():
                self.hand_out(member)
            for _, task, message in self._staff.messages():
                self.heard(task, message)
        parts: list[list[SampleScores]] = [[] for _ in range(self._count)]
        for number, part in enumerate(self._parts):
            parts[part.which].append(self._found[number])
        return [joined(found, self._job.task.metrics) for found in parts]
