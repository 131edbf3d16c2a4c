"""One round: planned, trained (in a deployment perhaps more than once), aggregated, evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fedgsp.engine.base import Engine, planned_samples
from fedgsp.run import part_checks
from fedgsp.run.accounting import drawing_seeds
from fedgsp.run.callbacks import Callback, notify, notify_event
from fedgsp.run.engine_events import event_line
from fedgsp.run.evaluation import RoundEvaluation
from fedgsp.run.participants import AlwaysAvailable, Participants, Work
from fedgsp.run.round_totals import RoundTotals, Stopwatch
from fedgsp.server.rule import Update, hand

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.state import ServerState
    from fedgsp.engine.messages import EngineEvent
    from fedgsp.run.accounting import Ledgers
    from fedgsp.run.directory import Recorder
    from fedgsp.run.run import Run
    from fedgsp.server.mean import Weighing


@dataclass(frozen=True)
class PlannedRound:
    """A round that can be trained: who takes part, in which chains."""

    participants: Participants
    plan: Plan
    stopwatch: Stopwatch


class RoundPlanner:
    """Plans round after round, for whoever can take part in it."""

    def __init__(self, run: Run, recorder: Recorder, ledgers: Ledgers) -> None:
        self._run, self._recorder, self._ledgers = run, recorder, ledgers
        self._availability = run.availability or AlwaysAvailable(run)

    def plan(self, state: ServerState) -> PlannedRound | None:
        """The round after this state, which may have been tried before; None after the last."""
        number, method = state.round + 1, self._run.config.method
        if number > self._run.config.run.rounds:
            return None
        stopwatch = Stopwatch()
        participants = self._availability.participants(number, self._recorder.event)
        seeds = drawing_seeds(method, state, self._run.seeds)
        plan = part_checks.planned(method.planner, number, participants.profiles, self._run.worker_setup, seeds)
        plan = part_checks.routed(method.server, state, plan, self._run.seeds)  # names the model that each chain begins with
        self._ledgers.plan(plan, participants.attempt)  # its cost, before it is trained
        stopwatch.lap("plan")
        return PlannedRound(participants, plan, stopwatch)

    def enough(self, trained: Round) -> bool:
        """Whether the attempt counts: enough of the planned samples were trained."""
        done = Work(trained.totals.samples, trained.totals.clients)
        planned = Work(sum(trained.samples), sum(len(set(chain.clients)) for chain in trained.plan.chains))
        return self._availability.enough(trained.plan.round, done, planned, self._recorder.event)


class Round:
    """One attempt at a round: hands the chains' results to the server rule and counts them."""

    def __init__(
        self, run: Run, planned: PlannedRound, state: ServerState, recorder: Recorder, callbacks: Sequence[Callback]
    ) -> None:
        self.plan, self.totals = planned.plan, RoundTotals()
        self.samples = planned_samples(planned.plan, planned.participants.training)
        self._run, self._planned, self._state = run, planned, state
        self._recorder, self._callbacks = recorder, callbacks
        self._announce()
        self._update = part_checks.started(run.server, state, planned.plan, self.samples)

    def _announce(self) -> None:
        attempt = self._planned.participants.attempt
        facts: dict[str, Any] = {} if attempt == 1 else {"attempt": attempt}
        if self._run.remote:  # a deployment is watched from other processes, which see the plan only when the round is done
            facts["hops"] = [len(chain) for chain in self.plan.chains]
        self._recorder.event("round", round=self.plan.round, chains=len(self.plan.chains), **facts)
        notify(self._callbacks, "on_round_start", self.plan)

    @property
    def weighing(self) -> Weighing | None:
        """How an engine may add results up where they are; None where the server rule must see each of them."""
        return self._update.elsewhere() if isinstance(self._update, Update) else None

    def listen(self, event: EngineEvent) -> None:
        """What the engine says goes to the event log before it takes effect, then to the callbacks."""
        self.totals.note(event)
        kind, facts = event_line(event)
        self._recorder.event(kind, sync=kind != "hop", **facts)
        notify_event(self._callbacks, event)

    def add(self, result: ChainResult) -> None:
        """Take in one chain's result; results come in any order."""
        server, number = self._run.server, self.plan.round
        with self._planned.stopwatch.spending("aggregate"), part_checks.asking("server rule", server, f"in round {number}"):
            hand(self._update, result)
            self.totals.add(result)

    def aggregate(self) -> ServerState:
        """The state after the round, with what clients keep from now on."""
        stopwatch, before = self._planned.stopwatch, self._state
        with stopwatch.spending("aggregate"):
            after = part_checks.finished(self._run.server, self._update, before, self.plan.round)
            after = after.with_client_versions({**before.client_versions, **self.totals.client_versions})
        stopwatch.lap("train")
        return replace(after, trained=before.trained)

    def evaluate(self, engine: Engine, state: ServerState) -> TrainedRound:
        """Ask for the model's figures, in rounds that are evaluated."""
        run, number, participants = self._run, self.plan.round, self._planned.participants
        trained = TrainedRound(self._planned, state, self.totals)
        if number % run.config.run.eval_every and number != run.config.run.rounds:
            return trained
        notify(self._callbacks, "on_evaluate_start", number)
        with self._planned.stopwatch.spending("evaluate"):  # over Flower this is where the time goes
            trained.evaluation = RoundEvaluation(
                engine, run.server, state, participants.data, participants.evaluated, participants.held_out,
                run.config.run.evaluate_on, run.config.method.personal,
            )  # fmt: skip
            if run.server_evaluation is not None:
                trained.central = run.server_evaluation.figures(state)
        return trained


@dataclass
class TrainedRound:
    """A round whose model is there; `evaluation` is of it, under way or done, where it is evaluated."""

    planned: PlannedRound
    state: ServerState
    totals: RoundTotals
    evaluation: RoundEvaluation | None = field(default=None)
    central: dict[str, Any] | None = None
