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
    Tick,
    Train,
    Trained,
)


def report(client: int, hop: int) -> HopReport:
    return HopReport(client, hop, 0, 1, 1, 0, 0, 0.0)


def answer(action: Action, token: str) -> Trained:
    assert isinstance(action, Train)
    return Trained(action.stop.hop, action.attempt, token, report(action.stop.client, action.stop.hop))


def test_hands_the_model_on_from_client_to_client() -> None:
    manager = GroupManager(Chain((7, 3)), Policy())
    (first,) = manager.step(Begin("global"), 0.0)
    assert isinstance(first, Train)
    assert (first.stop.client, first.token) == (7, "global")
    (second,) = manager.step(answer(first, "after 7"), 1.0)
    assert isinstance(second, Train)
    assert (second.stop.client, second.token) == (3, "after 7")
    (end,) = manager.step(answer(second, "after 3"), 2.0)
    assert isinstance(end, Finished)
    assert end.token == "after 3"
    assert [hop.client for hop in end.hops] == [7, 3]
    assert manager.over


def test_walks_the_chain_again_for_every_pass() -> None:
    manager = GroupManager(Chain((1, 2), passes=2), Policy())
    visited = []
    (action,) = manager.step(Begin(), 0.0)
    while isinstance(action, Train):
        visited.append((action.stop.client, action.stop.visit))
        (action,) = manager.step(answer(action, "x"), 0.0)
    assert visited == [(1, 0), (2, 0), (1, 1), (2, 1)]


def test_a_failure_stops_the_chain_when_told_to() -> None:
    manager = GroupManager(Chain((1, 2)), Policy(on_failure="stop"))
    (first,) = manager.step(Begin(), 0.0)
    assert isinstance(first, Train)
    (end,) = manager.step(Failed(0, first.attempt, "broken"), 0.0)
    assert end == GaveUp(first.stop, "broken")
    assert manager.over
    assert manager.step(Tick(), 1e9) == []


def test_a_failure_is_tried_again_then_skipped_from_the_last_good_model() -> None:
    manager = GroupManager(Chain((1, 2, 3)), Policy(on_failure="skip", retries=1))
    (first,) = manager.step(Begin("global"), 0.0)
    (second,) = manager.step(answer(first, "after 1"), 0.0)
    assert isinstance(second, Train)
    (again,) = manager.step(Failed(1, second.attempt, "lost"), 0.0)
    assert isinstance(again, Train)
    assert again.stop == second.stop
    assert again.attempt != second.attempt
    skipped, third = manager.step(Failed(1, again.attempt, "lost"), 0.0)
    assert skipped == Skipped(second.stop, "lost")
    assert isinstance(third, Train)
    assert (third.stop.client, third.token) == (3, "after 1")


def test_a_hop_that_takes_too_long_is_a_failure_and_its_late_answer_is_ignored() -> None:
    manager = GroupManager(Chain((1, 2)), Policy(on_failure="skip", hop_seconds=10.0))
    (first,) = manager.step(Begin("global"), 100.0)
    assert isinstance(first, Train)
    assert manager.deadline == 110.0
    assert manager.step(Tick(), 109.9) == []
    skipped, second = manager.step(Tick(), 110.0)
    assert isinstance(skipped, Skipped)
    assert "10 s" in skipped.cause
    assert manager.step(answer(first, "too late"), 111.0) == []
    (end,) = manager.step(answer(second, "after 2"), 112.0)
    assert isinstance(end, Finished)
    assert [hop.client for hop in end.hops] == [2]


def test_an_answer_that_comes_twice_counts_once() -> None:
    manager = GroupManager(Chain((1, 2)), Policy())
    (first,) = manager.step(Begin(), 0.0)
    (second,) = manager.step(answer(first, "a"), 0.0)
    assert manager.step(answer(first, "b"), 0.0) == []
    (end,) = manager.step(answer(second, "c"), 0.0)
    assert isinstance(end, Finished)
    assert len(end.hops) == 2


def test_absent_hops_are_left_out_as_the_event_log_says() -> None:
    manager = GroupManager(Chain((1, 2, 3)), Policy(), absent=frozenset({0, 2}))
    skipped, train = manager.step(Begin("global"), 0.0)
    assert isinstance(skipped, Skipped)
    assert isinstance(train, Train)
    assert (train.stop.client, train.token) == (2, "global")
    last, end = manager.step(answer(train, "after 2"), 0.0)
    assert isinstance(last, Skipped)
    assert isinstance(end, Finished)
    assert end.token == "after 2"


def test_a_chain_of_which_everybody_fails_ends_with_the_model_it_began_with() -> None:
    manager = GroupManager(Chain((1, 2)), Policy(on_failure="skip"))
    actions = manager.step(Begin("global"), 0.0)
    while isinstance(actions[-1], Train):
        actions = manager.step(Failed(actions[-1].stop.hop, actions[-1].attempt, "gone"), 0.0)
    assert actions[-1] == Finished("global", ())


def test_misuse_is_an_error() -> None:
    with pytest.raises(ValueError, match="has not begun"):
        GroupManager(Chain((1,)), Policy()).step(Tick(), 0.0)
    manager = GroupManager(Chain((1,)), Policy())
    manager.step(Begin(), 0.0)
    with pytest.raises(ValueError, match="begins once"):
        manager.step(Begin(), 0.0)


@given(
    clients=st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
    passes=st.integers(1, 3),
    retries=st.integers(0, 2),
    faults=st.lists(st.sampled_from(["ok", "fail", "timeout", "late", "twice"]), max_size=60),
)
def test_whatever_happens_it_ends_and_counts_every_stop_at_most_once(
    clients: list[int], passes: int, retries: int, faults: list[str]
) -> None:
    policy = Policy(on_failure="skip", retries=retries, hop_seconds=1.0)
    manager, now, schedule = GroupManager(Chain(tuple(clients), passes=passes), policy), 0.0, iter(faults)
    stale: list[Event] = []
    actions = manager.step(Begin("start"), now)
    skipped: list[int] = []
    for _ in range(200):
        skipped += [action.stop.hop for action in actions if isinstance(action, Skipped)]
        if manager.over:
            break
        train = actions[-1]
        assert isinstance(train, Train)
        fault = next(schedule, "ok")
        good = answer(train, f"token {train.stop.hop}")
        if fault == "fail":
            actions = manager.step(Failed(train.stop.hop, train.attempt, "x"), now)
        elif fault == "timeout":
            now += 2.0
            stale.append(good)
            actions = manager.step(Tick(), now)
        elif fault == "late" and stale:
            assert manager.step(stale[-1], now) == []
            actions = [train]
        else:
            actions = manager.step(good, now)
            if fault == "twice":
                assert manager.step(good, now) == []
    (end,) = [action for action in actions if isinstance(action, Finished)]
    walked = [hop.hop for hop in end.hops]
    assert sorted(walked + skipped) == list(range(len(clients) * passes))
    assert walked == sorted(walked)
    assert end.token == (f"token {walked[-1]}" if walked else "start")
