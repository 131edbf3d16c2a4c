"""Starting, resuming and replaying runs: the loop, a directory around it, and an ending for every way it can end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedgsp.client.keep import ClientStore
from fedgsp.core.blame import blamed, cause_of, described, trace_of
from fedgsp.core.errors import FedgspError, InputError, Paused, RunFailed, Terminated
from fedgsp.core.state import ServerState
from fedgsp.core.tensors import digest
from fedgsp.data import FederatedData
from fedgsp.data.progress import Progress, silent
from fedgsp.engine.job import Engine
from fedgsp.method import Method
from fedgsp.models import Task
from fedgsp.prepare import Once
from fedgsp.run.attendance import Attendance
from fedgsp.run.clients import ClientFacts
from fedgsp.run.config import RunConfig
from fedgsp.run.directory import NoRecord, Recorder, RunDirectory, read_journal
from fedgsp.run.files import CannotWrite, read_lines
from fedgsp.run.keeping import check_room, check_states, client_store
from fedgsp.run.loop import train_rounds
from fedgsp.run.metrics import Figures, figures, reaches
from fedgsp.run.observers import Observer, tell
from fedgsp.run.result import RunResult, outcome
from fedgsp.run.setup import Setup, prepare
from fedgsp.run.versions import versions

RESULT_SCHEMA = 2
CHECKED = "kernel_check"
"""The entry of a checkpoint's numerics that says how its kernel proved itself; nothing that must be the same elsewhere."""


@dataclass(frozen=True)
class Objects:
    """Things given in Python that a configuration can only name: they take its place; `once` is for many runs on one data."""

    data: FederatedData | None = None
    model: Callable[..., nn.Module] | nn.Module | None = None
    task: Task | None = None
    method: Method | None = None
    once: Once | None = None

    def prepare(self, config: RunConfig, progress: Progress = silent, kernel: str | None = None) -> Setup:
        """Resolve a configuration with these objects in place; `progress` hears of data that must be converted first.

        `kernel` names the one that the run was begun with.
        """
        chosen = config if self.method is None else replace(config, method=self.method)
        return prepare(
            chosen, data=self.data, model=self.model, task=self.task, once=self.once, progress=progress, kernel=kernel
        )  # fmt: skip


@dataclass(frozen=True)
class Venue:
    """Where chains run and who is there, for runs that are not on this machine: clients keep their states themselves.

    `prepare` resolves a configuration (with the kernel that the run was begun with, if it was), `engine` starts the engine of a
    run, `attendance` says who is there.
    """

    prepare: Callable[[RunConfig, str | None], Setup]
    engine: Callable[[Setup], Engine]
    attendance: Attendance


def start(setup: Setup, out: Path | None, observers: Sequence[Observer] = (), venue: Venue | None = None) -> RunResult:
    """A new run, in a new directory (or, with `out` None, without any files); here, or elsewhere."""
    state = setup.first
    with setup.reached(), _store(setup, out, venue) as store:
        if out is None:
            return _drive(setup, [], NoRecord(state, store), None, observers, store, venue)
        if venue is None:
            check_room(setup, out)
        identity = identity_of(setup)  # refuses parts that cannot be recorded, while nothing is written
        directory = RunDirectory.create(out)
        try:
            directory.write_config(setup.config)
            directory.write_clients(ClientFacts.of(setup).encode())
            directory.begin(state, identity, numerics_of(setup), setup.job.data.clients, None, _started(setup), store)
            return _drive(setup, [], directory, out, observers, store, venue)
        finally:
            directory.close()


def resume(
    path: Path,
    *,
    rounds: int | None = None,
    workers: int | str | None = None,
    engine: Mapping[str, Any] | None = None,
    previous: bool = False,
    other_numerics: bool = False,
    objects: Objects = Objects(),  # noqa: B008 - frozen
    observers: Sequence[Observer] = (),
    venue: Venue | None = None,
) -> RunResult:
    """Go on with a run where its last checkpoint stands, to the same bits as if it had never stopped.

    It may go on elsewhere: `engine` has entries of [engine] that are other than before.
    """
    directory = RunDirectory.open(path)
    try:
        config = directory.config(objects.method)
        options = replace(
            config.run, rounds=rounds or config.run.rounds, workers=config.run.workers if workers is None else workers
        )
        place = config.engine.changed(engine or {})
        found = directory.latest(previous=previous)
        kernel = None if found is None or other_numerics else found[1].numerics.get("kernel")
        going_on = replace(config, run=options, engine=place)
        setup = objects.prepare(going_on, kernel=kernel) if venue is None else venue.prepare(going_on, kernel)
        identity = identity_of(setup)
        if found is None:  # stopped before the first checkpoint: nothing was trained, so begin
            state, bookmark, journal = setup.first, None, []
        else:
            state, bookmark = found
            check_same_run(path, bookmark.identity, identity)
            if not other_numerics:
                check_numerics(bookmark.numerics, numerics_of(setup))
            journal = read_journal(path, bookmark)
        over = _recorded_ending(path, state, options.rounds)
        if over is not None:
            return _reopened(over, setup, state, journal, path)
        if state.round > options.rounds:
            raise InputError(f"{path} has already trained {state.round} rounds, more than {options.rounds}.")
        if options.rounds != config.run.rounds:
            directory.write_config(replace(config, run=replace(config.run, rounds=options.rounds)))
        directory.write_clients(ClientFacts.of(setup).encode())
        resumed = {"kind": "resumed", "at": time.time(), "round": state.round, "versions": versions()}
        opening = _started(setup) if bookmark is None else resumed
        with setup.reached(), _store(setup, path, venue) as store:
            check_states(store, state.kept, path)
            if venue is None:
                check_room(setup, path)
            directory.begin(state, identity, numerics_of(setup), setup.job.data.clients, bookmark, opening, store)
            return _drive(setup, journal, directory, path, observers, store, venue)
    finally:
        directory.close()


def _store(setup: Setup, run: Path | None, venue: Venue | None) -> AbstractContextManager[ClientStore | None]:
    """Where clients keep their states: here, unless they are elsewhere."""
    return client_store(setup, run) if venue is None else nullcontext()


def _recorded_ending(path: Path, state: ServerState, rounds: int) -> dict[str, Any] | None:
    """The result.json of a run that is over and has nothing left to do."""
    with suppress(OSError, ValueError):
        facts: dict[str, Any] = json.loads((path / "result.json").read_text())
        done = facts["status"] == "target" or (facts["status"] == "finished" and state.round == rounds)
        if done and facts["state"] == state.digest() and any(path.glob("model*.safetensors")):
            return facts
    return None


def _reopened(
    facts: dict[str, Any], setup: Setup, state: ServerState, journal: list[dict[str, Any]], path: Path
) -> RunResult:  # fmt: skip
    """The result of a run that had already come to its end; observers are told nothing, since nothing happens."""
    summary = _summary(setup, journal)
    told = {**facts, "schema": RESULT_SCHEMA, **summary.as_dict()}  # an older version may have meant something else
    return RunResult(facts["status"], setup, state, journal, summary, told, path, trained_now=False)


def _drive(
    setup: Setup,
    journal: list[dict[str, Any]],
    recorder: Recorder,
    out: Path | None,
    observers: Sequence[Observer],
    store: ClientStore | None = None,
    venue: Venue | None = None,
) -> RunResult:
    """Run the loop and leave an ending behind: finished, at the target, interrupted, paused, or failed."""
    began = time.perf_counter()
    engine: Engine | None = None
    peaks: dict[str, int] = {}
    over = False

    def ending(status: str, cause: str | None = None, error: BaseException | None = None) -> RunResult:
        result = _result(status, setup, recorder.committed, journal, out, time.perf_counter() - began, peaks, cause)
        recorder.result(outcome(setup.server, recorder.committed), result.facts)
        trace: dict[str, Any] = {} if error is None else {"trace": trace_of(error)}
        recorder.event(status, at=time.time(), round=recorder.committed.round, cause=cause, **trace)
        return result

    try:
        announce(observers, setup, journal)
        if recorder.committed.round < setup.config.run.rounds and not _stopped_at_target(setup, journal):
            engine = setup.engine(store) if venue is None else venue.engine(setup)
            attendance = None if venue is None else venue.attendance
            with blamed("the run"):
                train_rounds(setup, engine, recorder.committed, journal, recorder, observers, attendance)
            peaks = engine.peak_memory()
        result = ending("target" if _stopped_at_target(setup, journal) else "finished")
        over = True
        tell(observers, "ended", result)
        return result
    except (KeyboardInterrupt, Terminated):
        with suppress(RunFailed):  # what stopped the run matters more than that its ending could not be written
            ending("interrupted")
        raise
    except CannotWrite:
        raise
    except Paused as error:
        result = ending("paused", str(error))
        tell(observers, "ended", result)
        return result
    except RunFailed as error:
        if over:  # only an observer failed: the run itself came to its end
            raise
        with suppress(RunFailed):
            ending("failed", str(error), cause_of(error))
        trace = f", the traceback in {out / 'events.jsonl'}" if out and error.traced else ""
        kept = f" The model of round {recorder.committed.round} is kept in {out}{trace}." if out else ""
        raise type(error)(f"{error}{kept}").with_trace(error.traced) from error.__cause__ or error
    except Exception as error:  # a bug of ours: raised as it is, and written down
        if not over and not isinstance(error, FedgspError):
            with suppress(RunFailed):
                ending("failed", described(error), error)
        raise
    finally:
        if engine is not None:
            engine.close()
        tell(observers, "closed")


def _result(
    status: str, setup: Setup, state: ServerState, journal: list[dict[str, Any]], out: Path | None,
    seconds: float, peaks: dict[str, int], cause: str | None,
) -> RunResult:  # fmt: skip
    summary = _summary(setup, journal)
    last = journal[-1] if journal else {}
    facts: dict[str, Any] = {
        "schema": RESULT_SCHEMA,
        "status": status,
        "cause": cause,
        "method": setup.config.method.name,
        "yields": setup.config.method.yields,
        "rounds": state.round,
        **summary.as_dict(),
        "totals": {"bytes": last.get("bytes_total", 0), "serial_steps": last.get("serial_steps_total", 0)},
        "data": {
            "source": setup.data.source,
            "fingerprint": setup.data.fingerprint,
            "clients": len(setup.data),
            "samples": setup.data.samples,
        },
        "state": state.digest(),
        "model": {name: digest(tensors) for name, tensors in outcome(setup.server, state).models.items()},
        "versions": versions(),
        "timings": {"seconds": round(seconds, 3), "peak_memory": peaks},
    }
    return RunResult(status, setup, state, journal, summary, facts, out)


def _summary(setup: Setup, journal: list[dict[str, Any]]) -> Figures:
    return figures(journal, setup.job.task.score, setup.config.run.target_accuracy)


def announce(observers: Sequence[Observer], setup: Setup, journal: Sequence[dict[str, Any]] = ()) -> None:
    """Tell every observer that the run begins."""
    tell(observers, "started", setup, list(journal))


def _stopped_at_target(setup: Setup, journal: list[dict[str, Any]]) -> bool:
    options = setup.config.run
    return options.stop_at_target and bool(journal) and reaches(journal[-1], options.target_accuracy, setup.job.task.score)


def _started(setup: Setup) -> dict[str, Any]:
    return {"kind": "started", "at": time.time(), "fingerprint": setup.data.fingerprint, "versions": versions()}


def identity_of(setup: Setup) -> str:
    """What a checkpoint must have been made of to belong to this run."""
    return setup.config.identity(f"{setup.data.fingerprint} {digest(setup.initial)} {setup.job.task.name}")


def numerics_of(setup: Setup) -> dict[str, Any]:
    """What may change bits and is therefore fixed for the run, and how the kernel proved itself."""
    kernel = setup.job.kernel
    facts = {"kernel": kernel.name, "threads": 1, "device": setup.config.run.device, "torch": torch.__version__}
    return {**facts, CHECKED: kernel.checked or kernel.why}


def check_same_run(path: Path, theirs: str, ours: str) -> None:
    """Refuse a checkpoint that was made of other data or another configuration."""
    if theirs == ours:
        return
    recorded = next((e for e in read_lines(path / "events.jsonl") if e["event"] == "started"), {})
    raise InputError(
        f"{path} cannot go on: its data or its configuration is not what it was when the checkpoint was made "
        f"(the data then had the fingerprint {str(recorded.get('fingerprint'))[:16]}...); restore them, or start a new run."
    )


def check_numerics(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Refuse to go on, or to compare, where bits may differ for a reason that is no fault of the run."""
    fixed = {key: value for key, value in ours.items() if key != CHECKED}
    odd = [f"{key} {theirs.get(key)} (now {value})" for key, value in fixed.items() if theirs.get(key) != value]
    if odd:
        raise InputError(
            f"the run was made with {', '.join(odd)}, so its bits could be others here; --other-numerics does it all the same."
        )
