"""Finished runs that are to be compared: read from their directories, each refused with one sentence where it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import RunConfig
from fedgsp.run.reader import holder, need_run, read_history, read_result
from fedgsp.study.units import Trace, fleet_times


@dataclass(frozen=True)
class FinishedRun:
    """A run that has come to its end: what it was told, what came out, and its journal."""

    directory: Path
    config: RunConfig
    facts: dict[str, Any]
    history: list[dict[str, Any]]

    @property
    def fingerprint(self) -> str:
        """Of its data."""
        return str(self.facts["data"]["fingerprint"])

    def trace(self) -> Trace:
        """With its seconds on the named fleets, which are worked out where they are not known yet (the data is needed then)."""
        times = fleet_times(self.config, self.directory, len(self.history), RunBuilder(), keep=False)
        return Trace(str(self.directory), self.history, times["seconds"], times["computing"])


def read_finished(directories: Sequence[Path], *, trust: bool = False) -> list[FinishedRun]:
    """Read finished runs that are to be compared.

    Args:
        directories: Run directories.
        trust: Whether code that they name may run.

    Raises:
        InputError: One is missing, unfinished, still running or named twice, or they are on different data.
    """
    if not directories:
        raise InputError("there are no runs to compare; name run directories, or methods to be run.")
    runs = [_read(directory, RunBuilder(trust=trust)) for directory in directories]
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


def _read(directory: Path, builder: RunBuilder) -> FinishedRun:
    process = holder(need_run(directory))
    if process is not None:
        named = f" (process {process})" if process else ""
        raise InputError(f"{directory} is still running{named}; wait for it, or stop it and compare later.")
    config = builder.read(directory / "config.toml")
    facts = read_result(directory)
    if facts is None or not (directory / "journal.jsonl").is_file():
        missing = "result.json" if facts is None else "journal.jsonl"
        raise InputError(f"{directory} is incomplete: it has no {missing}; fedgsp resume {directory} brings it to its end.")
    history = read_history(directory)
    if facts["status"] not in ("finished", "target") or len(history) < facts["rounds"]:
        raise InputError(
            f"{directory} is incomplete: it was {facts['status']} after round {facts['rounds']} of {config.run.rounds}; "
            f"fedgsp resume {directory} brings it to its end."
        )
    return FinishedRun(directory, config, facts, history[: facts["rounds"]])
