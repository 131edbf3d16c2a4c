"""Whatever fails, and when: rounds end, nobody trains twice in a pass, nothing is lost or counted twice, replay agrees."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

import pytest
from flwr.app import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedgsp.core.errors import InputError
from tests.support import grid_deployments
from tests.support.flower_grid import Fault, Node, grid_of

FAULTS: tuple[Fault, ...] = (
    "ok", "ok", "ok", "killed", "terminated", "stalled", "process killed", "ttl", "raises", "late", "twice", "nan", "shape",
    "far", "unpushed", "garbage", "samples",
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> grid_deployments.Deployment:
    """Six sites, whose shards are made once."""
    return grid_deployments.deployment(
        tmp_path_factory.mktemp("schedules"), "fedgsp+scaffold", clients=6, rounds=3,
        settings={"hop_seconds_cap": 90.0, "repeats": 1, "wait_seconds": 40.0, "quorum": 0.4},
    )  # fmt: skip


@given(
    faults=st.lists(st.sampled_from(FAULTS), max_size=30),
    scoring=st.lists(st.sampled_from(("ok", "ok", "raises", "garbage")), max_size=12),
    speeds=st.lists(st.sampled_from((0.5, 1.0, 7.0)), min_size=1, max_size=5),
)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_schedules_of_faults(
    base: grid_deployments.Deployment, faults: list[Fault], scoring: list[Fault], speeds: list[float]
) -> None:
    training, judging = iter(faults), iter(scoring)
    pace = itertools.cycle(speeds)

    def choose(node: Node, message: Message) -> Fault:
        kind = message.metadata.message_type
        return next(training, "ok") if kind == "train" else next(judging, "ok") if kind == "evaluate" else "ok"

    base.grid = grid_of(base.sites, fault=choose, seconds=lambda node, message: next(pace))
    with tempfile.TemporaryDirectory(dir=base.folder) as folder:
        out = Path(folder) / "run"
        result = base.serve(out=out)
        assert result.status in ("finished", "paused")
        assert len(result.history) == result.rounds
        _check_accounts(base, out, result.rounds)
        if result.rounds:
            assert base.replay(out).differs is None
        else:
            with pytest.raises(InputError, match="has not finished a round"):
                base.replay(out)


def _check_accounts(there: grid_deployments.Deployment, out: Path, rounds: int) -> None:
    plans = [json.loads(line) for line in (out / "plans.jsonl").read_text().splitlines()[1:]]
    history = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    lines = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    sizes: dict[int, int] = {m["number"]: m["train"] for event in there.events("sites", out) for m in event["members"]}
    assert len(plans) == len(history) == rounds
    for plan, entry in zip(plans, history, strict=True):
        begin = max(i for i, e in enumerate(lines) if e["event"] == "round" and e["round"] == plan["round"])
        ours = [e for e in lines[begin:] if e["event"] in ("hop", "skipped") and e["round"] == plan["round"]]
        stops = [(n, hop, client) for n, chain in enumerate(plan["chains"]) for hop, client in enumerate(chain["clients"])]
        assert sorted((e["chain"], e["hop"], e["client"]) for e in ours) == sorted(stops)
        trained = [e["client"] for e in ours if e["event"] == "hop"]
        assert len(trained) == len(set(trained)) == entry["clients"]
        assert entry["samples"] == sum(sizes[client] for client in trained)
        assert len(entry.get("skipped", [])) == len(stops) - len(trained)
