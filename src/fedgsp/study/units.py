"""Units: what studies are made of. Each has a folder of its own and is done once.

A unit is a run, or a piece of computing with a result in JSON. It goes on where it was stopped (Ctrl-C, SIGKILL, a full disk),
and is only read when it is finished. In a study a unit's folder is named by a digest of what decides its figures (the
configuration without rounds and workers, and the data's fingerprint): the same run is shared by all studies that want it, and a
run that differs in anything is another unit beside it, so that nothing finished is ever overwritten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from fedgsp.core.errors import Diverged, InputError
from fedgsp.cost import FLEETS, costs_by_round
from fedgsp.run import drive
from fedgsp.run.config import RunConfig, read_config
from fedgsp.run.drive import Objects
from fedgsp.run.files import read_lines, write_whole
from fedgsp.run.flops import flops_per_sample
from fedgsp.run.observers import Observer
from fedgsp.study.journals import Journal

SCHEMA = 1
DIVERGED = "diverged.txt"
FLEET_TIMES = "times.json"
UNIT = "unit.json"


@dataclass(frozen=True)
class Trace:
    """A finished run unit: its journal, and for every named fleet the seconds until the end of each round.

    `diverged` says why there is no figure, where training ran away.
    """

    folder: str
    journal: Journal
    seconds: Mapping[str, list[float]]
    computing: Mapping[str, list[float]]
    diverged: str = ""


def run_unit(
    config: RunConfig,
    directory: Path,
    objects: Objects = Objects(),  # noqa: B008 - frozen
    observers: Sequence[Observer] = (),
) -> Journal | str:
    """The journal of a run of `config` in `directory`: read if finished, else resumed or started; a text if it diverged."""
    if (directory / "config.toml").exists():
        recorded = read_config(directory / "config.toml")
        named = recorded if objects.model is None else replace(recorded, model=config.model)
        _check_same(config, named, directory)
    return _advance(config, directory, objects, observers)


def trace_unit(
    config: RunConfig, directory: Path, objects: Objects, observers: Sequence[Observer] = (), legs: Sequence[int] = ()
) -> Trace:
    """A run in a folder that is named by what decides it; `legs` are rounds at which it comes to a whole end on the way.

    Where the same data now lies elsewhere, or the same parts have another name, the folder is told, so that it can go on.
    """
    file = directory / "config.toml"
    if file.exists() and finished_journal(directory, config.run.rounds) is None:
        recorded = read_config(file)
        told = replace(recorded, data=replace(recorded.data, source=config.data.source))
        if told != recorded:
            write_whole(file, told.to_toml().encode())
    for rounds in legs:
        _advance(replace(config, run=replace(config.run, rounds=rounds)), directory, objects, observers)
    journal = _advance(config, directory, objects, observers)
    if isinstance(journal, str):
        return Trace(directory.name, [], {}, {}, journal)
    times = fleet_times(config, directory, config.run.rounds, objects)
    return Trace(directory.name, journal, times["seconds"], times["computing"])


def computed_unit(directory: Path, work: Callable[[], Any]) -> Any:
    """What `work` gives (plain data), computed once."""
    file = directory / UNIT
    with suppress(OSError, ValueError):
        told = json.loads(file.read_text())
        if told.get("schema") == SCHEMA:
            return told["result"]
    result = work()
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps({"schema": SCHEMA, "result": result}, allow_nan=False).encode() + b"\n")
    return json.loads(json.dumps(result))


def key_of(config: RunConfig, fingerprint: str) -> str:
    """A digest of what decides a run's figures: all but its rounds, where it runs, names, and where the data lies."""
    table = config.as_dict()
    for entry in ("rounds", "workers"):
        table["run"].pop(entry)
    table["method"].pop("name")
    table.pop("engine", None)
    table["data"]["source"] = fingerprint
    return digest(table)


def digest(table: Any) -> str:
    """A short name for plain data."""
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:12]


def finished_journal(directory: Path, rounds: int) -> Journal | None:
    """The journal of a run that has trained at least `rounds` rounds, cut to them; None if it has not."""
    file = directory / "journal.jsonl"
    journal = list(read_lines(file)) if file.exists() else []
    result = directory / "result.json"
    finished = result.exists() and json.loads(result.read_text())["rounds"] >= rounds and len(journal) >= rounds
    return journal[:rounds] if finished else None


def is_done(directory: Path, rounds: int) -> bool:
    """Whether a run unit has nothing left to do: so many rounds, or it diverged."""
    return (directory / DIVERGED).exists() or finished_journal(directory, rounds) is not None


def _advance(config: RunConfig, directory: Path, objects: Objects, observers: Sequence[Observer]) -> Journal | str:
    """Read, resume or start."""
    if (directory / DIVERGED).exists():
        return (directory / DIVERGED).read_text()
    known = finished_journal(directory, config.run.rounds)
    if known is not None:
        return known
    try:
        if (directory / "config.toml").exists():
            result = drive.resume(
                directory, rounds=config.run.rounds, workers=config.run.workers, objects=objects, observers=observers
            )
        else:
            result = drive.start(objects.prepare(config), directory, observers)
    except Diverged as error:
        write_whole(directory / DIVERGED, str(error).encode())
        return str(error)
    return result.journal


def fleet_times(
    config: RunConfig, directory: Path, rounds: int, objects: Objects, *, keep: bool = True
) -> dict[str, dict[str, list[float]]]:
    """Seconds until the end of each round on every named fleet; kept beside a unit, since event logs are large."""
    file = directory / FLEET_TIMES
    with suppress(OSError, ValueError):
        told = json.loads(file.read_text())
        if told.get("schema") == SCHEMA and told["rounds"] >= rounds and set(told["seconds"]) == set(FLEETS):
            return {name: {fleet: line[:rounds] for fleet, line in told[name].items()} for name in ("seconds", "computing")}
    log = directory / "events.jsonl"
    if not log.exists():
        raise InputError(f"{directory} has no event log, so its time on a fleet cannot be worked out; run it anew.")
    flops, events = flops_per_sample(objects.prepare(config)), list(read_lines(log))
    times: dict[str, dict[str, list[float]]] = {"seconds": {}, "computing": {}}
    for name, fleet in FLEETS.items():
        costs = costs_by_round(events, fleet, flops, config.method.local.epochs, rounds)
        for what, lines in times.items():
            lines[name] = [round(t, 6) for t in accumulate(getattr(costs[r], what) for r in range(1, rounds + 1))]
    table = {"schema": SCHEMA, "rounds": rounds, "flops_per_sample": flops, **times}
    if keep:
        write_whole(file, json.dumps(table).encode() + b"\n")
    return times


def _check_same(ours: RunConfig, theirs: RunConfig, directory: Path) -> None:
    """A unit's folder belongs to its configuration; only rounds and workers may change."""
    same = replace(theirs, run=replace(theirs.run, rounds=ours.run.rounds, workers=ours.run.workers))
    mine, there = ours.as_dict(), same.as_dict()
    if mine != there:
        odd = [key for key in ("run", "data", "model", "method") if mine[key] != there[key]]
        raise InputError(
            f"{directory} was run with another configuration (its [{odd[0] if odd else 'schema'}] differs); choose another "
            f"place with --out."
        )
