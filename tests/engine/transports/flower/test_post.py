"""Letters over a Grid: in a thread each they do not wait for one another."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedgsp.engine.transports.flower.post import Clock, DirectPost, Letter, Post, ThreadedPost


class StubGrid:
    """A Grid whose messages are texts: `slow` ones are stuck on their way until `go`, `lost` ones are not taken."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.pulled: list[str] = []

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        [text] = messages
        if text == "slow":
            assert self.go.wait(60)
        if text == "broken":
            raise ConnectionError
        return [""] if text == "lost" else [f"id of {text}"]

    def pull_messages(self, names: Iterable[str]) -> list[Any]:
        found = [name for name in names if name != "id of never"]
        self.pulled += found
        return [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=name), said=name) for name in found]


def collected(post: Post, letters: list[Letter], count: int) -> list[str]:
    found: list[Letter] = []
    while len(found) < count:
        new = post.arrived([letter for letter in letters if letter not in found])
        found += new
        if not new:
            post.wait()
    return [str(letter.message) for letter in found]


def letter(text: Any, tensors: frozenset[int] = frozenset()) -> Letter:
    return Letter(text, float("inf"), tensors)


@pytest.mark.parametrize("kind", [DirectPost, ThreadedPost])
def test_answers_come_to_their_letters_and_what_is_not_taken_is_told(kind: Any) -> None:
    post: Post = kind(StubGrid(), Clock(poll=0.01))
    letters = [letter("a"), letter("lost"), letter("b")]
    for one in letters:
        post.send(one)
    assert sorted(collected(post, letters, 3)) == ["a", "b", "lost"]
    assert [one.unsent for one in letters] == [False, True, False]
    assert [getattr(one.reply, "said", None) for one in letters] == ["id of a", None, "id of b"]


def test_a_slow_one_keeps_nobody() -> None:
    grid = StubGrid()
    post = ThreadedPost(grid, Clock(poll=0.01))  # type: ignore[arg-type]
    letters = [letter("slow"), letter("quick")]
    for one in letters:
        post.send(one)
    assert collected(post, letters, 1) == ["quick"]
    grid.go.set()
    assert collected(post, letters[:1], 1) == ["slow"]


def test_the_same_tensors_are_pushed_by_one_letter_at_a_time() -> None:
    """So that a SuperLink asks for them once."""
    grid = StubGrid()
    post = ThreadedPost(grid, Clock(poll=0.01))  # type: ignore[arg-type]
    letters = [letter("slow", frozenset([1])), letter("same", frozenset([1])), letter("other", frozenset([2]))]
    for one in letters:
        post.send(one)
    assert collected(post, letters, 1) == ["other"]
    assert letters[1].name is None
    grid.go.set()
    assert sorted(collected(post, letters[:2], 2)) == ["same", "slow"]


def test_what_the_grid_raises_is_raised_where_it_is_waited_for() -> None:
    post = ThreadedPost(StubGrid(), Clock(poll=0.01))  # type: ignore[arg-type]
    broken = letter("broken")
    post.send(broken)
    with pytest.raises(ConnectionError):
        collected(post, [broken], 1)


def test_a_letter_that_nobody_waits_for_is_looked_for_no_more() -> None:
    asked = threading.Event()

    class Watched(StubGrid):
        def pull_messages(self, names: Iterable[str]) -> list[Any]:
            asked.set()
            return super().pull_messages(names)

    grid = Watched()
    never = letter("never")
    thread = threading.Thread(target=ThreadedPost(grid, Clock(poll=0.01))._carry, args=(never,))  # type: ignore[arg-type]
    thread.start()
    assert asked.wait(60)
    never.recalled = True
    thread.join(60)
    assert not thread.is_alive()
    assert never.reply is None
