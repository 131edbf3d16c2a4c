"""Which run directories are meant: a run, or a folder (of a study, say) with runs inside."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedgsp.core.errors import InputError

DEEPEST = 3
MOST_RUNS = 200


def is_run(path: Path) -> bool:
    """A run directory has a configuration and a plan or journal beside it."""
    return (path / "config.toml").is_file() and ((path / "plans.jsonl").exists() or (path / "journal.jsonl").exists())


def find_runs(places: Iterable[Path]) -> list[Path]:
    """All run directories that are meant by some places, each once, in a steady order."""
    found: dict[Path, Path] = {}
    for place in places:
        if not place.is_dir():
            raise InputError(f"{place} is not a directory; give the directory of a run, or one that has runs inside.")
        for run in _inside(place, DEEPEST):
            found.setdefault(run.resolve(), run)
    if len(found) > MOST_RUNS:
        raise InputError(f"{len(found)} runs are too many for one page; give fewer than {MOST_RUNS + 1}.")
    return list(found.values())


def need_runs(places: list[Path]) -> list[Path]:
    """The same, refused with a sentence where there is none."""
    found = find_runs(places)
    if not found:
        raise InputError(
            f"there is no run in {', '.join(map(str, places))}; a run directory has a config.toml and a plans.jsonl."
        )
    return found


def _inside(place: Path, depth: int) -> Iterator[Path]:
    if is_run(place):
        yield place
        return
    if depth == 0:
        return
    with os.scandir(place) as entries:
        folders = sorted(
            entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        )
    for name in folders:
        yield from _inside(place / name, depth - 1)
