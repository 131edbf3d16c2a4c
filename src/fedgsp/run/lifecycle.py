"""A run from its start to one of its endings: the loop, a directory around it, and what is left behind however it ends."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import FedgspError, InputError, Paused, RunFailed, Terminated, blamed, cause_of, described, trace_of
from fedgsp.core.tensors import digest
from fedgsp.run.callbacks import Callback, notify
from fedgsp.run.clients import ClientFacts
from fedgsp.run.directory import NoRecord, Recorder, RunDirectory
from fedgsp.run.files import CannotWrite
from fedgsp.run.going_back import chosen_checkpoint
from fedgsp.run.identity import check_numerics, check_same_run, decisive, identity_of, numerics_of
from fedgsp.run.keeping import check_room, check_states, client_store
from fedgsp.run.loop import train_rounds
from fedgsp.run.metrics import Figures, figures, reaches
from fedgsp.run.reader import read_history, read_result
from fedgsp.run.result import RunResult, outcome
from fedgsp.run.state_check import check_state
from fedgsp.run.trust import code_named, mark_trusted
from fedgsp.run.versions import versions

if TYPE_CHECKING:
    from fedgsp.client.client_state import ClientStore
    from fedgsp.core.state import ServerState
    from fedgsp.engine.base import Engine
    from fedgsp.run.build import RunBuilder
    from fedgsp.run.run import Run

RESULT_SCHEMA = 2


def start(run: Run, out: Path | None, callbacks: Sequence[Callback] = ()) -> RunResult:
    """Train a new run.

    Args:
        run: What to train.
        out: Its new directory; None: nothing is written.
        callbacks: Are told how it goes.

    Returns:
        How it ended, with its figures and its model.

    Raises:
        InputError: The directory cannot be made, or there is too little room.
        RunFailed: It failed on the way; with `out`, what was finished is kept there.
    """
    state = run.initial_state
    with run.reached(), _store(run, out) as store:
        if out is None:
            return _train(run, [], NoRecord(state, store), None, callbacks, store)
        if not run.remote:
            check_room(run, out)
        identity = identity_of(run)  # refuses parts that cannot be recorded, while nothing is written
        directory = RunDirectory.create(out)
        try:
            directory.write_config(run.config)
            if code := code_named(run.config.as_dict()):
                mark_trusted(out, code)
            directory.write_clients(ClientFacts.of(run).encode())
            directory.begin(
                state, identity, numerics_of(run), run.worker_setup.data.clients, None, _started(run), store,
                run.config.run.checkpoint_every,
            )  # fmt: skip
            return _train(run, [], directory, out, callbacks, store)
        finally:
            directory.close()


def resume(
    path: Path,
    *,
    rounds: int | None = None,
    workers: int | str | None = None,
    engine: Mapping[str, Any] | None = None,
    previous: bool = False,
    round_: int | None = None,
    other_numerics: bool = False,
    builder: RunBuilder,
    callbacks: Sequence[Callback] = (),
) -> RunResult:
    """Go on with a run where its last checkpoint stands, to the same bits as if it had never stopped.

    Args:
        path: The run directory.
        rounds: Train up to this round instead of the one it was told.
        workers: Other than before.
        engine: Entries of [engine] that are other than before: a run may go on elsewhere.
        previous: Go on from the checkpoint before the last.
        round_: Go back to the checkpoint of this round: what was trained after it is dropped.
        other_numerics: Go on although torch, kernel or device are others.
        builder: Makes the run of its configuration.
        callbacks: Are told how it goes.

    Returns:
        How it ended; a run that had come to its end before is only looked up.

    Raises:
        InputError: The directory has no run that can go on, or not with these data.
        RunFailed: It failed on the way.
    """
    directory = RunDirectory.open(path)
    try:
        config = builder.read(path / "config.toml")
        options = replace(
            config.run, rounds=rounds or config.run.rounds, workers=config.run.workers if workers is None else workers
        )
        found = chosen_checkpoint(path, previous=previous, round_=round_)
        kernel = None if found is None or other_numerics else found[1].numerics.get("kernel")
        run = builder.build(replace(config, run=options, engine=config.engine.changed(engine or {})), kernel=kernel)
        identity = identity_of(run)
        if found is None:  # stopped before the first checkpoint: nothing was trained, so begin
            state, bookmark, history = run.initial_state, None, []
        else:
            state, bookmark = found
            check_same_run(path, bookmark.identity, run)
            if not other_numerics:
                check_numerics(bookmark.numerics, numerics_of(run))
            check_state(path, state, run.initial_state)
            history = read_history(path, bookmark)
        over = _recorded_ending(path, state, options.rounds)
        if over is not None:
            return _reopened(over, run, state, history, path)
        if state.round > options.rounds:
            raise InputError(f"{path} has already trained {state.round} rounds, more than {options.rounds}.")
        if options.rounds != config.run.rounds:
            directory.write_config(replace(config, run=replace(config.run, rounds=options.rounds)))
        directory.write_clients(ClientFacts.of(run).encode())
        resumed = {"kind": "resumed", "at": time.time(), "round": state.round, "versions": versions()}
        opening = _started(run) if bookmark is None else resumed
        with run.reached(), _store(run, path) as store:
            check_states(store, state.client_versions, path)
            if not run.remote:
                check_room(run, path)
            directory.begin(
                state, identity, numerics_of(run), run.worker_setup.data.clients, bookmark, opening, store,
                run.config.run.checkpoint_every,
            )  # fmt: skip
            return _train(run, history, directory, path, callbacks, store)
    finally:
        directory.close()


def _store(run: Run, path: Path | None) -> AbstractContextManager[ClientStore | None]:
    """Where clients keep their states: here, unless they are elsewhere."""
    return nullcontext() if run.remote else client_store(run, path)


def _recorded_ending(path: Path, state: ServerState, rounds: int) -> dict[str, Any] | None:
    """The result.json of a run that is over and has nothing left to do."""
    with suppress(InputError):
        facts = read_result(path) or {"status": ""}
        done = facts["status"] == "target" or (facts["status"] == "finished" and state.round == rounds)
        if done and facts.get("state") == state.digest() and any(path.glob("model*.safetensors")):
            return facts
    return None


def _reopened(
    facts: dict[str, Any], run: Run, state: ServerState, history: list[dict[str, Any]], path: Path
) -> RunResult:  # fmt: skip
    """The result of a run that had already come to its end; callbacks are told nothing, since nothing happens."""
    summary = _summary(run, history)
    told = {**facts, "schema": RESULT_SCHEMA, **summary.as_dict()}  # an older version may have meant something else
    return RunResult(facts["status"], run, state, history, summary, told, path, trained_now=False)


def _train(
    run: Run,
    history: list[dict[str, Any]],
    recorder: Recorder,
    out: Path | None,
    callbacks: Sequence[Callback],
    store: ClientStore | None,
) -> RunResult:
    """Run the loop and leave an ending behind: finished, at the target, interrupted, paused, or failed."""
    began = time.perf_counter()
    engine: Engine | None = None
    peaks: dict[str, int] = {}
    over = False

    def ending(status: str, cause: str | None = None, error: BaseException | None = None) -> RunResult:
        result = _result(status, run, recorder.committed, history, out, time.perf_counter() - began, peaks, cause)
        recorder.result(outcome(run.server, recorder.committed), result.facts)
        trace: dict[str, Any] = {} if error is None else {"trace": trace_of(error)}
        recorder.event(status, at=time.time(), round=recorder.committed.round, cause=cause, **trace)
        return result

    try:
        announce(callbacks, run, history)
        if recorder.committed.round < run.config.run.rounds and not _stopped_at_target(run, history):
            engine = run.engine(store)
            with blamed("the run"):
                train_rounds(run, engine, recorder.committed, history, recorder, callbacks)
            peaks = engine.peak_memory()
        result = ending("target" if _stopped_at_target(run, history) else "finished")
        over = True
        notify(callbacks, "on_run_end", result)
        return result
    except (KeyboardInterrupt, Terminated):
        with suppress(RunFailed):  # what stopped the run matters more than that its ending could not be written
            ending("interrupted")
        raise
    except CannotWrite:
        raise
    except Paused as error:
        result = ending("paused", str(error))
        notify(callbacks, "on_run_end", result)
        return result
    except RunFailed as error:
        if over:  # only a callback failed: the run itself came to its end
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
        notify(callbacks, "close")


def _result(
    status: str, run: Run, state: ServerState, history: list[dict[str, Any]], out: Path | None,
    seconds: float, peaks: dict[str, int], cause: str | None,
) -> RunResult:  # fmt: skip
    summary = _summary(run, history)
    last = history[-1] if history else {}
    facts: dict[str, Any] = {
        "schema": RESULT_SCHEMA,
        "status": status,
        "cause": cause,
        "method": run.config.method.name,
        "yields": run.config.method.yields,
        "rounds": state.round,
        **summary.as_dict(),
        "totals": {"bytes": last.get("bytes_total", 0), "serial_steps": last.get("serial_steps_total", 0)},
        "data": {
            "source": run.data.source,
            "fingerprint": run.data.fingerprint,
            "clients": len(run.data),
            "samples": run.data.samples,
        },
        "state": state.digest(),
        "model": {name: digest(tensors) for name, tensors in outcome(run.server, state).models.items()},
        "versions": versions(),
        "timings": {"seconds": round(seconds, 3), "peak_memory": peaks},
    }
    return RunResult(status, run, state, history, summary, facts, out)


def _summary(run: Run, history: list[dict[str, Any]]) -> Figures:
    return figures(history, run.worker_setup.task.score, run.config.run.target_accuracy)


def announce(callbacks: Sequence[Callback], run: Run, history: Sequence[dict[str, Any]] = ()) -> None:
    """Tell every callback that the run begins."""
    notify(callbacks, "on_run_start", run, list(history))


def _stopped_at_target(run: Run, history: list[dict[str, Any]]) -> bool:
    options = run.config.run
    return (
        options.stop_at_target and bool(history) and reaches(history[-1], options.target_accuracy, run.worker_setup.task.score)
    )


def _started(run: Run) -> dict[str, Any]:
    told = {"fingerprint": run.data.fingerprint, "decides": decisive(run)}
    return {"kind": "started", "at": time.time(), **told, "versions": versions()}
