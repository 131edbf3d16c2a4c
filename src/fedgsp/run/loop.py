"""The round loop: the paper's Algorithm 1, on one screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.state import ServerState
from fedgsp.engine.job import Absent, Engine, EngineEvent, HopDone, planned_samples
from fedgsp.run.clients import score_record
from fedgsp.run.directory import Recorder
from fedgsp.run.evaluation import evaluate_state
from fedgsp.run.observers import Observer
from fedgsp.run.setup import Setup


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
    absent_in: Callable[[int], Absent] | None = None,
) -> ServerState:
    """Train from `state` to the last round, or to the target; `journal` grows by a line a round."""
    method, seeds, options = setup.config.method, setup.seeds, setup.config.run
    profiles = setup.job.data.profiles(setup.roster)
    for r in range(state.round + 1, options.rounds + 1):
        clock = _Clock()
        plan = method.planner.plan(r, profiles, seeds)  # lines 3-5: group the clients, sample groups, order the chains
        recorder.event("round", round=r, chains=len(plan.chains))
        _tell(observers, "round_begun", plan)
        clock.lap("plan")
        update, tally = method.server.start(state, plan, planned_samples(plan, setup.job.data)), Tally()
        for result in engine.run(plan, state, _listener(recorder, observers), absent_in(r) if absent_in else None):
            update.add(result)  # lines 6-10: chains in parallel, clients in sequence
            tally.add(result)
        state = update.finish()  # line 11
        clock.lap("train")
        figures: dict[str, Any] = {}
        scores: dict[str, Any] | None = None
        if r % options.eval_every == 0 or r == options.rounds:
            _tell(observers, "evaluating", r)
            figures, judged = evaluate_state(
                engine, method.server, state, setup.data, setup.judged, setup.held_out, options.evaluate_on
            )
            scores = score_record(r, judged, setup.job.task.score, len(setup.data)) if len(judged.clients) else None
        clock.lap("evaluate")
        before = journal[-1] if journal else {"bytes_total": setup.prepared_bytes, "serial_steps_total": 0}
        entry = _entry(plan, tally, figures, state, before, clock)
        recorder.commit(state, plan, entry, scores)
        journal.append(entry)
        _tell(observers, "round_done", entry)
        if options.stop_at_target and _reached(figures, setup):
            break
    return state


def _entry(
    plan: Plan, tally: Tally, figures: dict[str, Any], state: ServerState, before: dict[str, Any], clock: _Clock
) -> dict[str, Any]:
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
        **figures,
        "state": state.digest(),
        "timings": clock.laps,
    }


def _reached(figures: dict[str, Any], setup: Setup) -> bool:
    score, target = setup.job.task.score, setup.config.run.target_accuracy
    return score is not None and target is not None and figures.get(score, -1.0) >= target


def _listener(recorder: Recorder, observers: Sequence[Observer]) -> Callable[[EngineEvent], None]:
    def listen(event: EngineEvent) -> None:
        if isinstance(event, HopDone):
            recorder.event(
                "hop", sync=False, round=event.round, chain=event.chain, client=event.report.client,
                hop=event.report.hop, samples=event.report.samples, down=event.report.bytes_down, up=event.report.bytes_up,
            )  # fmt: skip
        else:
            recorder.event(
                "lost", round=event.round, chain=event.chain, client=event.client, cause=event.cause, trace=event.trace
            )  # fmt: skip
        _tell(observers, "event", event)

    return listen


def _tell(observers: Sequence[Observer], hook: str, *arguments: Any) -> None:
    for observer in observers:
        getattr(observer, hook)(*arguments)


class _Clock:
    """Wall-clock laps of one round: kept apart from everything that must repeat to the bit."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {"at": round(time.time(), 3)}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 4)
        self._last = now
