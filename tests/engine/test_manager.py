"""The group manager, tested without clocks, networks or tensors: its rules are the same for every engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgsp.core.chain import Chain, HopReport
from fedgsp.engine.manager import (
    Action,
    Begin,
    Event,
    Failed,
    Finished,
    GaveUp,
    GroupManager,
    Policy,
    Skipped,
    Train,
    Trained,
)


def report(client: int, hop: int) -> HopReport:
    return HopReport(client, hop, 0, 1, 1, 0, 0, 0.0)


def answer(action: Action, token: str) -> Trained:
    assert isinstance(action, Train)
    return Trained(action.hop.index, action.attempt, token, report(action.hop.client, action.hop.index))


def test_hands_the_model_on_from_client_to_client() -> None:
    manager = GroupManager(Chain((7, 3)), Policy())
    (first,) = manager.step(Begin("global"))
    assert isinstance(first, Train)
    assert (first.hop.client, first.token) == (7, "global")
    (second,) = manager.step(answer(first, "after 7"))
    assert isinstance(second, Train)
    assert (second.hop.client, second.token) == (3, "after 7")
    (end,) = manager.step(answer(second, "after 3"))
    assert isinstance(end, Finished)
    assert end.token == "after 3"
    assert [hop.client for hop in end.hops] == [7, 3]
    assert manager.over


def test_walks_the_chain_again_for_every_pass() -> None:
    manager = GroupManager(Chain((1, 2), passes=2), Policy())
    visited = []
    (action,) = manager.step(Begin())
    while isinstance(action, Train):
        visited.append((action.hop.client, action.hop.repeat))
        (action,) = manager.step(answer(action, "x"))
    assert visited == [(1, 0), (2, 0), (1, 1), (2, 1)]


def test_a_failure_stops_the_chain_when_told_to() -> None:
    manager = GroupManager(Chain((1, 2)), Policy(on_failure="stop"))
    (first,) = manager.step(Begin())
    assert isinstance(first, Train)
    (end,) = manager.step(Failed(0, first.attempt, "broken"))
    assert end == GaveUp(first.hop, "broken")
    assert manager.over
    assert manager.step(answer(first, "too late")) == []


def test_a_failure_is_tried_again_then_skipped_from_the_last_good_model() -> None:
    manager = GroupManager(Chain((1, 2, 3)), Policy(on_failure="skip", retries=1))
    (first,) = manager.step(Begin("global"))
    (second,) = manager.step(answer(first, "after 1"))
    assert isinstance(second, Train)
    (again,) = manager.step(Failed(1, second.attempt, "lost"))
    assert isinstance(again, Train)
    assert again.hop == second.hop
    assert again.attempt != second.attempt
    skipped, third = manager.step(Failed(1, again.attempt, "lost"))
    assert skipped == Skipped(second.hop, "lost")
    assert isinstance(third, Train)
    assert (third.hop.client, third.token) == (3, "after 1")


def test_the_late_answer_of_a_client_that_was_skipped_is_ignored() -> None:
    manager = GroupManager(Chain((1, 2)), Policy(on_failure="skip"))
    (first,) = manager.step(Begin("global"))
    assert isinstance(first, Train)
    _, second = manager.step(Failed(0, first.attempt, "no answer within 10 s"))
    assert manager.step(answer(first, "too late")) == []
    (end,) = manager.step(answer(second, "after 2"))
    assert isinstance(end, Finished)
    assert [hop.client for hop in end.hops] == [2]


def test_an_answer_that_comes_twice_counts_once() -> None:
    manager = GroupManager(Chain((1, 2)), Policy())
    (first,) = manager.step(Begin())
    (second,) = manager.step(answer(first, "a"))
    assert manager.step(answer(first, "b")) == []
    (end,) = manager.step(answer(second, "c"))
    assert isinstance(end, Finished)
    assert len(end.hops) == 2


def test_absent_hops_are_left_out_as_the_event_log_says() -> None:
    manager = GroupManager(Chain((1, 2, 3)), Policy(), absent=frozenset({0, 2}))
    skipped, train = manager.step(Begin("global"))
    assert isinstance(skipped, Skipped)
    assert isinstance(train, Train)
    assert (train.hop.client, train.token) == (2, "global")
    last, end = manager.step(answer(train, "after 2"))
    assert isinstance(last, Skipped)
    assert isinstance(end, Finished)
    assert end.token == "after 2"


def test_a_chain_of_which_everybody_fails_ends_with_the_model_it_began_with() -> None:
    manager = GroupManager(Chain((1, 2)), Policy(on_failure="skip"))
    actions = manager.step(Begin("global"))
    while isinstance(actions[-1], Train):
        actions = manager.step(Failed(actions[-1].hop.index, actions[-1].attempt, "gone"))
    assert actions[-1] == Finished("global", ())


def test_misuse_is_an_error() -> None:
    with pytest.raises(ValueError, match="has not begun"):
        GroupManager(Chain((1,)), Policy()).step(Failed(0, 0, "gone"))
    manager = GroupManager(Chain((1,)), Policy())
    manager.step(Begin())
    with pytest.raises(ValueError, match="begins once"):
        manager.step(Begin())


@given(
    clients=st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
    passes=st.integers(1, 3),
    retries=st.integers(0, 2),
    faults=st.lists(st.sampled_from(["ok", "fail", "timeout", "late", "twice"]), max_size=60),
)
def test_whatever_happens_it_ends_and_counts_every_hop_at_most_once(
    clients: list[int], passes: int, retries: int, faults: list[str]
) -> None:
    policy = Policy(on_failure="skip", retries=retries)
    manager, schedule = GroupManager(Chain(tuple(clients), passes=passes), policy), iter(faults)
    stale: list[Event] = []
    actions = manager.step(Begin("start"))
    skipped: list[int] = []
    for _ in range(200):
        skipped += [action.hop.index for action in actions if isinstance(action, Skipped)]
        if manager.over:
            break
        train = actions[-1]
        assert isinstance(train, Train)
        fault = next(schedule, "ok")
        good = answer(train, f"token {train.hop.index}")
        if fault == "fail":
            actions = manager.step(Failed(train.hop.index, train.attempt, "x"))
        elif fault == "timeout":
            stale.append(good)
            actions = manager.step(Failed(train.hop.index, train.attempt, "no answer"))
        elif fault == "late" and stale:
            assert manager.step(stale[-1]) == []
            actions = [train]
        else:
            actions = manager.step(good)
            if fault == "twice":
                assert manager.step(good) == []
    (end,) = [action for action in actions if isinstance(action, Finished)]
    walked = [hop.hop for hop in end.hops]
    assert sorted(walked + skipped) == list(range(len(clients) * passes))
    assert walked == sorted(walked)
    assert end.token == (f"token {walked[-1]}" if walked else "start")
