"""Finished runs that are to be compared: read from their directories, each refused with one sentence where it cannot be."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgsp.core.errors import InputError
from fedgsp.run.config import RunConfig, read_config
from fedgsp.run.drive import Objects
from fedgsp.run.files import read_lines
from fedgsp.study.units import Trace, fleet_times

NEEDED = ("config.toml", "journal.jsonl", "result.json")
READABLE = (1, 2)
"""Schemas of result.json: figures are worked out from the journal, so what version 1 meant by them does not matter."""


@dataclass(frozen=True)
class Finished:
    """A run that has come to its end: what it was told, what came out, and its journal."""

    directory: Path
    config: RunConfig
    facts: dict[str, Any]
    journal: list[dict[str, Any]]

    @property
    def fingerprint(self) -> str:
        """Of its data."""
        return str(self.facts["data"]["fingerprint"])

    def trace(self) -> Trace:
        """With its seconds on the named fleets, which are worked out where they are not known yet (the data is needed then)."""
        times = fleet_times(self.config, self.directory, len(self.journal), Objects(), keep=False)
        return Trace(str(self.directory), self.journal, times["seconds"], times["computing"])


def read_finished(directories: Sequence[Path]) -> list[Finished]:
    """All of them, on the same data."""
    if not directories:
        raise InputError("there are no runs to compare; name run directories, or methods to be run.")
    runs = [_read(directory) for directory in directories]
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
                f"{first.directory} and {run.directory} are not judged on the same samples: their evaluate_on, holdout_clients "
                f"or validation differ."
            )
    return runs


def _read(directory: Path) -> Finished:
    if not directory.is_dir():
        raise InputError(f"there is no run directory {directory}.")
    if not (directory / "config.toml").is_file():
        raise InputError(f"{directory} is not a run directory: it has no config.toml.")
    process = _held_by(directory)
    if process is not None:
        raise InputError(f"{directory} is still running{process}; wait for it, or stop it and compare later.")
    config = read_config(directory / "config.toml")
    missing = [name for name in NEEDED if not (directory / name).is_file()]
    if missing:
        raise InputError(f"{directory} is incomplete: it has no {missing[0]}; fedgsp resume {directory} brings it to its end.")
    try:
        facts = json.loads((directory / "result.json").read_text())
        journal = list(read_lines(directory / "journal.jsonl"))
    except (OSError, ValueError) as error:
        raise InputError(f"{directory} cannot be read: {error}.") from error
    if not isinstance(facts, dict) or facts.get("schema") not in READABLE:
        version = facts.get("schema") if isinstance(facts, dict) else None
        raise InputError(f"{directory}/result.json has schema {version}; this version of fedgsp reads 1 and 2.")
    if facts["status"] not in ("finished", "target") or len(journal) < facts["rounds"]:
        raise InputError(
            f"{directory} is incomplete: it was {facts['status']} after round {facts['rounds']} of {config.run.rounds}; "
            f"fedgsp resume {directory} brings it to its end."
        )
    return Finished(directory, config, facts, journal[: facts["rounds"]])


def _held_by(directory: Path) -> str | None:
    """ " (process N)" if a process holds the run's lock, None if nobody does."""
    lock = directory / ".lock"
    if not lock.exists():
        return None
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return f" (process {holder})" if holder else ""
    finally:
        os.close(descriptor)
    return None
