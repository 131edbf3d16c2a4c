"""Rounds are committed once they are evaluated. An evaluation may be put off into the idle time of the next round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import RunFailed
from fedgsp.run.callbacks import Callback, notify
from fedgsp.run.clients import score_record
from fedgsp.run.metrics import reaches

if TYPE_CHECKING:
    from fedgsp.engine.base import Engine, PendingEvaluation
    from fedgsp.evaluate import ClientScores
    from fedgsp.run.accounting import Ledgers
    from fedgsp.run.directory import Recorder
    from fedgsp.run.round import PlannedRound, TrainedRound
    from fedgsp.run.run import Run

SOME_IDLE = 0.05
"""The share of idle time from which it pays to put an evaluation off."""
LONG_ROUND = 60.0
"""After a round that took longer (seconds) nothing is put off: an interruption would cost it."""


class Commits:
    """Commits rounds in order, each when it is evaluated; `history` grows by a line a round.

    At most one round is pending: its model is evaluated by workers that would be idle in the next round. That round is not
    committed before it.
    """

    def __init__(
        self,
        run: Run,
        engine: Engine,
        history: list[dict[str, Any]],
        recorder: Recorder,
        callbacks: Sequence[Callback],
        ledgers: Ledgers,
    ) -> None:
        self._ledgers = ledgers
        self._run, self._engine, self._history = run, engine, history
        self._recorder, self._callbacks = recorder, callbacks
        self._pending: TrainedRound | None = None
        self.stopped = False
        """Whether the run is to stop: it has reached its target."""

    @property
    def evaluating(self) -> PendingEvaluation | None:
        """The evaluation that workers do in their idle time."""
        return None if self._pending is None or self._pending.evaluation is None else self._pending.evaluation.asked

    def add(self, trained: TrainedRound) -> None:
        """Commit a round, unless it may wait for the next round to be planned."""
        self._pending = trained
        if not self._may_wait(trained):
            self.commit_pending()

    def commit_unless_idle(self, following: PlannedRound | None) -> None:
        """Commit the pending round, unless workers will have time to evaluate it in the next."""
        if following is None or self._pending is None or self._engine.idle_share(following.plan) <= SOME_IDLE:
            self.commit_pending()

    def commit_evaluated(self) -> None:
        """Commit the pending round if its evaluation is done."""
        if self.evaluating is not None and self.evaluating.done:
            self.commit_pending()

    def commit_pending(self) -> None:
        """Wait for the evaluation of the pending round, if there is one, and commit it."""
        trained, self._pending = self._pending, None
        if trained is not None:
            self._commit(trained)

    @contextmanager
    def kept_on_failure(self) -> Iterator[None]:
        """A round that is trained is evaluated and kept, whatever becomes of the next."""
        try:
            yield
        except RunFailed:
            self.commit_pending()
            raise

    def _may_wait(self, trained: TrainedRound) -> bool:
        return (
            trained.evaluation is not None
            and (self._run.availability is None or self._run.availability.fixed)
            and trained.planned.stopwatch.laps["train"] <= LONG_ROUND
            and not trained.state.client_versions  # what clients keep may take much disk: two versions of it are enough
        )

    def _commit(self, trained: TrainedRound) -> None:
        plan, options, score = trained.planned.plan, self._run.config.run, self._run.worker_setup.task.score
        before = self._history[-1] if self._history else {"bytes_total": self._run.prepared_bytes, "serial_steps_total": 0}
        entry, scores = journal_entry(trained, before)
        entry.update(self._ledgers.entries(plan, trained.planned.participants.attempt))
        if trained.evaluation is not None:
            for one in trained.evaluation.asked.missing:
                self._recorder.event("not_judged", round=one.round, client=one.client, cause=one.cause)
        each = None
        if scores is not None:
            each = score_record(plan.round, scores, score, len(trained.planned.participants.data))
        self._recorder.commit(trained.state, plan, entry, each)
        self._history.append(entry)
        notify(self._callbacks, "on_worker_spans", entry, self._engine.spans())
        notify(self._callbacks, "on_round_end", entry)
        self.stopped = options.stop_at_target and reaches(entry, options.target_accuracy, score)


def journal_entry(trained: TrainedRound, before: dict[str, Any]) -> tuple[dict[str, Any], ClientScores | None]:
    """(a round's journal line, the scores of each client, if any was evaluated); waits for the evaluation."""
    planned, totals = trained.planned, trained.totals
    participants, plan, stopwatch = planned.participants, planned.plan, planned.stopwatch
    figures: dict[str, Any] = {}
    scores = None
    with stopwatch.spending("evaluate"):
        if trained.evaluation is not None:
            figures, scores = trained.evaluation.figures()
    missing = () if trained.evaluation is None else trained.evaluation.asked.missing
    if trained.central is not None:
        figures["central"] = trained.central
    if totals.skipped:
        figures["skipped"] = totals.skipped_clients(participants.data.clients)
        stopwatch.laps["skipped"] = round(sum(one.seconds for one in totals.skipped), 3)
    stopwatch.laps |= {name: round(seconds, 3) for name, seconds in totals.hop_seconds.items()}
    if participants.attempt > 1:
        figures["attempts"] = participants.attempt
    if missing:
        figures["not_judged"] = [{"client": one.client, "cause": one.cause} for one in missing]
    return {
        "round": plan.round,
        "groups": plan.groups,
        "chains": totals.chains,
        "clients": totals.clients,
        "left_out": plan.left_out,
        "samples": totals.samples,
        "steps": totals.steps,
        "serial_steps": totals.serial_steps,
        "serial_steps_total": before["serial_steps_total"] + totals.serial_steps,
        "bytes": totals.bytes,
        "bytes_total": before["bytes_total"] + totals.bytes,
        "train_loss": totals.train_loss(),
        **participants.facts,
        **figures,
        "state": trained.state.digest(),
        "timings": stopwatch.laps,
    }, scores if scores is not None and len(scores.clients) else None
