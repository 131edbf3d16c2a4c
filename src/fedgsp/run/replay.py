"""Replay: a result is a pure function of configuration, data and event log, and this is the proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedgsp.client.keep import ClientStore
from fedgsp.core.blame import blamed
from fedgsp.core.errors import InputError
from fedgsp.core.state import ServerState
from fedgsp.core.tensors import digest
from fedgsp.data import FederatedData, load
from fedgsp.engine.job import Engine
from fedgsp.run.attendance import Attendance
from fedgsp.run.central import bound
from fedgsp.run.config import EngineSection, RunConfig, read_config
from fedgsp.run.directory import NoRecord, latest_checkpoint, model_file, read_journal
from fedgsp.run.drive import Objects, announce, check_numerics, check_same_run, identity_of, numerics_of
from fedgsp.run.keeping import client_store
from fedgsp.run.loop import train_rounds
from fedgsp.run.observers import Observer
from fedgsp.run.replayed import FromLog, Recalled
from fedgsp.run.result import outcome
from fedgsp.run.roster import Log, gathered, outline
from fedgsp.run.setup import Setup


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
    objects: Objects = Objects(),  # noqa: B008 - frozen
    workers: int | str = "auto",
    observers: Sequence[Observer] = (),
    source: str | None = None,
    other_numerics: bool = False,
) -> Replay:
    """Recompute a run from its configuration, its data and its event log, and compare every round's bits.

    A deployment is replayed on one machine: `source` names a federation that has all its sites' samples. Steps are made by the
    kernel that the run was made with. Where it, the device or torch's version cannot be had here, bits may differ for a reason
    that is no fault of the run: that is refused, unless `other_numerics` asks for the comparison all the same.
    """
    config = read_config(path / "config.toml", objects.method)
    found = latest_checkpoint(path)
    if found is None or found[0].round == 0:
        raise InputError(f"{path} has not finished a round, so there is nothing to replay.")
    state, bookmark = found
    recorded = read_journal(path, bookmark)
    log = Log.read(path)
    last_round, why = _how_far(log, state.round)
    options = replace(config.run, rounds=last_round, workers=workers, stop_at_target=False)
    kernel = None if other_numerics else bookmark.numerics.get("kernel")
    stage = _stage(replace(config, run=options, engine=EngineSection()), log, objects, source, kernel)
    check_same_run(path, bookmark.identity, identity_of(stage.first))
    if not other_numerics:
        check_numerics(bookmark.numerics, numerics_of(stage.first))
    check, setup = _Comparison(recorded), stage.setup
    with client_store(setup, None) as store:
        engine = stage.engine(store)
        try:
            announce(observers, setup)
            record = NoRecord(setup.first, store)
            with blamed("the replay"):
                last = train_rounds(setup, engine, setup.first, [], record, [check, *observers], stage.attendance)
        except _Differs as found_difference:
            return Replay(found_difference.round - 1, str(found_difference))
        finally:
            engine.close()
            for observer in observers:
                observer.closed()
    if last_round < state.round:
        return Replay(last_round, None, why)
    if last.digest() != state.digest():
        return Replay(state.round, "the checkpoint's tensors differ from the replayed ones")
    left = outcome(setup.server, last)
    differences = (_model_difference(path, name, left) for name in left.models)
    return Replay(state.round, next((text for text in differences if text), None))


@dataclass(frozen=True)
class _Stage:
    """What is replayed, on what; `first` is the setup as the run itself began with it."""

    setup: Setup
    first: Setup
    log: Log | None
    attendance: Attendance | None = None

    def engine(self, store: ClientStore | None) -> Engine:
        """A local engine that does as the event log says."""
        engine = self.setup.engine(store)
        if self.log is None:
            return engine
        return FromLog(engine, self.log, self.setup.data, tuple(self.setup.job.task.metrics), apart=self.attendance is not None)


def _stage(config: RunConfig, log: Log, objects: Objects, source: str | None, kernel: str | None) -> _Stage:
    if log.kind is None:
        setup = objects.prepare(config, kernel=kernel)
        return _Stage(setup, setup, log)
    first = replace(objects, data=outline(log.kind, log.first.values())).prepare(config, kernel=kernel)
    first = replace(first, job=replace(first.job, wire=log.kind.wire))
    data = gathered(_all_samples(config, objects, source), log)
    if config.data.validation:
        data = data.with_validation(config.data.validation, config.data.seed)
    setup = bound(replace(first, data=data, job=replace(first.job, data=data)), config)
    return _Stage(setup, first, log, Recalled(log, log.kind, data))


def _all_samples(config: RunConfig, objects: Objects, source: str | None) -> FederatedData:
    """What all sites of a deployment hold, in one place."""
    if objects.data is not None:
        return objects.data
    if source is None:
        raise InputError(
            "the samples of this run are at its sites; to replay it here, name a source that has all of them: --data SOURCE."
        )
    return load(source, data_seed=config.data.seed)


def _how_far(log: Log, rounds: int) -> tuple[int, str | None]:
    """The last round that can be replayed: a site that changed its data has no longer what it trained on before."""
    changed = log.data_changed_in()
    if changed is None or changed[0] > rounds:
        return rounds, None
    round_, name = changed
    if round_ == 1:
        raise InputError(f"the site '{name}' changed its data in the first round, so there is nothing that could be replayed.")
    return round_ - 1, f"the site '{name}' had new data from round {round_} on"


class _Differs(Exception):
    def __init__(self, round_: int, text: str) -> None:
        super().__init__(text)
        self.round = round_


class _Comparison(Observer):
    """Compares each replayed journal line with the recorded one, timings apart."""

    def __init__(self, recorded: list[dict[str, Any]]) -> None:
        self._recorded = {entry["round"]: entry for entry in recorded}

    def round_done(self, entry: dict[str, Any]) -> None:
        theirs = self._recorded.get(entry["round"], {})
        for key in sorted((entry.keys() | theirs.keys()) - {"timings"}):
            if entry.get(key) != theirs.get(key):
                raise _Differs(
                    entry["round"], f"'{key}' is {entry.get(key)} in the replay and {theirs.get(key)} in the journal"
                )


def _model_difference(folder: Path, name: str, state: ServerState) -> str | None:
    from safetensors.torch import load_file

    path = folder / model_file(name)
    if not path.exists() or digest(load_file(path)) == digest(state.models[name]):
        return None
    return f"{path.name} differs from the replayed model"
