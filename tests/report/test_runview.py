"""Runs are followed as their directories grow, are cut back, and begin anew."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import madeup
import numpy as np
import pytest
import tiny

import fedgsp
from fedgsp.report.discover import find_runs
from fedgsp.report.happenings import held
from fedgsp.report.kinds import kinds_of
from fedgsp.report.labels import group_runs
from fedgsp.report.runview import RunView
from fedgsp.report.tail import LineTail
from fedgsp.report.words import common_target, summary


def view(path: Path) -> RunView:
    made = RunView(path)
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


def test_a_resumed_run_is_seen_as_it_is_after_every_round(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, out=run)
    seen = view(run)
    assert (seen.status, len(seen.entries), len(seen.plans)) == ("finished", 3, 3)
    epoch = seen.epoch
    fedgsp.resume(run, rounds=5, workers=0, data=tiny.federation(), model=tiny.linear)
    seen.read()
    assert [entry["round"] for entry in seen.entries] == [1, 2, 3, 4, 5]
    assert (seen.epoch, sorted(seen.scores)) == (epoch, [1, 2, 3, 4, 5])
    fedgsp.resume(run, rounds=6, workers=0, previous=True, data=tiny.federation(), model=tiny.linear)
    seen.read()
    assert [entry["round"] for entry in seen.entries] == [1, 2, 3, 4, 5, 6]
    assert [plan["round"] for plan in seen.plans] == [1, 2, 3, 4, 5, 6]
    assert seen.epoch != epoch


def test_the_round_under_way_grows_hop_by_hop(tmp_path: Path) -> None:
    run = madeup.write_run(tmp_path / "run", rounds=2, status=None)
    madeup.add_round(run, 3, np.random.default_rng(0), 10, journal=False)
    seen = view(run)
    assert seen.happened.round == 3
    hops = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    expected = [hop["client"] for hop in hops if hop["event"] == "hop" and hop["round"] == 3]
    assert seen.happened.lanes() == [expected]
    assert sorted(seen.happened.costs) == [1, 2]


def test_whether_a_run_is_held_is_seen_without_locking_it(tmp_path: Path) -> None:
    run = madeup.write_run(tmp_path / "run", rounds=1, status=None)
    assert not held(run)
    assert view(run).status == "stopped"
    descriptor = os.open(run / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert held(run)
        assert view(run).status == "running"
    finally:
        os.close(descriptor)
    assert not held(run)


def test_runs_are_found_three_folders_deep_and_each_once(tmp_path: Path) -> None:
    deep = madeup.write_run(tmp_path / "a" / "b" / "run", rounds=1)
    madeup.write_run(tmp_path / "a" / "b" / "c" / "d" / "too-deep", rounds=1)
    hidden = madeup.write_run(tmp_path / ".hidden" / "run", rounds=1)
    assert find_runs([tmp_path, deep]) == [deep]
    assert find_runs([hidden]) == [hidden]


def test_configurations_of_one_name_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    runs = [madeup.write_run(tmp_path / f"{lr}-{seed}", rounds=1, seed=seed) for lr in (1, 3) for seed in (0, 1)]
    for run in runs[2:]:
        text = (run / "config.toml").read_text()
        (run / "config.toml").write_text(text.replace("lr = 0.01", "lr = 0.03"))
    groups = group_runs([view(run) for run in runs])
    assert [(group.label, group.runs) for group in groups] == [("fedgsp (lr 0.01)", (0, 1)), ("fedgsp (lr 0.03)", (2, 3))]


def test_the_summary_reads_its_figures_off_the_runs(tmp_path: Path) -> None:
    views = [
        view(madeup.write_run(tmp_path / m, rounds=12, clients=20, method=m, seed=s))
        for s, m in enumerate(("fedavg", "fedgsp"))
    ]
    groups = group_runs(views)
    said = " ".join(sentence["text"] for sentence in summary(views, groups))
    for run in views:
        final = run.entries[-1]["accuracy"]  # of twelve rounds the last one
        assert f"{run.method} {100 * final:.1f}\u00a0%" in said
    target = common_target(views)
    assert target is not None
    bests = [max(entry["accuracy"] for entry in run.entries) for run in views]
    assert target <= min(bests) < target + 0.05
    first = next(entry for entry in views[0].entries if entry["accuracy"] >= target)
    assert f"fedavg {first['round']} rounds and {first['serial_steps_total']:,} steps" in said
    assert "one seed of each method" in said


def test_kinds_put_alike_clients_together_and_opposite_ones_apart() -> None:
    counts = np.array([[9, 1, 0], [8, 2, 0], [0, 1, 9], [0, 0, 9], [1, 0, 0], [0, 0, 0]], dtype=np.float64)
    found = kinds_of(np.repeat(counts, 3, axis=0))
    assert found.of[0] == found.of[1] != found.of[6]
    assert set(found.of[15:]) == {255}
    assert sum(found.sizes) == 15
    opposite = kinds_of(np.array([[5.0, 0.0]] * 4 + [[0.0, 5.0]] * 2))
    assert opposite.of.tolist() == [0, 0, 0, 0, 1, 1]
    assert opposite.marks == ((0,), (1,))


def test_a_log_of_nonsense_does_not_stop_a_report(tmp_path: Path) -> None:
    run = madeup.write_run(tmp_path / "run", rounds=2)
    with (run / "events.jsonl").open("a") as file:
        file.write('{"event":"hop"}\n[1,2]\nnot json\n{"event":"round","round":"x","chains":[]}\n')
    assert view(run).status == "finished"
