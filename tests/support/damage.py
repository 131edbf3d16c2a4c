"""Mutants of a run directory: every file cut, emptied, of other types or schemas, or of random bytes; always the same."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

LOGS = ("journal.jsonl", "plans.jsonl", "scores.jsonl", "events.jsonl")
ODD: tuple[Any, ...] = (None, True, -1, 10**400, 1e308, "text", "\ud800", [], {}, [[1]], {"a": {"b": 1}}, 2**62)
JUNK = (
    b"",
    b"\n",
    b"\x00" * 64,
    b"\xff\xfe{",
    b"[" * 100_000 + b"\n",
    b"NaN\n",
    b'{"round":Infinity}\n',
    b"[]\n",
    b"1\n",
    b'"x"\n',
)


Plan = tuple[str, Path, Callable[[Path], object]]


def mutants(run: Path, place: Path, seed: int, each: int) -> Iterator[tuple[str, Path]]:
    """(what was done to it, a damaged copy of `run`); `each` random ones of every file beside those that are always made."""
    yield from copies(run, place, plans(run, seed, each))


def plans(run: Path, seed: int, each: int) -> Iterator[Plan]:
    """(what is to be done, to which file, how) for every mutant."""
    rng = random.Random(seed)
    files = [path for path in sorted(run.rglob("*")) if path.is_file() and path.name != ".lock"]
    for file in files:
        for what, change in [*_always(file), *(_by_chance(file, rng) for _ in range(each))]:
            yield what, file.relative_to(run), change


def copies(run: Path, place: Path, planned: Iterable[Plan]) -> Iterator[tuple[str, Path]]:
    """(what was done to it, a damaged copy), one at a time in the same place."""
    for what, name, change in planned:
        copy = place / "mutant"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        change(copy / name)
        yield f"{name}: {what}", copy


def _always(file: Path) -> list[tuple[str, Callable[[Path], object]]]:
    made: list[tuple[str, Callable[[Path], object]]] = [
        ("gone", Path.unlink),
        ("a folder", _to_folder),
        *((f"junk {junk[:8]!r}", lambda path, junk=junk: path.write_bytes(junk)) for junk in JUNK),
    ]
    if file.name in LOGS:
        made.append(("all lines twice", lambda path: path.write_bytes(2 * path.read_bytes())))
    return made


def _to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _by_chance(file: Path, rng: random.Random) -> tuple[str, Callable[[Path], object]]:
    content = file.read_bytes()
    if file.name in LOGS and rng.random() < 0.8:
        return _odd_line(content, rng)
    if file.name == "result.json" and rng.random() < 0.8:
        facts, value = json.loads(content), rng.choice(ODD)
        at = _set_somewhere(facts, value, rng)
        return f"{at} = {str(value)[:20]!r}", lambda path: path.write_text(json.dumps(facts))
    if file.suffix == ".safetensors" and rng.random() < 0.8:
        return _odd_header(file.name, content, rng)
    if rng.random() < 0.5:
        cut = rng.randrange(len(content))
        return f"cut at {cut}", lambda path: path.write_bytes(content[:cut])
    begin, noise = rng.randrange(len(content)), rng.randbytes(rng.randrange(1, 40))
    return f"noise at {begin}", lambda path: path.write_bytes(content[:begin] + noise + content[begin + len(noise) :])


def _odd_line(content: bytes, rng: random.Random) -> tuple[str, Callable[[Path], object]]:
    lines = content.split(b"\n")[:-1]
    at = rng.randrange(len(lines))
    what = rng.choice(("value", "value", "value", "missing", "cut", "twice", "gone", "key"))
    record = json.loads(lines[at])
    if what == "value":
        what = f"value of {_set_somewhere(record, rng.choice(ODD), rng)}"
        lines[at] = json.dumps(record).encode()
    elif what == "missing":
        record.pop(key := rng.choice(sorted(record)))
        what = f"{key} missing"
        lines[at] = json.dumps(record).encode()
    elif what == "key":
        lines[at] = json.dumps({**record, "other": rng.choice(ODD)}).encode()
    elif what == "cut":
        lines[at] = lines[at][: rng.randrange(len(lines[at]))]
    elif what == "twice":
        lines.insert(at, lines[at])
    else:
        del lines[at]
    return f"line {at}, {what}", lambda path: path.write_bytes(b"".join(line + b"\n" for line in lines))


def _set_somewhere(table: Any, value: Any, rng: random.Random) -> list[Any]:
    """Put a value at a random place of nested tables and lists; the way there."""
    places: list[Any] = sorted(table) if isinstance(table, dict) else list(range(len(table)))
    at = rng.choice(places)
    inner = table[at]
    if isinstance(inner, (dict, list)) and inner and rng.random() < 0.7:
        return [at, *_set_somewhere(inner, value, rng)]
    table[at] = value
    return [at]


def _odd_header(name: str, content: bytes, rng: random.Random) -> tuple[str, Callable[[Path], object]]:
    """A safetensors file of ours whose facts are others; a checkpoint's checksum, which is in its name, is made to fit."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    told = json.loads(header["__metadata__"]["fedgsp"]) if "fedgsp" in header.get("__metadata__", {}) else {}
    what = "other tensors"
    if told and rng.random() < 0.7:
        value = rng.choice(ODD)
        at = _set_somewhere(told, value, rng) if rng.random() < 0.7 else [told.pop(rng.choice(sorted(told)), None)]
        header["__metadata__"]["fedgsp"] = json.dumps(told)
        what = f"{at} = {str(value)[:20]!r}"
    else:
        header.pop(rng.choice([key for key in header if key != "__metadata__"]))
    text = json.dumps(header).encode()
    made = len(text).to_bytes(8, "little") + text + content[8 + length :]

    def change(path: Path) -> None:
        path.unlink()
        stem = path.name.rsplit("-", 1)[0]
        fit = hashlib.sha256(made).hexdigest()[:32]
        target = path.with_name(f"{stem}-{fit}.safetensors") if name.startswith("round-") else path
        target.write_bytes(made)

    return what, change
