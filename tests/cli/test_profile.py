"""`fedgsp run --profile`, by the real command line."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support import tiny


@pytest.mark.parametrize("workers", [0, 2])
def test_it_says_where_the_time_went_and_leaves_a_trace(tmp_path: Path, workers: int) -> None:
    data = tiny.write_npz(tmp_path / "data.npz")
    out = tmp_path / "run"
    done = tiny.cli(
        "run", "--data", f"npz:{data}", "--model", tiny.LINEAR, "--rounds", "4", "--workers", str(workers), "--profile",
        "--set", "method.planner.growth.beta=3", "--set", "method.planner.kappa=1.0", "--out", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Where the time went" in done.stdout
    assert str(out / "trace.json") in done.stdout.replace("\n", "")
    profile = json.loads((out / "profile.json").read_text())
    assert [row["round"] for row in profile["rounds"]] == [1, 2, 3, 4]
    for row in profile["rounds"]:
        assert len(row["idle"]) == max(1, workers)
        assert all(0 <= share <= 1 for share in row["idle"])
        assert 0 <= row["aggregate"] <= row["seconds"]
    assert profile["totals"]["seconds"] == pytest.approx(sum(row["seconds"] for row in profile["rounds"]), abs=0.01)
    assert sum(row["train"] for row in profile["rounds"]) <= profile["totals"]["seconds"] + 0.01
    events = json.loads((out / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {"train", "evaluate"} <= {span["cat"] for span in spans}
    assert all(span["dur"] >= 0 and span["ts"] >= 0 for span in spans)
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} >= {"server", "worker 0"}
    by_worker: dict[int, list[tuple[int, int]]] = {}
    for span in spans:
        by_worker.setdefault(span["tid"], []).append((span["ts"], span["ts"] + span["dur"]))
    for times in by_worker.values():  # a worker does one thing at a time
        ordered = sorted(times)
        assert all(end <= begin + 2 for (_, end), (begin, _) in pairwise(ordered))
