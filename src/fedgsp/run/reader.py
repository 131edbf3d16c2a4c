"""The only code that reads a run directory.

`RunReader` follows a run as it grows, for whoever shows it: every line is checked, what is damaged is left out and told in
`damage`, and nothing in the directory is run or written. The functions are for whoever needs a file whole (resume, replay,
compare, cost): they refuse a damaged one with a sentence.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.client.schedule import piece_at
from fedgsp.core.errors import InputError
from fedgsp.core.files import open_regular, read_regular
from fedgsp.run import checkpoint
from fedgsp.run.clients import ClientFacts, read_client_facts
from fedgsp.run.event_log import EventLog
from fedgsp.run.metrics import WIDEST, evaluations, final, final_rounds
from fedgsp.run.record_checks import CHECKS, Check, parsed, result_problem

if TYPE_CHECKING:
    from fedgsp.core.state import ServerState
    from fedgsp.run.checkpoint import Bookmark

LOOK_BACK = 512
"""Bytes before the place reached that must still be the same: resuming cuts logs back and writes on."""
MOST_CHAINS = 100_000
"""More chains than this in one round are no plan of ours."""


class LineTail:
    """The whole lines of a log that somebody else writes, a few at a time. It reads, and never writes, locks or waits.

    Lines that are not as `check` wants them are left out; `damage` tells of the first of them.
    """

    def __init__(self, path: Path, check: Check = lambda record: None) -> None:
        self.path = path
        self._check = check
        self._forget()

    def _forget(self) -> None:
        self._at, self._before, self._lines = 0, b"", 0
        self._bad: list[str] = []
        self.damage: str | None = None

    def read(self) -> tuple[bool, list[dict[str, Any]]]:
        """(whether everything told before is void, new lines). A last line without its end is left for the next time."""
        void = False
        try:
            with open_regular(self.path) as file:
                file.seek(max(0, self._at - len(self._before)))
                if self._at > 0 and file.read(len(self._before)) != self._before:
                    void = True
                    self._forget()
                    file.seek(0)
                content = file.read()
        except FileNotFoundError:
            void = self._at > 0
            self._forget()
            return void, []
        except OSError as error:
            self.damage = f"{self.path} cannot be read ({error.strerror})."
            return False, []
        end = content.rfind(b"\n") + 1
        whole = content[:end]
        self._before = (self._before + whole)[-LOOK_BACK:]
        self._at += end
        return void, list(self.checked(whole))

    def checked(self, content: bytes) -> Iterator[dict[str, Any]]:
        """The records of whole lines."""
        for line in content.split(b"\n")[:-1]:
            self._lines += 1
            record, problem = parsed(line)
            if record is not None and (problem := self._check(record) or "") == "":
                yield record
            else:
                self._bad.append(f"line {self._lines} {problem}" if not self._bad else "")
                more = f" ({len(self._bad)} lines are damaged)" if len(self._bad) > 1 else ""
                self.damage = f"{self.path} is damaged: {self._bad[0]}{more}."


class RunReader:
    """A run directory, read on as it grows.

    Args:
        path: The run directory.

    Attributes:
        config: The tables of config.toml; empty where it cannot be read.
        history: The journal lines, one a round.
        plans: The plans of the rounds.
        names: What the clients are called.
        scores: Each client's score in the last evaluated rounds.
        facts: What the run recorded of its clients and model; None where it did not.
        events: The event log, folded.
        epoch: Changes when what was read before is void: the run was cut back, or is another one.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._begin()

    def _begin(self) -> None:
        self.epoch = secrets.token_hex(4)
        self.config_text, self.config = "", dict[str, Any]()
        self.facts: ClientFacts | None = None
        self.history: list[dict[str, Any]] = []
        self.plans: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.scores: dict[int, list[float | None]] = {}
        self._odd: dict[str, str] = {}
        self._tails = {name: LineTail(self.path / f"{name}.jsonl", check) for name, check in CHECKS.items()}
        self._read_config()
        self._read_facts()
        self.events = self.new_events()

    def new_events(self) -> EventLog:
        """What the event log is folded into; for readers that want more of it."""
        return EventLog()

    def read(self) -> list[dict[str, Any]]:
        """Take in what is new; the new events are returned, since they are not kept."""
        if self.facts is None:
            self._read_facts()
        fresh = {name: tail.read() for name, tail in self._tails.items()}
        if any(void for void, _ in fresh.values()):
            self._begin()
            fresh = {name: tail.read() for name, tail in self._tails.items()}
        for entry in fresh["journal"][1]:
            self._in_order("journal.jsonl", entry, self.history)
        for plan in fresh["plans"][1]:
            if "chains" not in plan:
                self.names = plan["clients"]
            else:
                self._in_order("plans.jsonl", plan, self.plans)
        self.scores.update({line["round"]: line["values"] for line in fresh["scores"][1]})
        for round_ in sorted(self.scores)[:-WIDEST]:
            del self.scores[round_]  # only the last ones are shown
        events = [event for event in fresh["events"][1] if event.get("chains", 0) <= MOST_CHAINS]
        for event in events:
            self.events.take(event)
        return events

    def _in_order(self, file: str, line: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        if lines and line["round"] <= lines[-1]["round"]:
            self._odd[file] = f"{self.path / file} is damaged: round {line['round']} comes after round {lines[-1]['round']}."
        else:
            lines.append(line)

    def _read_config(self) -> None:
        file = self.path / "config.toml"
        try:
            self.config_text = read_regular(file).decode(errors="replace")
            self.config = tomllib.loads(self.config_text)
        except OSError as error:
            self._odd["config.toml"] = f"{file} cannot be read ({error.strerror})."
        except (ValueError, RecursionError) as error:
            self._odd["config.toml"] = f"{file} is not valid TOML: {error}."

    def _read_facts(self) -> None:
        try:
            self.facts = read_client_facts(self.path)
        except InputError as error:
            self._odd["clients.safetensors"] = str(error)

    @property
    def damage(self) -> list[str]:
        """What of the directory could not be read, a sentence each."""
        _, problem = _result(self.path)
        tails = [tail.damage for tail in self._tails.values() if tail.damage is not None]
        return [*self._odd.values(), *tails, *([problem] if problem else [])]

    @property
    def result(self) -> dict[str, Any]:
        """result.json; empty while there is none that can be read."""
        return _result(self.path)[0] or {}

    @property
    def status(self) -> str:
        """running, damaged, finished, target, paused, interrupted, failed, or stopped (killed: it can be resumed)."""
        if is_held(self.path):
            return "running"
        if self.damage:
            return "damaged"
        return "stopped" if self.events.last in ("started", "resumed", "") else self.events.last

    @property
    def cause(self) -> str | None:
        """Why the run is as it stands, where there is something to say."""
        return next(iter(self.damage), self.events.cause)

    @property
    def round(self) -> int:
        """Rounds finished."""
        return int(self.history[-1]["round"]) if self.history else 0

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self._entry("method", "name", default="unnamed"))

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self._whole("run", "seed", default=0)

    @property
    def rounds_planned(self) -> int:
        """How many rounds the run was told to train."""
        return self._whole("run", "rounds", default=0)

    def epochs_in(self, round_: int) -> int:
        """Local epochs of a round."""
        pieces = self._entry("method", "local", "epochs_by_round", default=())
        whole = all(isinstance(piece, list | tuple) and [type(n) for n in piece] == [int, int] for piece in pieces)
        return int(piece_at(pieces if whole else (), round_, self._whole("method", "local", "epochs", default=1)))

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self._entry("model", "name", default="a model"))

    @property
    def evaluated_on(self) -> str:
        """The part of the data that figures are about."""
        return str(self._entry("run", "evaluate_on", default="test"))

    @property
    def score(self) -> str | None:
        """The metric that runs are compared by; None: the loss."""
        if self.facts is not None:
            return self.facts.score
        return "accuracy" if any("accuracy" in entry for entry in self.history) else None

    def _entry(self, *path: str, default: Any) -> Any:
        at: Any = self.config
        for name in path:
            at = at.get(name) if isinstance(at, dict) else None
        return default if at is None else at

    def _whole(self, *path: str, default: int) -> int:
        """A whole number; a configuration of somebody else's may say anything."""
        found = self._entry(*path, default=default)
        return found if isinstance(found, int) and 0 <= found < 2**31 else default

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        """The journal lines of rounds that were evaluated."""
        return [entry for entry in self.history if evaluations([entry])]

    def final(self, name: str) -> float | None:
        """The run's final figure; None while there is none."""
        return final(self.history, name) if evaluations(self.history, name) else None

    def client_scores(self) -> NDArray[np.float64] | None:
        """(K,) each client's mean over the evaluations of the final figure, NaN where it was not evaluated in them."""
        rounds = [r for r in final_rounds(self.history) if r in self.scores] or sorted(self.scores)[-1:]
        rows = [[np.nan if v is None else float(v) for v in self.scores[r]] for r in rounds]
        rows = [row for row in rows if rows and len(row) == len(rows[-1])]
        if not rows:
            return None
        table = np.array(rows)
        seen = (~np.isnan(table)).sum(axis=0)
        return np.where(seen > 0, np.nansum(table, axis=0) / np.maximum(seen, 1), np.nan)


def need_run(path: Path) -> Path:
    """The path, if it has a run directory; refused with a sentence where it has not."""
    if not path.is_dir():
        raise InputError(f"there is no run directory {path}.")
    if not (path / "config.toml").is_file():
        raise InputError(f"{path} is not a run directory: it has no config.toml.")
    return path


def read_log(run: Path, name: str, limit: int | None = None) -> list[dict[str, Any]]:
    """All lines of one log, each checked; those up to `limit` bytes. A last line that a crash cut short is left out.

    Raises:
        InputError: The log cannot be read, or a line of it is damaged.
    """
    file = run / f"{name}.jsonl"
    try:
        content = read_regular(file, limit)
    except FileNotFoundError as error:
        raise InputError(f"{run} is incomplete: it has no {file.name}.") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from error
    tail = LineTail(file, CHECKS[name])
    records = list(tail.checked(content[: content.rfind(b"\n") + 1]))
    if tail.damage is not None:
        raise InputError(tail.damage)
    return records


def read_history(run: Path, bookmark: Bookmark | None = None) -> list[dict[str, Any]]:
    """A run's rounds; with `bookmark` as its checkpoint knew them.

    Raises:
        InputError: The journal is missing, damaged, or shorter than the checkpoint says.
    """
    if bookmark is not None:
        for name, size in (("journal.jsonl", bookmark.journal_bytes), ("plans.jsonl", bookmark.plans_bytes)):
            file = run / name
            if not file.is_file() or file.stat().st_size < size:
                raise InputError(
                    f"{file} is shorter than its checkpoint says, so the run cannot go on; restore it from a copy."
                )
    history = read_log(run, "journal", None if bookmark is None else bookmark.journal_bytes)
    for before, entry in zip([{"round": 0}, *history], history, strict=False):
        if entry["round"] != before["round"] + 1:
            raise InputError(f"{run / 'journal.jsonl'} is damaged: round {entry['round']} comes after {before['round']}.")
    return history


def read_result(run: Path) -> dict[str, Any] | None:
    """result.json, checked; None where there is none.

    Raises:
        InputError: It is damaged, or of another version of fedgsp.
    """
    found, problem = _result(run)
    if problem is not None:
        raise InputError(problem)
    return found


def _result(run: Path) -> tuple[dict[str, Any] | None, str | None]:
    file = run / "result.json"
    try:
        content = read_regular(file)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"{file} cannot be read: {error.strerror}."
    record, problem = parsed(content)
    odd = problem if record is None else result_problem(record)
    return (record, None) if odd is None else (None, f"{file} cannot be read: it {odd}.")


def latest_checkpoint(run: Path, *, previous: bool = False) -> tuple[ServerState, Bookmark] | None:
    """A run's newest checkpoint (or the one before it), checked; None if the run was stopped before it had one."""
    found = checkpoint.candidates(run / "checkpoint")
    if not found:
        return None
    if previous:
        if len(found) < 2:
            raise InputError(f"{run} has no earlier checkpoint to fall back on.")
        return checkpoint.load(found[1])
    try:
        return checkpoint.load(found[0])
    except checkpoint.DamagedCheckpoint as error:
        raise InputError(f"{error} {_offer(run, found[1:])}") from error


def _offer(run: Path, earlier: list[Path]) -> str:
    for path in earlier:
        with suppress(InputError):
            state, _ = checkpoint.load(path)
            return f"The one before it (round {state.round}) is whole: resume the run with `previous=True`."
    return "No earlier one is whole either."


def is_held(run: Path) -> bool:
    """Whether a process works on a run directory."""
    return holder(run) is not None


def holder(run: Path) -> str | None:
    """The process that holds a run directory, as it is written there; None if nobody does.

    The lock is tried for a moment only, and shared; who starts a run tries more than once (`RunDirectory`).
    """
    try:
        descriptor = os.open(run / ".lock", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return None
