"""Replay: a result is a pure function of configuration, data and event log, and this is the proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.core.state import ServerState
from fedgsp.core.tensors import digest
from fedgsp.engine.job import Absent
from fedgsp.run.config import read_config
from fedgsp.run.directory import NoRecord, latest_checkpoint, model_file, read_journal
from fedgsp.run.drive import Objects, announce, check_same_run, identity_of
from fedgsp.run.files import read_lines
from fedgsp.run.keeping import client_store
from fedgsp.run.loop import train_rounds
from fedgsp.run.observers import Observer


@dataclass(frozen=True)
class Replay:
    """The outcome of a replay: how many rounds agree to the bit, and the first that does not."""

    rounds: int
    differs: str | None


def replay(
    path: Path,
    *,
    objects: Objects = Objects(),  # noqa: B008 - frozen
    workers: int | str = "auto",
    observers: Sequence[Observer] = (),
) -> Replay:
    """Recompute a run from its configuration, its data and its event log, and compare every round's bits."""
    config = read_config(path / "config.toml", objects.method)
    found = latest_checkpoint(path)
    if found is None or found[0].round == 0:
        raise InputError(f"{path} has not finished a round, so there is nothing to replay.")
    state, bookmark = found
    recorded = read_journal(path, bookmark)
    options = replace(config.run, rounds=state.round, workers=workers, stop_at_target=False)
    setup = objects.prepare(replace(config, run=options))
    check_same_run(path, bookmark.identity, identity_of(setup))
    absent = _absences(path / "events.jsonl")
    check = _Comparison(recorded)
    with client_store(setup, None) as store:
        engine = setup.engine(store)
        try:
            announce(observers, setup)
            first = setup.first
            record = NoRecord(first, store)
            last = train_rounds(setup, engine, first, [], record, [check, *observers], lambda r: absent.get(r, {}))
        except _Differs as found_difference:
            return Replay(found_difference.round - 1, str(found_difference))
        finally:
            engine.close()
            for observer in observers:
                observer.closed()
    if last.digest() != state.digest():
        return Replay(state.round, "the checkpoint's tensors differ from the replayed ones")
    differences = (_model_difference(path, name, last) for name in last.models)
    return Replay(state.round, next((text for text in differences if text), None))


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


def _absences(events: Path) -> dict[int, Absent]:
    """Skipped hops by round and chain: those of the last attempt at each round."""
    found: dict[int, dict[int, set[int]]] = {}
    for event in read_lines(events):
        if event["event"] == "round":
            found[event["round"]] = {}
        elif event["event"] == "skipped":
            found[event["round"]].setdefault(event["chain"], set()).add(event["hop"])
    return {r: {chain: frozenset(hops) for chain, hops in chains.items()} for r, chains in found.items()}


def _model_difference(folder: Path, name: str, state: ServerState) -> str | None:
    from safetensors.torch import load_file

    path = folder / model_file(name)
    if not path.exists() or digest(load_file(path)) == digest(state.models[name]):
        return None
    return f"{path.name} differs from the replayed model"
