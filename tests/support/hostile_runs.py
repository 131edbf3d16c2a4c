"""Run directories that somebody made to do harm: links that lead out, names that are paths, pipes, odd configurations."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from tests.support import damage

ESCAPES = ("/../../x", "../x", "..", "/tmp/x", "a/../../../x", "a\\..\\x", "", " x", ".x", "x\0y", "x\n", "\u2025/x", "x" * 300)
VALUES: tuple[Any, ...] = (True, -1, 2**62, 1e308, float("nan"), "text", "../../x", "a:b", [], {}, [[1]], {"kind": "a:b"}, "")


def mutants(run: Path, place: Path, outside: Path, seed: int, count: int) -> Iterator[tuple[str, Path]]:
    """(what was done to it, a copy of `run` made hostile): `count` in all, drawn by a seed from every kind there is."""
    rng = random.Random(seed)
    made = [*_links(run, outside), *_pipes(run), *_names(run), *(_odd_config(run, rng) for _ in range(count))]
    rng.shuffle(made)
    for what, change in made[: count // 2]:
        copy = place / "mutant"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        change(copy)
        yield what, copy
    drawn = list(damage.plans(run, seed, each=count))
    rng.shuffle(drawn)
    yield from damage.copies(run, place, drawn[: count - count // 2])


def tree(place: Path, but: Path) -> dict[str, str]:
    """All files below a folder and what is in them, but for those below `but`."""
    found: dict[str, str] = {}
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if Path(folder, name) != but]
        for name in files:
            path = Path(folder, name)
            content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
            found[str(path)] = hashlib.sha256(content).hexdigest()
    return found


def with_facts(checkpoint: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The checkpoint with other facts in its header, under the name that fits."""
    content = checkpoint.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    facts = json.loads(header["__metadata__"]["fedgsp"])
    change(facts)
    header["__metadata__"]["fedgsp"] = json.dumps(facts)
    return _rewritten(checkpoint, header, content[8 + length :])


def with_model_called(checkpoint: Path, name: str) -> Path:
    """The checkpoint with its model under another name, facts and tensors alike."""
    content = checkpoint.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    facts = json.loads(header["__metadata__"]["fedgsp"])
    facts["models"] = [*facts["models"], name]
    tensors = {key: value for key, value in header.items() if key != "__metadata__"}
    offset = max(value["data_offsets"][1] for value in tensors.values())
    header[f"models|{name}|w"] = {"dtype": "F32", "shape": [1], "data_offsets": [offset, offset + 4]}
    header["__metadata__"]["fedgsp"] = json.dumps(facts)
    return _rewritten(checkpoint, header, content[8 + length :] + b"\0" * 4)


def _rewritten(checkpoint: Path, header: dict[str, Any], body: bytes) -> Path:
    text = json.dumps(header).encode()
    made = len(text).to_bytes(8, "little") + text + body
    target = checkpoint.with_name(f"{checkpoint.name.rsplit('-', 1)[0]}-{hashlib.sha256(made).hexdigest()[:32]}.safetensors")
    checkpoint.unlink()
    target.write_bytes(made)
    return target


def newest(run: Path) -> Path:
    """The newest checkpoint of a run."""
    return max((run / "checkpoint").iterdir())


Change = tuple[str, Callable[[Path], object]]


def _links(run: Path, outside: Path) -> Iterator[Change]:
    names = [*sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()), ".lock", ".trusted"]
    for name in dict.fromkeys(names):
        yield f"{name} is a link", _at(name, partial(_link, target=outside / "victim.txt"))
        yield f"{name} is a dangling link", _at(name, partial(_link, target=outside / "new.txt"))
    for folder in ("checkpoint", "clients"):
        yield f"{folder} is a link", _at(folder, partial(_link, target=outside))
    for file in ("result.json", "config.toml", "journal.jsonl"):
        scratch = f".{file}.{os.getpid()}.tmp"
        yield f"{scratch} is a link", _at(scratch, partial(_link, target=outside / "victim.txt"))


def _at(name: str, change: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda copy: change(copy / name)


def _link(path: Path, target: Path) -> None:
    if path.is_dir():
        for file in path.iterdir():
            if not (target / file.name).exists():
                shutil.copy(file, target / file.name)
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _pipes(run: Path) -> Iterator[Change]:
    logs = ("journal.jsonl", "plans.jsonl", "events.jsonl", "scores.jsonl")
    for name in (*logs, "config.toml", "result.json", "clients.safetensors", ".lock", ".trusted"):
        yield f"{name} is a pipe", _at(name, _pipe)
    yield "the newest checkpoint is a pipe", lambda copy: _pipe(newest(copy))


def _pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _names(run: Path) -> Iterator[Change]:
    for name in ESCAPES:
        yield f"a model called {name[:12]!r}", partial(_model_called, name=name)
        yield f"a client state called {name[:12]!r}", partial(_state_called, name=name)
        yield f"a slot called {name[:12]!r}", partial(_slot_called, name=name)


def _model_called(copy: Path, name: str) -> None:
    with_model_called(newest(copy), name)


def _state_called(copy: Path, name: str) -> None:
    with_facts(newest(copy), lambda facts: facts["kept"].update({"0": name}))


def _slot_called(copy: Path, name: str) -> None:
    with_facts(newest(copy), lambda facts: facts["slots"].append(name))


def _odd_config(run: Path, rng: random.Random) -> Change:
    table = tomllib.loads((run / "config.toml").read_text())
    at, value = table, rng.choice(VALUES)
    way: list[str] = []
    while True:
        way.append(rng.choice(sorted(at)))
        if not isinstance(at[way[-1]], dict) or rng.random() < 0.2:
            break
        at = at[way[-1]]
    at[way[-1]] = value
    return f"config {'.'.join(way)} = {value!r}", lambda copy: (copy / "config.toml").write_text(tomli_w.dumps(table))
