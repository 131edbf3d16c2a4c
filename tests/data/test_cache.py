from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp.core.cache_folder import cache_root
from fedgsp.core.errors import InputError
from fedgsp.data.cache import Entry, get_or_build, save_array


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Builder:
    """Writes one array and counts how often it was asked to."""

    def __init__(self, value: int = 1) -> None:
        self.value, self.calls = value, 0

    def __call__(self, folder: Path) -> dict[str, Any]:
        self.calls += 1
        save_array(folder, "numbers", np.full(1000, self.value))
        return {"note": self.value}


def entries(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name != ".locks")


def value_of(entry: Entry) -> int:
    numbers = entry.array("numbers")
    assert (numbers == numbers[0]).all()
    return int(numbers[0])


def test_an_entry_is_built_once_and_memory_mapped(root: Path) -> None:
    build = Builder()
    first, second = get_or_build("k", build), get_or_build("k", build)
    assert build.calls == 1
    assert value_of(first) == value_of(second) == 1
    assert first.meta["note"] == second.meta["note"] == 1
    assert isinstance(second.array("numbers"), np.memmap)
    assert entries(root) == ["k"]


def test_a_mapped_array_cannot_be_written() -> None:
    entry = get_or_build("k", Builder())
    with pytest.raises(ValueError, match="read-only"):
        entry.array("numbers")[0] = 2


def test_a_builder_that_fails_leaves_nothing(root: Path) -> None:
    def fails(folder: Path) -> dict[str, Any]:
        save_array(folder, "numbers", np.zeros(3))
        raise InputError("no such data.")

    with pytest.raises(InputError, match="no such data"):
        get_or_build("k", fails)
    assert entries(root) == []
    assert value_of(get_or_build("k", Builder(2))) == 2


def damage_meta(entry: Path) -> None:
    (entry / "meta.json").write_text("{ half")


def lose_meta(entry: Path) -> None:
    (entry / "meta.json").unlink()


def age(entry: Path) -> None:
    meta = json.loads((entry / "meta.json").read_text())
    (entry / "meta.json").write_text(json.dumps({**meta, "schema": -1}))


def cut_array(entry: Path) -> None:
    array = entry / "numbers.npy"
    array.write_bytes(array.read_bytes()[:-8])


def lose_array(entry: Path) -> None:
    (entry / "numbers.npy").unlink()


@pytest.mark.parametrize("harm", [damage_meta, lose_meta, age, cut_array, lose_array])
def test_a_damaged_or_old_entry_is_built_again(harm: Any, root: Path) -> None:
    get_or_build("k", Builder(1))
    harm(root / "k")
    assert value_of(get_or_build("k", Builder(2))) == 2
    assert entries(root) == ["k"]


def test_whoever_finishes_first_wins_and_the_winner_is_not_pulled_away(root: Path) -> None:
    """A process that was slower must not replace an entry that another one may already be reading."""
    winner: list[Entry] = []

    def slow(folder: Path) -> dict[str, Any]:
        winner.append(get_or_build("k", Builder(1)))  # the other process begins and ends meanwhile
        return Builder(2)(folder)

    loser = get_or_build("k", slow)
    assert value_of(loser) == value_of(winner[0]) == 1
    assert loser.meta["note"] == 1
    assert entries(root) == ["k"]


def test_many_builders_at_once_end_up_with_one_whole_entry(root: Path) -> None:
    together = threading.Barrier(6)
    found: list[int] = []

    def work(value: int) -> None:
        def build(folder: Path) -> dict[str, Any]:
            together.wait(timeout=300)
            return Builder(value)(folder)

        found.append(value_of(get_or_build("k", build)))

    threads = [threading.Thread(target=work, args=(value,)) for value in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert len(found) == 6
    assert len(set(found)) == 1
    assert entries(root) == ["k"]


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InputError, match=r"cannot write the data cache .*; set FEDGSP_CACHE to a folder you may write\.$"):
        get_or_build("k", Builder())


def test_a_disk_that_fills_up_is_one_sentence(root: Path) -> None:
    def full(folder: Path) -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"cannot write the data cache .*: No space left on device\.$"):
        get_or_build("k", full)
    assert entries(root) == []


@pytest.mark.skipif(sys.platform != "linux", reason="each system has a place of its own")
def test_where_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDGSP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "fedgsp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "fedgsp"
