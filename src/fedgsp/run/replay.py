"""Replay: a result is a pure function of configuration, data and event log, and this is the proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors

from fedgsp.core.errors import InputError, blamed
from fedgsp.core.files import read_regular
from fedgsp.core.tensors import digest
from fedgsp.run.accounting import noise_key
from fedgsp.run.build import RunBuilder
from fedgsp.run.callbacks import Callback
from fedgsp.run.config import EngineSection, RunConfig
from fedgsp.run.directory import NoRecord, model_file
from fedgsp.run.identity import check_numerics, check_same_run, numerics_of
from fedgsp.run.keeping import client_store
from fedgsp.run.lifecycle import announce
from fedgsp.run.loop import train_rounds
from fedgsp.run.reader import latest_checkpoint, read_history
from fedgsp.run.recorded_rounds import RecordedRounds
from fedgsp.run.replay_engine import ReplayEngine
from fedgsp.run.result import outcome

if TYPE_CHECKING:
    from fedgsp.client.client_state import ClientStore
    from fedgsp.core.state import ServerState
    from fedgsp.engine.base import Engine
    from fedgsp.run.run import Run


@dataclass(frozen=True)
class Replay:
    """The outcome of a replay: how many rounds agree to the bit, and the first that does not.

    `why_no_further` says why a replay ended before the run did, where it had to.
    """

    rounds: int
    differs: str | None
    why_no_further: str | None = None


def replay(
    path: Path,
    *,
    builder: RunBuilder = RunBuilder(),  # noqa: B008 - frozen
    workers: int | str = "auto",
    callbacks: Sequence[Callback] = (),
    other_numerics: bool = False,
    recording: Recording | None = None,
) -> Replay:
    """Recompute a run from its configuration, its data and its event log, and compare every round's bits.

    Steps are made by the kernel that the run was made with.

    Args:
        path: The run directory.
        builder: Makes the run of its configuration.
        workers: Worker processes.
        callbacks: Are told how it goes.
        other_numerics: Compare although kernel, device or torch's version are not those of the run, so that bits may differ
            for a reason that is no fault of the run.
        recording: What is known of how the run went; None: what its event log says of any run.

    Returns:
        How many rounds agree, and the first difference, if any.

    Raises:
        InputError: There is nothing to replay, or not with these data or numerics.
    """
    config = builder.read(path / "config.toml")
    found = latest_checkpoint(path)
    if found is None or found[0].round == 0:
        raise InputError(f"{path} has not finished a round, so there is nothing to replay.")
    state, bookmark = found
    recorded = read_history(path, bookmark)
    if recording is None:
        recording = Recording(RecordedRounds())
        recording.log.read(path)
    last_round, why = recording.how_far(state.round)
    options = replace(config.run, rounds=last_round, workers=workers, stop_at_target=False)
    kernel = None if other_numerics else bookmark.numerics.get("kernel")
    run, original = recording.build(replace(config, run=options, engine=EngineSection()), builder, kernel)
    check_same_run(path, bookmark.identity, original)
    if not other_numerics:
        check_numerics(bookmark.numerics, numerics_of(original))
    run = noise_key(run, state.extra)
    check = _Comparison(recorded)
    with client_store(run, None) as store:
        engine = recording.engine(run, store)
        try:
            announce(callbacks, run)
            record = NoRecord(run.initial_state, store)
            with blamed("the replay"):
                last = train_rounds(run, engine, run.initial_state, [], record, [check, *callbacks])
        except _Differs as found_difference:
            return Replay(found_difference.round - 1, str(found_difference))
        finally:
            engine.close()
            for callback in callbacks:
                callback.close()
    if last_round < state.round:
        return Replay(last_round, None, why)
    if last.digest() != state.digest():
        return Replay(state.round, "the checkpoint's tensors differ from the replayed ones")
    left = outcome(run.server, last)
    differences = (_model_difference(path, name, left) for name in left.models)
    return Replay(state.round, next((text for text in differences if text), None))


@dataclass(frozen=True)
class Recording:
    """How a run went, as its event log has it."""

    log: RecordedRounds

    def how_far(self, rounds: int) -> tuple[int, str | None]:
        """The last round that can be replayed, and why none after it can."""
        return rounds, None

    def build(self, config: RunConfig, builder: RunBuilder, kernel: str | None) -> tuple[Run, Run]:
        """(the run to replay, the run as it was begun)."""
        run = builder.build(config, kernel=kernel)
        return run, run

    def engine(self, run: Run, store: ClientStore | None) -> Engine:
        """A local engine that does as the event log says."""
        apart = run.availability is not None
        return ReplayEngine(run.engine(store), self.log, run.data, tuple(run.worker_setup.task.metrics), apart=apart)


class _Differs(Exception):
    def __init__(self, round_: int, text: str) -> None:
        super().__init__(text)
        self.round = round_


class _Comparison(Callback):
    """Compares each replayed journal line with the recorded one, timings apart."""

    def __init__(self, recorded: list[dict[str, Any]]) -> None:
        self._recorded = {entry["round"]: entry for entry in recorded}

    def on_round_end(self, entry: dict[str, Any]) -> None:
        theirs = self._recorded.get(entry["round"], {})
        for key in sorted((entry.keys() | theirs.keys()) - {"timings"}):
            if entry.get(key) != theirs.get(key):
                raise _Differs(
                    entry["round"], f"'{key}' is {entry.get(key)} in the replay and {theirs.get(key)} in the journal"
                )


def _model_difference(folder: Path, name: str, state: ServerState) -> str | None:
    path = folder / model_file(name)
    try:
        found = load_safetensors(read_regular(path))
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, ValueError) as error:
        return f"{path.name} cannot be read ({error})"
    return None if digest(found) == digest(state.models[name]) else f"{path.name} differs from the replayed model"
