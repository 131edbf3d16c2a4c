from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import cache_admin
from fedgsp.data.cache import get_or_build, locked, save_array
from fedgsp.data.readers.leaf import load_leaf
from tests.support.data_files import write_leaf

pytestmark = pytest.mark.timing


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build(folder: Path) -> dict[str, Any]:
    save_array(folder, "numbers", np.zeros(1000))
    return {"kind": "test", "samples": 7}


def test_an_empty_cache() -> None:
    assert cache_admin.items() == []
    assert cache_admin.clear() == (0, [])


def test_entries_are_shown_with_their_sizes(root: Path) -> None:
    get_or_build("a", build)
    (root / "b").mkdir()
    (root / ".building-c").mkdir()
    (root / ".trash-d").mkdir()
    assert [(item.key, item.state) for item in cache_admin.items()] == [
        (".building-c", "unfinished"), (".trash-d", "rubbish"), ("a", "whole"), ("b", "damaged"),
    ]  # fmt: skip
    entry = cache_admin.items()[2]
    assert entry.size > 8000
    assert entry.as_dict()["samples"] == 7


def test_clearing_by_key_by_its_beginning_and_everything(root: Path) -> None:
    for key in ("leaf-1", "leaf-2", "npz-1", "npz-2"):
        get_or_build(key, build)
    with pytest.raises(InputError, match="'leaf' fits 2 entries"):
        cache_admin.clear(["leaf"])
    with pytest.raises(InputError, match="'csv' fits nothing"):
        cache_admin.clear(["csv"])
    freed, _ = cache_admin.clear(["leaf-1"])
    assert freed > 8000
    assert [item.key for item in cache_admin.items()] == ["leaf-2", "npz-1", "npz-2"]
    (root / ".building-x").mkdir()
    cache_admin.clear()
    assert cache_admin.items() == []


def test_what_is_being_built_stays(root: Path) -> None:
    (root / ".building-a").mkdir(parents=True)
    (root / f".building-b-{os.getpid()}-xyz").mkdir()
    with locked(root, "a"):
        assert cache_admin.clear()[1] == [".building-a", f".building-b-{os.getpid()}-xyz"]
    assert cache_admin.clear()[1] == [f".building-b-{os.getpid()}-xyz"]


def test_an_entry_in_use_stays_readable() -> None:
    numbers = get_or_build("a", build).array("numbers")
    cache_admin.clear()
    assert numbers.sum() == 0


SLOW = """
import signal, sys, time
from fedgsp.data.readers import leaf_convert
real = leaf_convert._Conversion.read
begun = 0
def slowly(self, shard, tick):
    global begun
    begun += 1
    print("shard", flush=True)
    if begun == int(sys.argv[3]):
        signal.pause()
    time.sleep(float(sys.argv[2]))
    real(self, shard, tick)
leaf_convert._Conversion.read = slowly
from fedgsp.data.readers.leaf import load_leaf
print(load_leaf(sys.argv[1]).fingerprint, flush=True)
"""


def start(folder: Path, seconds: float = 0.0, waits_at: int = 0) -> subprocess.Popen[str]:
    """A process that converts, each shard after some seconds; at one of them it waits for ever."""
    command = [sys.executable, "-c", SLOW, str(folder), str(seconds), str(waits_at)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_processes_at_once_convert_once(tmp_path: Path) -> None:
    folder = write_leaf(tmp_path / "leaf", sizes=(5,) * 6)
    both = [start(folder, 0.3) for _ in range(2)]
    said = [process.communicate(timeout=600)[0].split() for process in both]
    assert sorted(words.count("shard") for words in said) == [0, 6]
    assert said[0][-1] == said[1][-1]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("shards", [1, 2, 4, 6])
def test_after_a_kill_the_next_one_goes_on(tmp_path: Path, shards: int, root: Path) -> None:
    folder = write_leaf(tmp_path / "leaf", sizes=(5,) * 6)
    process = start(folder, waits_at=shards)
    assert process.stdout is not None
    for _ in range(shards):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not any(item.state == "whole" for item in cache_admin.items())
    again = start(folder).communicate(timeout=600)[0].split()
    assert again.count("shard") == 6 - (shards - 1)
    cache_admin.clear()
    assert again[-1] == load_leaf(str(folder)).fingerprint
    assert [item.state for item in cache_admin.items()] == ["whole"]
