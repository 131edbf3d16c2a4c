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
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import Diverged, InputError
from fedgsp.cost import FLEETS, Epochs, costs_by_round
from fedgsp.run import lifecycle
from fedgsp.run.build import RunBuilder
from fedgsp.run.clients import read_client_facts
from fedgsp.run.files import write_whole
from fedgsp.run.flops import flops_per_sample
from fedgsp.run.reader import RunReader, latest_checkpoint, read_history, read_log, read_result
from fedgsp.run.trust import code_named
from fedgsp.study.commit import source_commit
from fedgsp.study.records import Trace

if TYPE_CHECKING:
    from fedgsp.run.callbacks import Callback
    from fedgsp.run.config import RunConfig
    from fedgsp.study.history import History

SCHEMA = 1
DIVERGED = "diverged.txt"
FLEET_TIMES = "times.json"
UNIT = "unit.json"


def run_unit(
    config: RunConfig,
    directory: Path,
    builder: RunBuilder = RunBuilder(),  # noqa: B008 - frozen
    callbacks: Sequence[Callback] = (),
) -> History | str:
    """The journal of a run of `config` in `directory`: read if finished, else resumed or started; a text if it diverged."""
    if (directory / "config.toml").exists():
        recorded = replace(trusting(builder, config), method=config.method).read(
            directory / "config.toml"
        )  # whose parts may be a notebook's
        named = recorded if builder.model is None else replace(recorded, model=config.model)
        _check_same(config, named, RunReader(directory).config.get("method"), directory)
    return _advance(config, directory, builder, callbacks)


def trace_unit(
    config: RunConfig, directory: Path, builder: RunBuilder, callbacks: Sequence[Callback] = (), stops: Sequence[int] = ()
) -> Trace:
    """A run in a folder that is named by what decides it; `stops` are rounds at which it comes to a whole end on the way.

    Where the same data now lies elsewhere, or the same parts have another name, the folder is told, so that it can go on.
    """
    file = directory / "config.toml"
    if file.exists() and finished_history(directory, config.run.rounds) is None:
        recorded = trusting(builder, config).read(file)
        told = replace(recorded, data=replace(recorded.data, source=config.data.source))
        if told != recorded:
            write_whole(file, told.to_toml().encode())
    for rounds in stops:
        _advance(replace(config, run=replace(config.run, rounds=rounds)), directory, builder, callbacks)
    history = _advance(config, directory, builder, callbacks)
    if isinstance(history, str):
        return Trace(directory.name, [], {}, {}, history)
    if config.run.evaluate_on == "validation":  # a run for tuning: nobody asks what it would take elsewhere
        return Trace(directory.name, history, {}, {})
    times = fleet_times(config, directory, config.run.rounds, builder)
    return Trace(directory.name, history, times["seconds"], times["computing"])


def trusting(builder: RunBuilder, config: RunConfig) -> RunBuilder:
    """The builder that lets run what the user's own configuration names, in a folder that records the same."""
    return replace(builder, trust=frozenset(code_named(config.as_dict())))


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


def finished_history(directory: Path, rounds: int) -> History | None:
    """The journal of a run that has trained at least `rounds` rounds, cut to them; None if it has not."""
    result = read_result(directory)
    if result is None or result["rounds"] < rounds or not (directory / "journal.jsonl").exists():
        return None
    history = read_history(directory)
    return history[:rounds] if len(history) >= rounds else None


def is_done(directory: Path, rounds: int) -> bool:
    """Whether a run unit has nothing left to do: so many rounds, or it diverged."""
    return (directory / DIVERGED).exists() or finished_history(directory, rounds) is not None


def _advance(config: RunConfig, directory: Path, builder: RunBuilder, callbacks: Sequence[Callback]) -> History | str:
    """Read, resume or start."""
    if (directory / DIVERGED).exists():
        return (directory / DIVERGED).read_text()
    known = finished_history(directory, config.run.rounds)
    if known is not None:
        return known
    try:
        if (directory / "config.toml").exists():
            trained = len(read_history(directory))  # more than is asked for, if it was killed on the way to a longer run
            result = lifecycle.resume(
                directory, rounds=max(config.run.rounds, trained), workers=config.run.workers,
                builder=trusting(builder, config), callbacks=callbacks,
            )  # fmt: skip
        else:
            result = lifecycle.start(builder.build(config), directory, callbacks)
    except Diverged as error:
        write_whole(directory / DIVERGED, str(error).encode())
        return str(error)
    return result.history[: config.run.rounds]


def fleet_times(
    config: RunConfig, directory: Path, rounds: int, builder: RunBuilder, *, keep: bool = True, epochs: Epochs | None = None
) -> dict[str, dict[str, list[float]]]:
    """Seconds until the end of each round on every named fleet; kept beside a unit, since event logs are large.

    `epochs` are the local rule's, where `config` does not have the method of the run. The run is built, with its data, only if
    its directory does not say what a sample costs.
    """
    file = directory / FLEET_TIMES
    with suppress(OSError, ValueError):
        told = json.loads(file.read_text())
        if told.get("schema") == SCHEMA and told["rounds"] >= rounds and set(told["seconds"]) == set(FLEETS):
            return {name: {fleet: line[:rounds] for fleet, line in told[name].items()} for name in ("seconds", "computing")}
    log = directory / "events.jsonl"
    if not log.exists():
        raise InputError(f"{directory} has no event log, so its time on a fleet cannot be worked out; run it anew.")
    facts = read_client_facts(directory)
    flops = None if facts is None else facts.flops_per_sample
    flops = flops_per_sample(builder.build(config)) if flops is None else flops
    events, epochs = read_log(directory, "events"), config.method.local.epochs_in if epochs is None else epochs
    times: dict[str, dict[str, list[float]]] = {"seconds": {}, "computing": {}}
    for name, fleet in FLEETS.items():
        costs = costs_by_round(events, fleet, flops, epochs, rounds)
        for what, lines in times.items():
            lines[name] = [round(t, 6) for t in accumulate(getattr(costs[r], what) for r in range(1, rounds + 1))]
    table = {"schema": SCHEMA, "rounds": rounds, "flops_per_sample": flops, **times}
    if keep:
        write_whole(file, json.dumps(table).encode() + b"\n")
    return times


def run_record(config: RunConfig, directory: Path, data: Mapping[str, Any], diverged: str = "") -> dict[str, Any]:
    """What is known of a finished run beside its journal, for a store: what decided its bits, and how it ended.

    `data` are the facts of the whole data; `fingerprint` is that of what the run was given of it (less a validation part, say).
    Figures of result.json that follow from the journal are left out.
    """
    told, saved = read_result(directory), latest_checkpoint(directory)
    if told is None:
        raise InputError(f"{directory} has no result.json, so it has not come to its end.")
    kernel = None if saved is None else saved[1].numerics.get("kernel")
    kept = {name: told[name] for name in ("status", "cause", "yields", "state", "model", "timings")}
    times = directory / FLEET_TIMES
    flops = json.loads(times.read_text())["flops_per_sample"] if times.exists() else None
    return {
        "config": config.as_dict(), "kernel": kernel, "commit": source_commit(), "data": dict(data),
        "fingerprint": told["data"]["fingerprint"], "versions": told["versions"], "diverged": diverged,
        "flops_per_sample": flops, **kept,
    }  # fmt: skip


def _check_same(ours: RunConfig, theirs: RunConfig, method: Any, directory: Path) -> None:
    """A unit's folder belongs to its configuration; only rounds and workers may change. `method` is the recorded table."""
    same = replace(theirs, run=replace(theirs.run, rounds=ours.run.rounds, workers=ours.run.workers))
    mine, there = json.loads(json.dumps([ours.as_dict(), {**same.as_dict(), "method": method}]))
    if mine != there:
        odd = [key for key in ("run", "data", "model", "method") if mine[key] != there[key]]
        raise InputError(
            f"{directory} was run with another configuration (its [{odd[0] if odd else 'schema'}] differs); choose another "
            f"place with `out=`."
        )
