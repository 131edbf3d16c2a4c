"""LEAF shards into a cache entry: streamed, checked against their own counts, and resumable shard by shard."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.files import replace_whole
from fedgsp.data.cache import Progress, within
from fedgsp.data.readers.encoding import Encoding
from fedgsp.data.readers.entry_writer import SPLITS, TEST, TRAIN, UNSPLIT, EntryWriter
from fedgsp.data.readers.json_stream import JsonStream

Encoder = Callable[[list[Any], list[Any]], tuple[Any, Any]]
"""A client's raw `x` and `y` lists -> (features (n, ...), labels (n,)), arrays of numbers."""

BLOCK_ROWS = 512
STATE = "state.json"


@dataclass(frozen=True)
class LeafFile:
    """One JSON file: the part it belongs to and its name within the data set."""

    part: int
    name: str
    path: Path


def convert(
    shards: Sequence[LeafFile], folder: Path, sidecar: dict[str, Any], encoder: Encoder | None, progress: Progress
) -> dict[str, Any]:
    """Read all shards into `folder`, going on after those that a killed predecessor finished; the entry's metadata."""
    work = _Conversion(folder, sidecar, encoder)
    sizes = [shard.path.stat().st_size for shard in shards]
    total, before = sum(sizes), 0
    for shard, size in zip(shards, sizes, strict=True):
        if shard.name not in work.done:
            work.read(shard, within(progress, "converting", before, total))
            work.checkpoint(shard)
        before += size
        progress("converting", before, total)
    (folder / STATE).unlink(missing_ok=True)
    where = str(shards[0].path.parent if shards[0].part == UNSPLIT else shards[0].path.parent.parent)
    meta = work.writer.finish(where, unmatched=work.unmatched())
    if sidecar:
        meta.update(classes=sidecar["classes"] if sidecar["classes"] else 0, divisor=sidecar["divisor"])
    return meta


class _Conversion:
    """The state of one conversion."""

    def __init__(self, folder: Path, sidecar: dict[str, Any], encoder: Encoder | None) -> None:
        self._folder, self._encoder = folder, encoder
        self._exact = np.dtype(sidecar["dtype"]) if sidecar else None
        state = self._left_over(folder)
        self.done: list[str] = state.get("done", [])
        self.seen: dict[str, dict[str, str]] = state.get("seen", {})
        try:
            self.writer = EntryWriter(folder, self._encoding(sidecar), state.get("writer"))
        except (OSError, ValueError, KeyError, TypeError):  # what was left is not usable: start anew
            shutil.rmtree(folder)
            folder.mkdir()
            self.done, self.seen = [], {}
            self.writer = EntryWriter(folder, self._encoding(sidecar))

    def _encoding(self, sidecar: dict[str, Any]) -> Encoding:
        if self._encoder is not None:
            return Encoding("as is")
        if self._exact is None:
            return Encoding("text")
        pixels = self._exact == np.uint8 and sidecar["divisor"] == 255.0
        return Encoding("pixels") if pixels else Encoding(self._exact.name, sidecar["divisor"])

    def read(self, shard: LeafFile, tick: Callable[[int], None]) -> None:
        """Stream one shard."""
        try:
            file = shard.path.open("rb")
        except OSError as error:
            raise InputError(f"cannot read {shard.path}: {error.strerror}.") from error
        users: Any = None
        counts: Any = None
        found: dict[str, int] | None = None
        with file:
            stream = JsonStream(shard.path, file, tick)
            for key in stream.members():
                if key == "users":
                    users = stream.value()
                elif key == "num_samples":
                    counts = stream.value()
                elif key == "user_data":
                    if found is not None:
                        raise InputError(f"{shard.path}: 'user_data' is there twice.")
                    found = {user: self._read_user(stream, user, shard) for user in stream.members()}
                else:
                    stream.skip()
            stream.finish()
        _check_counts(shard.path, users, counts, found)

    def _read_user(self, stream: JsonStream, user: str, shard: LeafFile) -> int:
        where = f"{shard.path}: client '{user}'"
        seen = self.seen.setdefault(SPLITS[shard.part], {})
        if user in seen:
            again = "twice" if seen[user] == shard.name else f"also in {seen[user]}"
            raise InputError(f"{where} is there {again}; a client must be in one file only.")
        seen[user] = shard.name
        if not stream.at_object():
            raise InputError(f"{where}: an object with x and y is expected.")
        x: list[Any] | None = [] if self._encoder else None
        y: NDArray[Any] | list[Any] | None = None
        fields = set()
        for field in stream.members():
            if field in fields:
                raise InputError(f"{where}: '{field}' is there twice.")
            fields.add(field)
            if field == "x":
                self._read_x(stream, where, x)
            elif field == "y":
                y = stream.value() if self._encoder else labels_of(stream.value(), where)
            else:
                stream.skip()
        if not {"x", "y"} <= fields or y is None:
            raise InputError(f"{where} has no '{'x' if 'x' not in fields else 'y'}'.")
        if x is not None and self._encoder is not None:
            self._encode(self._encoder, x, y, where)
        else:
            self.writer.add_labels(np.asarray(y), f"{where}, y")
        return self.writer.assign_client(user, shard.part, where)

    def _read_x(self, stream: JsonStream, where: str, collected: list[Any] | None) -> None:
        if not stream.at_array():
            raise InputError(f"{where}, x: a list of samples is expected.")
        rows: list[Any] = []
        begin = 0
        for _ in stream.items():
            if collected is not None:
                collected.append(stream.sample())
                continue
            rows.append(stream.sample())
            if len(rows) == BLOCK_ROWS:
                self._flush(rows, begin, where)
                begin += len(rows)
                rows = []
        if rows:
            self._flush(rows, begin, where)

    def _flush(self, rows: list[Any], begin: int, where: str) -> None:
        if self._exact is None:
            self.writer.add_features(block_of(rows, begin, where), f"{where}, x")
            return
        pixels = self.writer.encoding.kind == "pixels"
        try:
            block = np.array(rows, dtype=np.float64 if pixels else self._exact)
        except (ValueError, TypeError, OverflowError):
            raise InputError(f"{where}, x: samples do not fit {self._exact.name} of one shape.") from None
        self.writer.add_features(block, f"{where}, x")

    def _encode(self, encoder: Encoder, x: list[Any], y: Any, where: str) -> None:
        try:
            features, labels = encoder(x, y)
            made, classes = np.asarray(features), np.asarray(labels)
        except Exception as error:
            raise InputError(f"{where}: the encoder failed: {type(error).__name__}: {error}.") from error
        self.writer.add_features(made, f"{where}, x (encoded)")
        self.writer.add_labels(classes, f"{where}, y (encoded)")

    def checkpoint(self, shard: LeafFile) -> None:
        """Make everything so far durable: after a kill the next process goes on behind this shard."""
        self.done.append(shard.name)
        state = {"done": self.done, "seen": self.seen, "writer": self.writer.state()}
        replace_whole(self._folder / STATE, json.dumps(state).encode())

    def unmatched(self) -> list[list[str]]:
        """[client, part, file] of those that are in train/ or in test/ only."""
        train, test = (self.seen.get(SPLITS[part], {}) for part in (TRAIN, TEST))
        if not train and not test:
            return []
        odd = [[user, "train", file] for user, file in train.items() if user not in test]
        return odd + [[user, "test", file] for user, file in test.items() if user not in train]

    @staticmethod
    def _left_over(folder: Path) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            state = json.loads((folder / STATE).read_text(encoding="utf-8"))
            if isinstance(state, dict):
                return state
        return {}


def _check_counts(path: Path, users: Any, counts: Any, found: dict[str, int] | None) -> None:
    """A shard says its users and their numbers of samples twice; damage shows in the difference."""
    if found is None:
        raise InputError(f"{path} has no 'user_data': it is not a LEAF file.")
    if users is None:
        return
    if not isinstance(users, list) or not all(isinstance(user, str) for user in users):
        raise InputError(f"{path}: 'users' is not a list of names.")
    odd = next((user for user in users if user not in found), None) or next((u for u in found if u not in set(users)), None)
    if odd is not None:
        place = "'users' but not in 'user_data'" if odd not in found else "'user_data' but not in 'users'"
        raise InputError(f"{path}: client '{odd}' is in {place}.")
    if counts is None:
        return
    if not isinstance(counts, list) or len(counts) != len(users):
        raise InputError(f"{path}: 'num_samples' does not have one number for each of the {len(users)} users.")
    for user, count in zip(users, counts, strict=True):
        if count != found[user]:
            raise InputError(f"{path}: client '{user}' has {found[user]} samples, but num_samples says {count}.")


def block_of(rows: Sequence[Any], begin: int, where: str) -> NDArray[Any]:
    """Samples (n, ...) as one array; `begin` is the number of the first, for complaints."""
    with suppress(ValueError, OverflowError):
        block = np.array(rows)
        if block.dtype == np.float64 and block.ndim > 1:  # all is well; else look at each
            return block
    first: tuple[int, ...] | None = None
    made = []
    for offset, row in enumerate(rows):
        values = _numbers(row, f"{where}, x[{begin + offset}]")
        first = values.shape if first is None else first
        if values.shape != first:
            raise InputError(f"{where}, x[{begin + offset}]: samples of unequal shape: {values.shape} here, {first} before.")
        made.append(values)
    return np.stack(made)


def labels_of(values: Any, where: str) -> NDArray[Any]:
    """The labels of one client: whole numbers, real numbers, or texts."""
    if not isinstance(values, list):
        raise InputError(f"{where}, y: a list of labels is expected.")
    if not values:
        return np.empty(0, dtype=np.int64)
    if any(isinstance(value, bool) or value is None for value in values):
        raise InputError(f"{where}, y: a label is neither a number nor a text.")
    if all(isinstance(value, str) for value in values):
        return np.array(values, dtype=np.str_)
    return _numbers(values, f"{where}, y")


def _numbers(row: Any, where: str) -> NDArray[Any]:
    if isinstance(row, str):
        raise InputError(f"{where} is a text; turn it into numbers with encoder=your.module:function (see docs/data.md).")
    try:
        values = np.asarray(row)
    except (ValueError, OverflowError):
        raise InputError(f"{where}: numbers of unequal shape.") from None
    if values.dtype.kind in "US":
        raise InputError(f"{where} holds texts; turn them into numbers with encoder=your.module:function (see docs/data.md).")
    if values.dtype.kind == "b":
        return values.astype(np.float64)
    if values.dtype.kind == "u":
        raise InputError(f"{where}: a whole number is too large.")
    if values.dtype.kind not in "if":
        raise InputError(f"{where} is not made of numbers.")
    return values.reshape(1) if values.ndim == 0 else values
