"""Evaluations that were asked for: cut into tasks, done by whoever is idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import RunFailed
from fedgsp.data.federated import Rows
from fedgsp.engine.messages import Answer, EvaluateDone, EvaluateTask, ModelLost, NotEvaluated, Task, TaskFailed, WorkerGone
from fedgsp.evaluate.forward import CHUNK, SampleScores, joined

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.engine.base import EvaluationRequests
    from fedgsp.engine.scheduler import Scheduler
    from fedgsp.engine.transports.base import WorkerHandle

ROWS_A_TASK = 4 * CHUNK


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows of one of the requests: whole chunks, so that the cut never changes a bit."""

    request: int
    name: str
    rows: Rows
    owner: int | None


class ScheduledEvaluation:
    """See `PendingEvaluation`."""

    missing: tuple[NotEvaluated, ...] = ()

    def __init__(
        self, scheduler: Scheduler, models: Any, state: ServerState, requests: EvaluationRequests, owners: Sequence[int | None]
    ) -> None:
        self._scheduler, self._models, self._state, self._count = scheduler, models, state, len(requests)
        self._parts: list[_Part] = []
        for number, ((name, rows), owner) in enumerate(zip(requests, owners, strict=True)):
            size = ROWS_A_TASK if owner is None else max(1, len(rows))  # one task an owner
            self._parts += [_Part(number, name, rows[at : at + size], owner) for at in range(0, len(rows), size)]
        self._pending = list(range(len(self._parts)))
        self._found: dict[int, SampleScores] = {}
        self._deaths = 0

    @property
    def done(self) -> bool:
        """Whether all scores are there."""
        return len(self._found) == len(self._parts)

    def hand_out(self, worker: WorkerHandle) -> None:
        """Give an idle worker the next task that it can do, if there is one."""
        for number in self._pending:
            part = self._parts[number]
            if part.owner is not None and not worker.holds(part.owner):
                continue
            kept = {part.owner: self._state.client_versions[part.owner]} if part.owner in self._state.client_versions else {}
            task = EvaluateTask(number, self._models, part.name, part.rows, part.owner, self._state.round, kept)
            self._pending.remove(number)
            self._scheduler.send(worker, task, self)
            return

    def heard(self, task: Task | None, answer: Answer) -> None:
        """Take in what was said of one of these tasks."""
        assert isinstance(task, EvaluateTask)
        if isinstance(answer, EvaluateDone):
            self._found[answer.number] = answer.scores
        elif isinstance(answer, TaskFailed):
            answer.raise_expected()
            said = f"evaluation failed in round {self._state.round}: {answer.cause}."
            raise RunFailed(said).with_trace() from answer.origin()
        elif isinstance(answer, ModelLost):
            self._pending.insert(0, task.number)
        elif isinstance(answer, WorkerGone):
            self._deaths += not answer.blameless
            if self._deaths >= self._scheduler.transport.most_deaths:
                raise RunFailed(f"evaluation failed {self._deaths} times in round {self._state.round}: {answer.cause}.")
            self._pending.insert(0, task.number)

    def result(self) -> list[SampleScores]:
        """All scores, in the order of the requests."""
        while not self.done:
            for worker in self._scheduler.transport.idle():
                self.hand_out(worker)
            for _, task, sender, answer in self._scheduler.answers():
                if sender is self:
                    self.heard(task, answer)
        found: list[list[SampleScores]] = [[] for _ in range(self._count)]
        for number, part in enumerate(self._parts):
            found[part.request].append(self._found[number])
        return [joined(scores, self._scheduler.setup.task.metrics) for scores in found]
