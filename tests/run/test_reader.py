"""Run directories are read as they grow, are cut back, are held and are damaged."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from fedgsp.core.errors import InputError
from fedgsp.run.directory import RunDirectory
from fedgsp.run.discover import find_runs
from fedgsp.run.reader import LineTail, RunReader, is_held, read_history, read_log, read_result
from tests.support import fake_runs


def view(path: Path) -> RunReader:
    made = RunReader(path)
    made.read()
    return made


def test_a_tail_gives_each_whole_line_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = LineTail(log)
    assert tail.read() == (False, [])
    log.write_text('{"a":1}\n{"a":2')
    assert tail.read() == (False, [{"a": 1}])
    log.write_text('{"a":1}\n{"a":2}\n')
    assert tail.read() == (False, [{"a": 2}])
    assert tail.read() == (False, [])


@pytest.mark.parametrize("after", ['{"a":1}\n{"b":9}\n', '{"a":1}\n{"b":9}\n{"c":3}\n{"d":4}\n', ""])
def test_a_tail_notices_a_log_that_was_cut_back_however_long_it_is_now(tmp_path: Path, after: str) -> None:
    log = tmp_path / "log"
    log.write_text('{"a":1}\n{"a":2}\n{"a":3}\n')
    tail = LineTail(log)
    tail.read()
    log.write_text(after)
    void, lines = tail.read()
    assert void
    assert lines == [json.loads(line) for line in after.splitlines()]


def test_a_tail_of_a_log_that_is_gone_is_void(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"a":1}\n')
    tail = LineTail(log)
    tail.read()
    log.unlink()
    assert tail.read() == (True, [])


def test_whether_a_run_is_held(tmp_path: Path) -> None:
    run = fake_runs.write_run(tmp_path / "run", rounds=1, status=None)
    assert not is_held(run)
    assert view(run).status == "stopped"
    descriptor = os.open(run / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert is_held(run)
        assert view(run).status == "running"
    finally:
        os.close(descriptor)
    assert not is_held(run)


def test_runs_are_found_three_folders_deep_and_each_once(tmp_path: Path) -> None:
    deep = fake_runs.write_run(tmp_path / "a" / "b" / "run", rounds=1)
    fake_runs.write_run(tmp_path / "a" / "b" / "c" / "d" / "too-deep", rounds=1)
    hidden = fake_runs.write_run(tmp_path / ".hidden" / "run", rounds=1)
    assert find_runs([tmp_path, deep]) == [deep]
    assert find_runs([hidden]) == [hidden]


def test_a_log_of_nonsense_does_not_stop_a_report(tmp_path: Path) -> None:
    run = fake_runs.write_run(tmp_path / "run", rounds=2)
    with (run / "events.jsonl").open("a") as file:
        file.write('{"event":"hop"}\n[1,2]\nnot json\n{"event":"round","round":"x","chains":[]}\n')
    seen = view(run)
    assert (seen.status, seen.events.last, len(seen.history)) == ("damaged", "finished", 2)
    assert seen.damage == [
        f"{run / 'events.jsonl'} is damaged: line {seen.events.kinds.total() + 1} has no 'round' (4 lines are damaged)."
    ]


def test_those_who_look_never_keep_a_run_from_starting(tmp_path: Path) -> None:
    run = fake_runs.write_run(tmp_path / "run", rounds=1, status=None)
    (run / ".lock").touch()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            is_held(run)

    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(30):
            RunDirectory.open(run).close()
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()


def test_whoever_needs_a_file_whole_is_told_what_is_wrong_with_it(tmp_path: Path) -> None:
    run = fake_runs.write_run(tmp_path / "run", rounds=3)
    assert [entry["round"] for entry in read_history(run)] == [1, 2, 3]
    assert read_result(run) is None
    lines = (run / "journal.jsonl").read_text().splitlines(keepends=True)
    (run / "journal.jsonl").write_text(lines[0] + lines[2])
    with pytest.raises(InputError, match=r"journal\.jsonl is damaged: round 3 comes after 1\."):
        read_history(run)
    (run / "journal.jsonl").write_text(lines[0] + "{}\n" + "nothing\n")
    with pytest.raises(InputError, match=r"journal\.jsonl is damaged: line 2 has no 'round' \(2 lines are damaged\)\."):
        read_history(run)
    (run / "events.jsonl").unlink()
    with pytest.raises(InputError, match=r"is incomplete: it has no events\.jsonl"):
        read_log(run, "events")
    (run / "result.json").write_text('{"schema": 2, "status": "finished"}')
    with pytest.raises(InputError, match=r"result\.json cannot be read: it has no 'rounds'\."):
        read_result(run)
