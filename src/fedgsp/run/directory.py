"""A run is a directory: what it was told, what it did, where it stands, and what came out.

config.toml        resolved and complete: `fedgsp run DIR/config.toml` repeats the run
journal.jsonl      a line a round      plans.jsonl   who trained with whom      events.jsonl   what happened when
clients.safetensors, scores.jsonl   who the clients are, and how good the model is for each
checkpoint/        the states of the last two rounds and of some before       result.json, model.safetensors   what came out
clients/           what clients keep between visits, for rules that have such
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from safetensors.torch import save as save_safetensors

from fedgsp.core.errors import InputError, RunFailed
from fedgsp.core.files import read_regular
from fedgsp.core.state import GLOBAL, ServerState
from fedgsp.run import checkpoint
from fedgsp.run.checkpoint import Bookmark
from fedgsp.run.files import CannotWrite, LineLog, explained, write_whole
from fedgsp.run.going_back import end_of_events
from fedgsp.run.keeping import FOLDER
from fedgsp.run.reader import need_run

if TYPE_CHECKING:
    from fedgsp.client.client_state import ClientStore
    from fedgsp.core.chain import Plan
    from fedgsp.run.config import RunConfig

SCHEMA = 1
LOCK_TRIES, LOCK_SECONDS = 20, 0.025


class Recorder(Protocol):
    """Where a run leaves its traces. `committed` is the newest state that is safe: what every ending leaves behind."""

    committed: ServerState

    def event(self, kind: str, *, sync: bool = True, **facts: Any) -> None:
        """Something happened."""
        ...

    def commit(self, state: ServerState, plan: Plan, entry: dict[str, Any], scores: dict[str, Any] | None = None) -> None:
        """A round is done: from here on it is never lost."""
        ...

    def result(self, state: ServerState, facts: dict[str, Any]) -> None:
        """The run has come to an end, for good or not."""
        ...


class NoRecord:
    """A run that leaves no files; clients keep their states in `store`, if the rule has such."""

    def __init__(self, state: ServerState, store: ClientStore | None = None) -> None:
        self.committed = state
        self._store = store

    def event(self, kind: str, *, sync: bool = True, **facts: Any) -> None:
        """Forget it."""

    def commit(self, state: ServerState, plan: Plan, entry: dict[str, Any], scores: dict[str, Any] | None = None) -> None:
        """Only remember the state."""
        if self._store is not None:
            self._store.retire(self.committed.client_versions, state.client_versions)
        self.committed = state

    def result(self, state: ServerState, facts: dict[str, Any]) -> None:
        """Forget it."""


class RunDirectory:
    """A run directory that this process holds: no other process may write to it meanwhile."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.committed: ServerState
        self._kept: dict[int, dict[int, str]] = {}  # which versions of clients' states the checkpoints name, by their rounds
        self._every: int | None = None
        self._store: ClientStore | None = None
        self._lock = lock
        self._identity = ""
        self._numerics: dict[str, Any] = {}
        self._journal: LineLog | None = None
        self._plans: LineLog | None = None
        self._scores: LineLog | None = None
        self._events: LineLog | None = None

    @classmethod
    def create(cls, path: Path) -> RunDirectory:
        """A new directory for a new run."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            taken = any(not entry.name.startswith(".") for entry in path.iterdir())
        except OSError as error:
            raise InputError(f"cannot create the run directory {path}: {error.strerror}.") from error
        if taken:
            hint = "resume it, or choose" if (path / "config.toml").exists() else "choose"
            raise InputError(f"{path} is not empty; {hint} another place with `out=`.")
        return cls(path, _locked(path))

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """The directory of a run that was started before; links in it are not written through."""
        for folder in ("checkpoint", FOLDER):
            if (need_run(path) / folder).is_symlink():
                raise InputError(f"{path / folder} is a link to another place, through which nothing is written; put it back.")
        return cls(path, _locked(path))

    def write_config(self, config: RunConfig) -> None:
        """Record what the run is told from now on."""
        write_whole(self.path / "config.toml", config.to_toml().encode())

    def write_clients(self, content: bytes) -> None:
        """Record who the clients are; once, since it never changes."""
        if not (self.path / "clients.safetensors").exists():
            write_whole(self.path / "clients.safetensors", content)

    def begin(
        self,
        state: ServerState,
        identity: str,
        numerics: dict[str, Any],
        clients: tuple[str, ...],
        bookmark: Bookmark | None,
        event: dict[str, Any],
        store: ClientStore | None = None,
        every: int | None = None,
    ) -> None:
        """Open the logs: anew, with a checkpoint of the first state, or cut back to where a checkpoint says they stood.

        `event` is what events.jsonl is told of it; `store` is where clients keep their states; `every` says which checkpoints
        are kept (`checkpoint.keeps`).
        """
        self._identity, self._numerics, self.committed = identity, numerics, state
        self._store, self._every = store, every
        events: int | None = 0
        if bookmark is not None:
            events = end_of_events(self.path, state.round, bookmark)
            checkpoint.drop_after(self.path / "checkpoint", state.round)
        self._journal = LineLog(self.path / "journal.jsonl", keep=bookmark.journal_bytes if bookmark else 0)
        self._plans = LineLog(self.path / "plans.jsonl", keep=bookmark.plans_bytes if bookmark else 0)
        self._scores = LineLog(self.path / "scores.jsonl", keep=bookmark.scores_bytes if bookmark else 0)
        self._events = LineLog(self.path / "events.jsonl", keep=events)
        _end_cut_line(self._events)
        for folder in (self.path, self.path / "checkpoint"):
            for scratch in folder.glob(".*.tmp"):  # what a killed process had begun to write
                scratch.unlink(missing_ok=True)
        self._sweep_states()
        self.event(**event)
        if bookmark is None:
            self._plans.append({"schema": SCHEMA, "clients": list(clients)}, sync=True)
            self._save(state)

    def event(self, kind: str, *, sync: bool = True, **facts: Any) -> None:
        """Append to events.jsonl."""
        assert self._events is not None
        self._events.append({"event": kind, **facts}, sync=sync)

    def commit(self, state: ServerState, plan: Plan, entry: dict[str, Any], scores: dict[str, Any] | None = None) -> None:
        """Journal and plan first, then the checkpoint that makes them count; then what no checkpoint needs is dropped."""
        assert self._journal is not None
        assert self._plans is not None
        assert self._scores is not None
        self._journal.append(entry, sync=True)
        self._plans.append(plan_record(plan), sync=True)
        if scores is not None:
            self._scores.append(scores, sync=True)
        self._save(state)
        self.committed = state
        self._drop_states()

    def result(self, state: ServerState, facts: dict[str, Any]) -> None:
        """model.safetensors (the model that was judged), model-NAME.safetensors (others that are live) and result.json."""
        files = {name: model_file(name) for name in state.models}
        for stale in self.path.glob("model*.safetensors"):
            if stale.name not in files.values():  # a model that was live when the run ended before, and is no more
                stale.unlink(missing_ok=True)
        for name, tensors in state.models.items():
            contiguous = {key: tensor.contiguous() for key, tensor in tensors.items()}
            write_whole(self.path / files[name], save_safetensors(contiguous, metadata={"round": str(state.round)}))
        write_whole(self.path / "result.json", json.dumps(facts, indent=2, allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        """Let go of the directory; may be called twice."""
        for log in (self._journal, self._plans, self._scores, self._events):
            if log is not None:
                log.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _sweep_states(self) -> None:
        """Drop the clients' states that belong to no checkpoint: a killed process had written them for a round to come."""
        if self._store is None:
            return
        for path in checkpoint.candidates(self.path / "checkpoint"):
            with suppress(InputError):
                state, _ = checkpoint.load(path)
                self._kept[state.round] = state.client_versions
        self._kept[self.committed.round] = self.committed.client_versions
        self._store.sweep(self._kept.values())

    def _drop_states(self) -> None:
        """Drop the clients' states that only checkpoints named which are dropped themselves."""
        if self._store is None:
            return
        newest = self.committed.round
        self._kept[newest] = self.committed.client_versions
        gone = [self._kept.pop(r) for r in list(self._kept) if not checkpoint.keeps(r, newest, self._every)]
        named = {entry for versions in self._kept.values() for entry in versions.items()}
        for client, version in {entry for versions in gone for entry in versions.items()} - named:
            self._store.drop(client, version)

    def _save(self, state: ServerState) -> None:
        assert self._journal is not None
        assert self._plans is not None
        assert self._scores is not None
        assert self._events is not None
        sizes = (log.size for log in (self._journal, self._plans, self._scores, self._events))
        checkpoint.save(self.path / "checkpoint", state, Bookmark(self._identity, self._numerics, *sizes), self._every)


def model_file(name: str) -> str:
    """The file that a live model is left in when the run ends; a name that could lead elsewhere is refused."""
    if not checkpoint.is_plain(name):
        raise RunFailed(f"a live model is called {name!r}, which no file can be called; use letters, digits, '-', '_' and '.'.")
    return "model.safetensors" if name == GLOBAL else f"model-{name}.safetensors"


def plan_record(plan: Plan) -> dict[str, Any]:
    """A plan as a line of plans.jsonl."""
    chains = []
    for chain in plan.chains:
        record: dict[str, Any] = {"clients": list(chain.clients)}
        if chain.start != "global":
            record["start"] = chain.start
        if chain.passes != 1:
            record["passes"] = chain.passes
        chains.append(record)
    return {"round": plan.round, "groups": plan.groups, "left_out": plan.left_out, "chains": chains}


def _locked(path: Path) -> int:
    with explained(path):
        try:
            descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError as error:
            if error.errno == errno.ELOOP or (path / ".lock").is_dir():
                raise InputError(
                    f"{path / '.lock'} is a link or a folder, and not the file that it should be; remove it."
                ) from error
            raise InputError(f"the run directory {path} may not be written ({error.strerror}); make it writable.") from error
    if not _taken(descriptor):
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise InputError(f"{path} is in use by another process{f' ({holder})' if holder else ''}; wait for it, or stop it.")
    with suppress(OSError, CannotWrite):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _taken(descriptor: int) -> bool:
    """Take the lock; tried for a while, since whoever looks whether a run is held has it for a moment."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LOCK_SECONDS)
        else:
            return True
    return False


def _end_cut_line(log: LineLog) -> None:
    """A kill may have cut the last event short: end that line, so that the next one is whole."""
    content = read_regular(log.path) if log.size else b"\n"
    if content[-1:] != b"\n":
        os.truncate(log.path, content.rfind(b"\n") + 1)
