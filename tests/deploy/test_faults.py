"""Clients that fail, in every way that Flower shows: they are skipped, the chain goes on, and the log can be replayed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from tests.support import flower_grid, grid_deployments
from tests.support.flower_grid import Fault, Node
from tests.support.grid_deployments import Deployment


def once(fault: Fault, node: int, kind: str = "train", times: int = 1) -> flower_grid.Chooser:
    """This happens to the first messages of a kind to a node."""
    left = [times]

    def choose(at: Node, message: Message) -> Fault:
        if at.number != node or message.metadata.message_type != kind or not left[0]:
            return "ok"
        left[0] -= 1
        return fault

    return choose


def check_accounts(there: Deployment, history: list[dict[str, Any]]) -> None:
    """Every planned stop either trained or was skipped, nobody twice in a pass; and the run can be replayed."""
    import json

    plans = [json.loads(line) for line in (there.run / "plans.jsonl").read_text().splitlines()[1:]]
    rounds = {event["round"]: event for event in there.events("round")}
    lines = [json.loads(line) for line in (there.run / "events.jsonl").read_text().splitlines()]
    for plan, entry in zip(plans, history, strict=True):
        begin = lines.index(rounds[plan["round"]])
        ours = [e for e in lines[begin:] if e["event"] in ("hop", "skipped") and e["round"] == plan["round"]]
        stops = {
            (number, hop): client
            for number, chain in enumerate(plan["chains"])
            for hop, client in enumerate(chain["clients"] * chain.get("passes", 1))
        }
        seen = {(event["chain"], event["hop"]): event["client"] for event in ours}
        assert seen == stops
        assert len(ours) == len(stops)
        skipped = [(e["chain"], e["hop"]) for e in ours if e["event"] == "skipped"]
        assert sorted(skipped) == [(s["chain"], s["hop"]) for s in entry.get("skipped", [])]
        trained = {event["client"]: event["samples"] for event in ours if event["event"] == "hop"}
        assert entry["samples"] == sum(trained.values())
    assert there.replay().differs is None


ROWS: list[tuple[Fault, str, float, float]] = [
    ("killed", "its node is gone (code 5)", 49.0, 60.0),
    ("terminated", "its node is gone (code 5)", 0.5, 2.0),
    ("stalled", "its node is gone (code 5)", 49.0, 60.0),
    ("process killed", "its process died (code 8)", 54.0, 60.0),
    ("ttl", "its time was up (code 3)", 99.0, 102.0),
    ("late", "within 100 s", 99.0, 102.0),
    ("raises", "its app raised an exception (code 2)", 0.5, 2.0),
    ("unpushed", "its message could not be sent", 0.0, 0.5),
    ("garbage", "the message is not one of fedgsp's", 0.5, 2.0),
]


@pytest.mark.parametrize(("fault", "cause", "least", "most"), ROWS)
def test_every_row_of_the_failure_table(fault: Fault, cause: str, least: float, most: float, tmp_path: Path) -> None:
    there = grid_deployments.deployment(
        tmp_path, grid_deployments.chains(2), settings={"hop_seconds_cap": 100.0, "hop_seconds_floor": 100.0}
    )
    there.grid.fault = once(fault, 103)
    result = there.serve()
    assert (result.status, result.rounds) == ("finished", 3)
    (skip,) = result.history[0]["skipped"]
    assert (skip["client"], skip["name"]) == (3, "site-03")
    assert cause in skip["cause"]
    (event,) = [e for e in there.events("skipped") if e["round"] == 1]
    assert least <= event["seconds"] <= most
    assert result.history[0]["timings"]["skipped"] == event["seconds"]
    assert "attempts" not in result.history[0]
    assert all("skipped" not in entry for entry in result.history[1:])
    assert result.history[-1]["present"] == (7 if fault in ("killed", "terminated") else 8)
    check_accounts(there, result.history)


def test_a_push_to_a_node_that_died_unseen_costs_little(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2))

    def dies_meanwhile(node: Node, message: Message) -> Fault:
        if message.metadata.message_type == "train":
            there.grid.nodes[106].up = False  # after the plan was made
        return "ok"

    there.grid.fault = dies_meanwhile
    result = there.serve()
    (skip,) = result.history[0]["skipped"]
    assert (skip["client"], skip["cause"]) == (6, "its node is gone (code 5)")
    assert next(e["seconds"] for e in there.events("skipped")) < 1.5
    check_accounts(there, result.history)


REFUSALS: list[tuple[Fault, str]] = [
    ("nan", "has values that are not finite"),
    ("shape", "has the shape (11,) and not (3, 4)"),
    ("far", "refused: its update has the"),
    ("samples", "1007 samples, and 7 were announced"),
]


@pytest.mark.parametrize(("fault", "cause"), REFUSALS)
def test_what_cannot_be_used_is_refused_and_never_averaged(fault: Fault, cause: str, tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2))
    there.grid.fault = once(fault, 104, times=99)
    result = there.serve()
    for entry in result.history:
        (skip,) = entry["skipped"]
        assert skip["client"] == 4
        assert cause in skip["cause"]
        assert skip["bytes"] == 4 * 15  # the model went down for nothing
    check_accounts(there, result.history)


@pytest.mark.parametrize("number", range(4))
def test_a_far_update_is_refused_whoever_sends_it_and_whenever_it_comes(number: int, tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(4), clients=4, rounds=1)
    there.grid.fault = once("far", 100 + number)
    there.grid.seconds = lambda node, message: 1.0 + 3.0 * (node.number == 100 + number) * (number % 2) + node.number / 1000
    (entry,) = there.serve().history
    assert [skip["client"] for skip in entry["skipped"]] == [number]
    check_accounts(there, [entry])


def test_an_answer_that_comes_twice_counts_once(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2))
    there.grid.fault = lambda node, message: "twice"
    result, local = there.serve(), there.local()
    assert [e["state"] for e in result.history] == [e["state"] for e in local.history]
    assert all("skipped" not in entry for entry in result.history)


def test_a_chain_whose_clients_all_fail_is_left_out(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(4), settings={"quorum": 0.3})
    first: list[int] = []

    def choose(node: Node, message: Message) -> Fault:
        if message.metadata.message_type != "train" or message.metadata.group_id != "1":
            return "ok"
        first.append(node.number - 100)
        return "raises" if node.number - 100 in broken else "ok"

    probe = grid_deployments.deployment(tmp_path / "probe", grid_deployments.chains(4), rounds=1)
    probe.serve()
    import json

    plan = json.loads((probe.run / "plans.jsonl").read_text().splitlines()[1])
    broken = set(plan["chains"][1]["clients"])
    there.grid.fault = choose
    result = there.serve()
    assert result.history[0]["chains"] == 3
    assert {skip["client"] for skip in result.history[0]["skipped"]} == broken
    check_accounts(there, result.history)


def test_no_more_messages_are_on_their_way_than_allowed(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(8), settings={"in_flight": 3}, rounds=2)
    most = 0

    def count(node: Node, message: Message) -> Fault:
        nonlocal most
        most = max(most, len(there.grid.on_the_way) + 1)
        return "ok"

    there.grid.fault = count
    there.serve()
    assert most == 3


def test_groups_do_not_wait_for_each_other(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), rounds=1, settings={"hop_seconds_floor": 1000.0})
    there.grid.seconds = lambda node, message: 300.0 if node.number == 100 else 1.0
    there.serve()
    hops = [(event["chain"], event["client"]) for event in there.events("hop")]
    slow = next(chain for chain, client in hops if client == 0)
    others = [place for place, (chain, _) in enumerate(hops) if chain != slow]
    assert max(others) < hops.index((slow, 0))  # the other chain went on, and was through long before


def test_a_clients_time_limit_follows_its_size_and_what_was_measured(tmp_path: Path) -> None:
    there = grid_deployments.deployment(
        tmp_path, grid_deployments.chains(2), settings={"hop_seconds_cap": 500.0, "hop_seconds_floor": 2.0}
    )
    there.grid.seconds = lambda node, message: 10.0
    there.serve()
    train = [message.metadata.ttl for message in there.grid.sent if message.metadata.message_type == "train"]
    assert train[0] == 500.0  # nothing is known yet
    assert all(30.0 <= ttl < 35.0 for ttl in train[-8:])  # three times what hops took so far


def test_below_the_quorum_a_round_is_repeated_and_then_counts(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), settings={"quorum": 0.9})
    there.grid.fault = once("raises", 105)
    result = there.serve()
    assert result.status == "finished"
    assert result.history[0]["attempts"] == 2
    assert "skipped" not in result.history[0]
    (below,) = there.events("below_quorum")
    assert below["trained"] < 0.9 * below["planned"]
    assert [e["state"] for e in result.history] == [e["state"] for e in there.local().history]
    check_accounts(there, result.history)


def test_the_default_quorum_is_half_the_planned_samples() -> None:
    from fedgsp.deploy.settings import DeploySettings

    assert DeploySettings().quorum == 0.5


def test_states_of_an_attempt_that_did_not_count_are_forgotten(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, "scaffold", clients=6, settings={"quorum": 1.0})
    planned = grid_deployments.deployment(tmp_path / "probe", "scaffold", clients=6)
    planned.serve()
    first = planned.events("hop")[0]["client"]
    there.grid.fault = once("raises", 100 + first, times=1)
    result = there.serve()
    assert result.history[0]["attempts"] == 2
    assert [e["state"] for e in result.history] == [e["state"] for e in there.local().history]


def test_without_a_quorum_the_run_pauses_waits_and_goes_on(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), settings={"repeats": 1, "wait_seconds": 500.0})
    until = 200.0

    def out(node: Node, message: Message) -> Fault:
        return "raises" if there.grid.time < until and message.metadata.message_type != "query.hello" else "ok"

    there.grid.fault = out
    for number in (100, 101):
        there.grid.nodes[number].back_at = 0.0
    result = there.serve()
    assert result.status == "finished"
    assert there.events("waiting")
    assert result.history[0]["attempts"] > 2
    check_accounts(there, result.history)


def test_a_run_that_nobody_comes_back_to_ends_paused_with_a_message_and_can_be_resumed(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2), settings={"repeats": 1, "wait_seconds": 30.0})

    def gone_after_the_first(node: Node, message: Message) -> Fault:
        if message.metadata.group_id == "2" and message.metadata.message_type == "train":
            for other in there.grid.nodes.values():
                other.up = False
            return "terminated"
        return "ok"

    there.grid.fault = gone_after_the_first
    result = there.serve()
    assert (result.status, result.rounds) == ("paused", 1)
    assert "go on with fedgsp deploy resume" in str(result.facts["cause"])
    for node in there.grid.nodes.values():
        node.up = True
    there.grid.fault = lambda node, message: "ok"
    again = there.serve(resume=True)
    assert (again.status, again.rounds) == ("finished", 3)
    assert [e["state"] for e in again.history] == [e["state"] for e in there.local().history]
    assert there.replay().differs is None


def test_a_client_that_does_not_score_is_left_out_of_the_figures(tmp_path: Path) -> None:
    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2))
    there.grid.fault = once("raises", 107, "evaluate")
    result = there.serve()
    assert result.history[0]["not_judged"] == [{"client": 7, "cause": "its app raised an exception (code 2)"}]
    assert result.history[0]["test_clients"] == result.history[1]["test_clients"] - 1
    assert there.replay().differs is None


def test_a_superlink_that_is_gone_ends_the_run_with_its_checkpoint(tmp_path: Path) -> None:
    from fedgsp.core.errors import RunFailed

    there = grid_deployments.deployment(tmp_path, grid_deployments.chains(2))
    pull: Callable[..., Any] = there.grid.pull_messages

    def broken(ids: Any) -> Any:
        if there.run.exists() and there.events("round") and there.events("round")[-1]["round"] == 2:
            raise ConnectionError
        return pull(ids)

    there.grid.__dict__["pull_messages"] = broken
    with pytest.raises(RunFailed, match=r"the SuperLink cannot be reached.*The model of round 1 is kept"):
        there.serve()
    del there.grid.__dict__["pull_messages"]
    again = there.serve(resume=True)
    assert [e["state"] for e in again.history] == [e["state"] for e in there.local().history]
