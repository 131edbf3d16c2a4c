"""Runs are followed as their directories grow, are cut back, and begin anew."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import fedgsp
from fedgsp.report.client_clusters import kinds_of
from fedgsp.report.labels import group_runs
from fedgsp.report.narrative import common_target, summary
from fedgsp.report.runview import RunView
from tests.support import fake_runs, tiny


def view(path: Path) -> RunView:
    made = RunView(path)
    made.read()
    return made


def test_a_resumed_run_is_seen_as_it_is_after_every_round(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fedgsp.train(tiny.chains(), tiny.federation(), tiny.linear, rounds=3, workers=0, out=run)
    seen = view(run)
    assert (seen.status, len(seen.history), len(seen.plans)) == ("finished", 3, 3)
    epoch = seen.epoch
    fedgsp.resume(run, rounds=5, workers=0, data=tiny.federation(), model=tiny.linear)
    seen.read()
    assert [entry["round"] for entry in seen.history] == [1, 2, 3, 4, 5]
    assert (seen.epoch, sorted(seen.scores)) == (epoch, [1, 2, 3, 4, 5])
    fedgsp.resume(run, rounds=6, workers=0, previous=True, data=tiny.federation(), model=tiny.linear)
    seen.read()
    assert [entry["round"] for entry in seen.history] == [1, 2, 3, 4, 5, 6]
    assert [plan["round"] for plan in seen.plans] == [1, 2, 3, 4, 5, 6]
    assert seen.epoch != epoch


def test_the_round_under_way_grows_hop_by_hop(tmp_path: Path) -> None:
    run = fake_runs.write_run(tmp_path / "run", rounds=2, status=None)
    fake_runs.add_round(run, 3, np.random.default_rng(0), 10, history=False)
    seen = view(run)
    assert seen.events.round == 3
    hops = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    expected = [hop["client"] for hop in hops if hop["event"] == "hop" and hop["round"] == 3]
    assert seen.events.lanes() == [expected]
    assert sorted(seen.events.costs) == [1, 2]


def test_configurations_of_one_name_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    runs = [fake_runs.write_run(tmp_path / f"{lr}-{seed}", rounds=1, seed=seed) for lr in (1, 3) for seed in (0, 1)]
    for run in runs[2:]:
        text = (run / "config.toml").read_text()
        (run / "config.toml").write_text(text.replace("lr = 0.01", "lr = 0.03"))
    groups = group_runs([view(run) for run in runs])
    assert [(group.label, group.runs) for group in groups] == [("fedgsp (lr 0.01)", (0, 1)), ("fedgsp (lr 0.03)", (2, 3))]


def test_the_summary_reads_its_figures_off_the_runs(tmp_path: Path) -> None:
    views = [
        view(fake_runs.write_run(tmp_path / m, rounds=12, clients=20, method=m, seed=s))
        for s, m in enumerate(("fedavg", "fedgsp"))
    ]
    groups = group_runs(views)
    said = " ".join(sentence["text"] for sentence in summary(views, groups))
    for run in views:
        final = run.history[-1]["accuracy"]  # of twelve rounds the last one
        assert f"{run.method} {100 * final:.1f}\u00a0%" in said
    target = common_target(views)
    assert target is not None
    bests = [max(entry["accuracy"] for entry in run.history) for run in views]
    assert target <= min(bests) < target + 0.05
    first = next(entry for entry in views[0].history if entry["accuracy"] >= target)
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
