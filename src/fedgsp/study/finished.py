"""Finished runs that are to be compared: read from their directories, each refused with one sentence where it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.methods import named
from fedgsp.run.build import RunBuilder
from fedgsp.run.clients import read_client_facts
from fedgsp.run.config import RunConfig, read_config
from fedgsp.run.reader import RunReader, holder, need_run, read_history, read_result
from fedgsp.run.result import RunResult
from fedgsp.study.records import Trace
from fedgsp.study.units import fleet_times

NOBODYS = "fedavg"
"""The method that stands in a configuration for the recorded one, whose parts may be in a notebook that is gone."""


@dataclass(frozen=True)
class FinishedRun:
    """A run that has come to its end: what it was told, what came out, and its journal.

    No code of the run is looked at, and no data: `config` has another method in place of the run's own, which is in `method`.
    `in_memory` is set for a run that wrote nothing down.
    """

    directory: Path
    config: RunConfig
    method: dict[str, Any]
    facts: dict[str, Any]
    history: list[dict[str, Any]]
    score: str | None = None
    in_memory: RunResult | None = None
    trust: bool = False

    @property
    def name(self) -> str:
        """What its method is called."""
        return str(self.method.get("name", "custom"))

    @property
    def fingerprint(self) -> str:
        """Of its data."""
        return str(self.facts["data"]["fingerprint"])

    def trace(self) -> Trace:
        """With its seconds on the named fleets, which are worked out where they are not known yet (the data is needed then)."""
        if self.in_memory is not None:  # without an event log nobody knows how long its chains took
            return Trace(str(self.directory), self.history, {}, {})
        facts = read_client_facts(self.directory)
        if facts is None or facts.flops_per_sample is None:  # then it must be built, and with it what it names
            RunBuilder(trust=self.trust).read(self.directory / "config.toml")
        epochs = RunReader(self.directory).epochs_in
        times = fleet_times(self.config, self.directory, len(self.history), RunBuilder(), keep=False, epochs=epochs)
        return Trace(str(self.directory), self.history, times["seconds"], times["computing"])


def read_finished(places: Sequence[Path | RunResult], *, trust: bool = False) -> list[FinishedRun]:
    """Read finished runs that are to be compared.

    Args:
        places: Run directories, or what `fedgsp.train` returned.
        trust: Whether a model or encoder of samples that a directory names may run, where it must.

    Raises:
        InputError: One is missing, unfinished, still running or named twice, or they are on different data.
    """
    if not places:
        raise InputError("there are no runs to compare; name run directories, or methods to be run.")
    runs = [_taken(place) if isinstance(place, RunResult) else _read(place, trust) for place in places]
    doubled = [
        one.directory for at, one in enumerate(runs) if one.directory.resolve() in {r.directory.resolve() for r in runs[:at]}
    ]
    if doubled:
        raise InputError(f"{doubled[0]} is named twice.")
    first = runs[0]
    for run in runs[1:]:
        if run.fingerprint != first.fingerprint:
            raise InputError(
                f"{first.directory} and {run.directory} were run on different data (fingerprints {first.fingerprint[:12]} and "
                f"{run.fingerprint[:12]}), so their figures cannot be compared."
            )
        theirs, ours = (
            (r.config.run.evaluate_on, r.config.run.holdout_clients, r.config.data.validation) for r in (first, run)
        )
        if theirs != ours:
            raise InputError(
                f"{first.directory} and {run.directory} are not evaluated on the same samples: their evaluate_on, "
                f"holdout_clients or validation differ."
            )
    return runs


def _read(directory: Path, trust: bool) -> FinishedRun:
    process = holder(need_run(directory))
    if process is not None:
        which = f" (process {process})" if process else ""
        raise InputError(f"{directory} is still running{which}; wait for it, or stop it and compare later.")
    config = read_config(directory / "config.toml", named(NOBODYS), unread=frozenset({"data", "model", "method"}))
    reader, facts = RunReader(directory), read_result(directory)
    if facts is None or not (directory / "journal.jsonl").is_file():
        missing = "result.json" if facts is None else "journal.jsonl"
        raise InputError(f"{directory} is incomplete: it has no {missing}; fedgsp resume {directory} brings it to its end.")
    history = read_history(directory)
    if facts["status"] not in ("finished", "target") or len(history) < facts["rounds"]:
        raise InputError(
            f"{directory} is incomplete: it was {facts['status']} after round {facts['rounds']} of {config.run.rounds}; "
            f"fedgsp resume {directory} brings it to its end."
        )
    method = reader.config.get("method")
    told = method if isinstance(method, dict) else {}
    return FinishedRun(directory, config, told, facts, history[: facts["rounds"]], reader.score, trust=trust)


def _taken(result: RunResult) -> FinishedRun:
    """A run that this process trained: read from its directory if it has one."""
    if result.directory is not None:
        return _read(result.directory, trust=True)
    config = result.run.config
    if result.status not in ("finished", "target"):
        raise InputError(f"the run of {config.method.name} has not come to its end: it was {result.status}.")
    place, score = Path(f"(in memory, {id(result):x})"), result.run.worker_setup.task.score
    return FinishedRun(place, config, config.method.encode(), result.facts, result.history, score, result)
