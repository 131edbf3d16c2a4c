"""The round loop: the paper's Algorithm 1, on one screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.errors import RunFailed
from fedgsp.core.state import ServerState
from fedgsp.engine.job import Engine, EngineEvent, HopDone, HopSkipped, NotJudged, WorkerSlow, planned_samples
from fedgsp.evaluate import ClientScores
from fedgsp.run import trial
from fedgsp.run.attendance import Attendance, Everybody, Present
from fedgsp.run.clients import score_record
from fedgsp.run.directory import Recorder
from fedgsp.run.evaluation import Evaluation
from fedgsp.run.metrics import reaches
from fedgsp.run.observers import Observer, tell
from fedgsp.run.setup import Setup
from fedgsp.server.rule import hand

SOME_IDLE = 0.05
"""The share of idle time from which it pays to put an evaluation off."""
LONG_ROUND = 60.0
"""After a round that took longer (seconds) nothing is put off: an interruption would cost it."""


@dataclass
class Tally:
    """What a round's chains amount to: sums, and the longest of the chains that ran side by side."""

    samples: int = 0
    steps: int = 0
    serial_steps: int = 0
    bytes: int = 0
    clients: int = 0
    chains: int = 0
    losses: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    marks: dict[int, str] = field(default_factory=dict)
    skipped: list[HopSkipped] = field(default_factory=list)

    def add(self, result: ChainResult) -> None:
        """Count one chain."""
        self.chains += 1
        self.clients += len({hop.client for hop in result.hops})
        self.samples += result.samples
        self.steps += result.steps
        self.serial_steps = max(self.serial_steps, result.steps)
        self.bytes += result.bytes_moved
        for hop in result.hops:
            self.losses[result.index, hop.hop] = (hop.metrics["loss"], hop.samples)
        if twice := self.marks.keys() & result.marks.keys():
            raise RunFailed(
                f"client number {min(twice)} trains in two chains of one round, so the state it keeps would depend on which "
                f"came last; a rule with client state needs a planner that visits every client in one chain only."
            )
        self.marks.update(result.marks)

    def note(self, event: EngineEvent) -> None:
        """Remember who was skipped."""
        if isinstance(event, HopSkipped):
            self.skipped.append(event)

    def losses_of_clients(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Who was skipped, why, and the bytes that were sent for nothing, in the plan's order."""
        ordered = sorted(self.skipped, key=lambda one: (one.chain, one.hop))
        told = [{"chain": s.chain, "hop": s.hop, "client": s.client, "cause": s.cause, "bytes": s.lost_bytes} for s in ordered]
        return [{**one, "name": names[s.client]} for one, s in zip(told, ordered, strict=True)]

    def train_loss(self) -> float:
        """Mean training loss over the round's samples, summed in the plan's order so that arrival cannot change it."""
        ordered = [self.losses[key] for key in sorted(self.losses)]
        return sum(loss * n for loss, n in ordered) / max(1, sum(n for _, n in ordered))


def train_rounds(
    setup: Setup,
    engine: Engine,
    state: ServerState,
    journal: list[dict[str, Any]],
    recorder: Recorder,
    observers: Sequence[Observer] = (),
    attendance: Attendance | None = None,
) -> ServerState:
    """Train from `state` to the last round, or to the target; `journal` grows by a line a round.

    Where the next round's chains would leave workers idle, they evaluate the model before meanwhile: its journal line then
    waits for that, and so does the next round's end. In a deployment `attendance` says who is there, and whether a round in
    which clients were skipped counts or is run again.
    """
    method, seeds, options = setup.config.method, setup.seeds, setup.config.run
    attends = attendance or Everybody(setup)
    state = replace(state, trained=setup.first.trained)  # a checkpoint does not say it

    def planned(r: int, state: ServerState) -> tuple[Present, Plan, _Clock] | None:
        """Round `r`, who is there, and its clock; None after the last."""
        if r > options.rounds:
            return None
        clock = _Clock()
        present = attends.gather(r, recorder.event)
        plan = trial.planned(method.planner, r, present.profiles, setup.job)  # lines 3-5: group, sample, order the chains
        plan = trial.routed(method.server, state, plan, seeds)  # and name the model that each begins with
        clock.lap("plan")
        return present, plan, clock

    def settled(trained: _Trained | None) -> bool:
        """Commit a round once it is evaluated; whether the run is over with it."""
        if trained is None:
            return False
        before = journal[-1] if journal else {"bytes_total": setup.prepared_bytes, "serial_steps_total": 0}
        entry, scores = trained.entry(before)
        for one in trained.not_judged:
            recorder.event("not_judged", round=one.round, client=one.client, cause=one.cause)
        clients = len(trained.present.data)
        each = score_record(trained.plan.round, scores, setup.job.task.score, clients) if scores is not None else None
        recorder.commit(trained.state, trained.plan, entry, each)
        journal.append(entry)
        tell(observers, "worked", entry, engine.spans())
        tell(observers, "round_done", entry)
        return options.stop_at_target and reaches(entry, options.target_accuracy, setup.job.task.score)

    waiting: _Trained | None = None
    r = state.round + 1
    following = planned(r, state)
    while following is not None:
        present, plan, clock = following
        again: dict[str, Any] = {} if present.attempt == 1 else {"attempt": present.attempt}
        if not attends.steady:  # a deployment is watched from other processes, which see the plan only when the round is done
            again["hops"] = [len(chain) for chain in plan.chains]
        recorder.event("round", round=r, chains=len(plan.chains), **again)
        tell(observers, "round_begun", plan)
        samples = planned_samples(plan, present.trained)
        tally = Tally()
        meanwhile = waiting.evaluation.asked if waiting is not None and waiting.evaluation is not None else None
        try:
            update = trial.started(setup.server, state, plan, samples)
            elsewhere = getattr(update, "elsewhere", None)
            weighing = elsewhere() if elsewhere is not None else None
            for result in engine.run(plan, state, _listener(recorder, observers, tally), None, meanwhile, weighing):
                with clock.spending("aggregate"), trial.asking("server rule", setup.server, f"in round {r}"):
                    hand(update, result)  # lines 6-10: chains in parallel, clients in sequence
                    tally.add(result)
                if meanwhile is not None and meanwhile.done:
                    done, waiting, meanwhile = waiting, None, None
                    if settled(done):
                        return recorder.committed
        except RunFailed:
            settled(waiting)  # the round before is whole: it is evaluated and kept
            raise
        done, waiting = waiting, None
        if settled(done):
            return recorder.committed
        if not attends.enough(r, tally.samples, sum(samples), recorder.event):
            following = planned(r, state)
            continue
        with clock.spending("aggregate"):
            after = trial.finished(setup.server, update, state, r)  # line 11
            after = after.keeping({**state.kept, **tally.marks})  # and what the clients keep from now on
            state = replace(after, trained=state.trained)
        clock.lap("train")
        evaluation = None
        if r % options.eval_every == 0 or r == options.rounds:
            tell(observers, "evaluating", r)
            evaluation = Evaluation(
                engine,
                setup.server,
                state,
                present.data,
                present.judged,
                present.held_out,
                options.evaluate_on,
                method.personal,
            )
        central = setup.central.figures(state) if setup.central is not None and evaluation is not None else None
        trained = _Trained(present, plan, state, tally, evaluation, clock, central)
        may_wait = (
            evaluation is not None
            and attends.steady
            and clock.laps["train"] <= LONG_ROUND
            and not state.kept  # what clients keep may take much disk: two versions of it are enough
        )
        if not may_wait and settled(trained):
            break
        try:
            following = planned(r + 1, state)
        except RunFailed:
            settled(trained if may_wait else None)  # this round is whole
            raise
        if may_wait:
            if following is not None and engine.idle_share(following[1]) > SOME_IDLE:
                waiting = trained
            elif settled(trained):
                break
        r += 1
    return state


@dataclass
class _Trained:
    """A round whose chains are done, and which is evaluated now or soon."""

    present: Present
    plan: Plan
    state: ServerState
    tally: Tally
    evaluation: Evaluation | None
    clock: _Clock
    central: dict[str, Any] | None = None

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """Clients that gave no scores, as is known once the round has its journal line."""
        return () if self.evaluation is None else self.evaluation.asked.missing

    def entry(self, before: dict[str, Any]) -> tuple[dict[str, Any], ClientScores | None]:
        """(its journal line, the scores of each client, if any was judged)."""
        figures: dict[str, Any] = {}
        scores = None
        with self.clock.spending("evaluate"):
            if self.evaluation is not None:
                figures, scores = self.evaluation.figures()
        plan, tally, present = self.plan, self.tally, self.present
        if self.central is not None:
            figures["central"] = self.central
        if tally.skipped:
            figures["skipped"] = tally.losses_of_clients(present.data.clients)
            self.clock.laps["skipped"] = round(sum(one.seconds for one in tally.skipped), 3)
        if present.attempt > 1:
            figures["attempts"] = present.attempt
        if self.not_judged:
            figures["not_judged"] = [{"client": one.client, "cause": one.cause} for one in self.not_judged]
        return {
            "round": plan.round,
            "groups": plan.groups,
            "chains": tally.chains,
            "clients": tally.clients,
            "left_out": plan.left_out,
            "samples": tally.samples,
            "steps": tally.steps,
            "serial_steps": tally.serial_steps,
            "serial_steps_total": before["serial_steps_total"] + tally.serial_steps,
            "bytes": tally.bytes,
            "bytes_total": before["bytes_total"] + tally.bytes,
            "train_loss": tally.train_loss(),
            **present.facts,
            **figures,
            "state": self.state.digest(),
            "timings": self.clock.laps,
        }, scores if scores is not None and len(scores.clients) else None


def _listener(recorder: Recorder, observers: Sequence[Observer], tally: Tally) -> Callable[[EngineEvent], None]:
    def listen(event: EngineEvent) -> None:
        tally.note(event)
        if isinstance(event, HopDone):
            took: dict[str, Any] = (
                {} if event.waited is None else {"waited": round(event.waited, 3), "trained": round(event.report.seconds, 3)}
            )
            recorder.event(
                "hop", sync=False, round=event.round, chain=event.chain, client=event.report.client,
                hop=event.report.hop, samples=event.report.samples, down=event.report.bytes_down, up=event.report.bytes_up,
                **took,
            )  # fmt: skip
        elif isinstance(event, HopSkipped):
            recorder.event(
                "skipped", round=event.round, chain=event.chain, hop=event.hop, client=event.client, cause=event.cause,
                bytes=event.lost_bytes, seconds=round(event.seconds, 3),
            )  # fmt: skip
        elif isinstance(event, WorkerSlow):
            chain: dict[str, Any] = {} if event.chain is None else {"chain": event.chain}
            recorder.event(
                "slow", round=event.round, client=event.client, worker=event.worker, cause=str(event),
                seconds=round(event.seconds, 3), **chain,
            )  # fmt: skip
        else:
            recorder.event(
                "lost", round=event.round, chain=event.chain, client=event.client, cause=event.cause, trace=event.trace
            )  # fmt: skip
        tell(observers, "event", event)

    return listen


class _Clock:
    """Wall-clock laps of one round: kept apart from everything that must repeat to the bit."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {"at": round(time.time(), 3)}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """What went by since the last lap."""
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 4)
        self._last = now

    @contextmanager
    def spending(self, name: str) -> Iterator[None]:
        """What is spent inside, added to what was spent on this before."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.laps[name] = round(self.laps.get(name, 0.0) + time.perf_counter() - began, 6)
