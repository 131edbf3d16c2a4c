from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import digests
from fedgsp.data.digests import digest_of, digest_of_files


def age(path: Path) -> None:
    old = time.time() - 100
    os.utime(path, (old, old))


def test_it_is_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    assert digest_of(tmp_path / "a") == hashlib.sha256(b"hello").hexdigest()


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"hello")
    age(file)
    before = digest_of(file)
    monkeypatch.setattr(digests, "BLOCK", None)  # reading would fail
    assert digest_of(file) == before


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"hello")
    age(file)
    before = digest_of(file)
    file.write_bytes(b"hallo")
    assert digest_of(file) != before


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    """Two writes within the clock's grain look the same: only age makes a stamp trustworthy."""
    file = tmp_path / "a"
    file.write_bytes(b"hello")
    stamp = file.stat().st_mtime_ns
    before = digest_of(file)
    file.write_bytes(b"hallo")
    os.utime(file, ns=(stamp, stamp))
    assert digest_of(file) != before


def test_of_several_names_and_bytes_matter_and_progress_is_told(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"hello")
    told: list[tuple[str, int, int]] = []
    whole = digest_of_files([("a", tmp_path / "a"), ("b", tmp_path / "b")], lambda *step: told.append(step))
    assert told[-1] == ("reading", 10, 10)
    assert whole != digest_of_files([("b", tmp_path / "a"), ("a", tmp_path / "b")])


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nothing: No such file"):
        digest_of(tmp_path / "nothing")
