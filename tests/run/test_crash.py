"""A run that is stopped at any instant loses nothing: every single write is made to fail, or to be cut short, in turn."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.core.errors import FedgspError
from tests.support import tiny
from tests.support.failing_writes import Killed, NthWrite, outcome

ROUNDS = 3


def run(out: Path, **options: Any) -> fedgsp.RunResult:
    return fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=ROUNDS, workers=0, out=out, seed=3, **options)


def resume(out: Path, **options: Any) -> fedgsp.RunResult:
    return fedgsp.resume(out, data=tiny.federation(), model=tiny.linear, **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    run(out)
    return outcome(out)


@pytest.mark.parametrize("part", [False, True], ids=["nothing written", "cut short"])
def test_killed_at_every_write_in_turn(tmp_path: Path, undisturbed: dict[str, bytes], part: bool) -> None:
    count, hit = 0, True
    while hit:
        out = tmp_path / f"{count}"
        with pytest.MonkeyPatch.context() as patch:
            writes = NthWrite(patch, count, Killed, part)
            with suppress(Killed):
                run(out)
            hit = writes.hit
        finish(out)
        assert outcome(out) == undisturbed, f"killed at write {count}"
        count += 1
    assert count > 30  # there were many instants to be killed at


def finish(out: Path) -> None:
    """Resume, or start again where the run was killed before it had written its configuration."""
    if (out / "config.toml").exists():
        resume(out)
    else:
        run(out)


def refusal(out: Path) -> str:
    """What the run says when it cannot write; nothing if it could."""
    try:
        run(out)
    except FedgspError as error:
        return str(error)
    return ""


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_at_every_write_in_turn(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    count, hit = 0, True
    while hit:
        out = tmp_path / f"{count}"
        with pytest.MonkeyPatch.context() as patch:
            writes = NthWrite(patch, count, full, part=True)
            sentence = refusal(out)
            hit = writes.hit
        assert ("the disk is full" in sentence and "free some space" in sentence) == hit, sentence
        finish(out)
        assert outcome(out) == undisturbed, f"full at write {count}"
        count += 1


def test_killed_again_and_again_while_resuming(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    out = tmp_path / "run"
    for count in (9, 14, 11, 13, 12):
        with pytest.MonkeyPatch.context() as patch:
            NthWrite(patch, count, Killed, part=True)
            try:
                resume(out) if (out / "config.toml").exists() else run(out)
            except Killed:
                continue
    resume(out)
    assert outcome(out) == undisturbed


def test_no_scratch_file_is_left_behind(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        NthWrite(patch, 20, Killed, part=True)
        with pytest.raises(Killed):
            run(out)
    resume(out)
    assert not [path for path in out.rglob(".*") if path.name not in (".lock", ".trusted")]


def test_a_read_only_place_is_refused_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(fedgsp.InputError, match="cannot create the run directory"):
        run(tmp_path / "run")
