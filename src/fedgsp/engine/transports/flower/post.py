"""Messages over a Grid: sent, looked for, and fetched; over a real one in a thread each, so that chains do not wait for bytes.

A Grid sends and fetches a message's bytes in the caller's own time. With a thread a message, the 26 MB of one chain come down
while those of another go up, and the server answers whoever is ready.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from flwr.app import Message
from flwr.serverapp import Grid

FIRST_LOOK = 0.05
LOOKS = 10
"""An answer is looked for every tenth of the time that it has been waited for, so that looking is never much of the waiting."""


@dataclass(frozen=True)
class Clock:
    """Time, as the transport sees it: tests bring their own. `threads`: every message has a thread of its own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    poll: float = 0.5
    threads: bool = False


@dataclass(eq=False)
class Letter:
    """A message on its way, and what came of it."""

    message: Message
    deadline: float
    tensors: frozenset[int] = frozenset()
    """Which records of tensors it carries (their `id`s)."""
    name: str | None = None
    """What the Grid calls it, once it has taken it."""
    reply: Message | None = None
    unsent: bool = False
    moving: float = 0.0
    """Seconds in which this process pushed its bytes, or pulled its answer's."""
    recalled: bool = False
    """Nobody waits for its answer any more."""
    error: Exception | None = field(default=None, repr=False)


class Post(Protocol):
    """What carries letters."""

    def send(self, letter: Letter) -> None:
        """Take a letter."""
        ...

    def arrived(self, letters: Iterable[Letter]) -> list[Letter]:
        """Those of these letters that came to something; one that the Grid failed at raises what it raised."""
        ...

    def wait(self) -> None:
        """Until there may be something new."""
        ...


class DirectPost:
    """Everything in the caller's thread."""

    def __init__(self, grid: Grid, clock: Clock) -> None:
        self._grid, self._clock = grid, clock

    def send(self, letter: Letter) -> None:
        """See `Post.send`."""
        _push(self._grid, self._clock, letter)

    def arrived(self, letters: Iterable[Letter]) -> list[Letter]:
        """See `Post.arrived`."""
        letters = list(letters)
        wanted = {letter.name: letter for letter in letters if letter.name is not None}
        begun = self._clock.now()
        replies = list(self._grid.pull_messages([name for name in wanted if name is not None])) if wanted else []
        found = [letter for letter in letters if letter.unsent]
        for reply in replies:
            letter = wanted.pop(reply.metadata.reply_to_message_id, None)
            if letter is not None:  # else nobody waits for it: late, or the second of its kind
                letter.reply = reply
                letter.moving += self._clock.now() - begun
                found.append(letter)
        return found

    def wait(self) -> None:
        """See `Post.wait`."""
        self._clock.sleep(self._clock.poll)


class ThreadedPost:
    """A thread a letter, which pushes it and looks for its answer until it is there or nobody waits for it.

    Letters with the same tensors, as of chains that begin with the same model, are pushed one after the other: a SuperLink asks
    only for what it has not got, so all but the first are a few facts.
    """

    def __init__(self, grid: Grid, clock: Clock) -> None:
        self._grid, self._clock = grid, clock
        self._pushes: WeakValueDictionary[frozenset[int], threading.Lock] = WeakValueDictionary()
        self._of_pushes = threading.Lock()
        self._done: queue.Queue[Letter] = queue.Queue()
        self._back: list[Letter] = []

    def send(self, letter: Letter) -> None:
        """See `Post.send`."""
        threading.Thread(target=self._carry, args=(letter,), name="letter", daemon=True).start()

    def arrived(self, letters: Iterable[Letter]) -> list[Letter]:
        """See `Post.arrived`."""
        while True:
            try:
                self._back.append(self._done.get_nowait())
            except queue.Empty:
                break
        wanted = {id(letter) for letter in letters}
        found, self._back = [letter for letter in self._back if id(letter) in wanted], []
        for letter in found:
            if letter.error is not None:
                raise letter.error
        return found

    def wait(self) -> None:
        """See `Post.wait`."""
        try:
            self._back.append(self._done.get(timeout=self._clock.poll))
        except queue.Empty:
            return

    def _carry(self, letter: Letter) -> None:
        clock = self._clock
        with self._of_pushes:
            one_by_one = self._pushes.setdefault(letter.tensors, threading.Lock()) if letter.tensors else threading.Lock()
        try:
            with one_by_one:
                _push(self._grid, clock, letter)
            begun = clock.now()
            while letter.name is not None and letter.reply is None and not letter.recalled and clock.now() < letter.deadline:
                looked = clock.now()
                letter.reply = next(iter(self._grid.pull_messages([letter.name])), None)
                if letter.reply is None:
                    clock.sleep(min(clock.poll, max(FIRST_LOOK, (clock.now() - begun) / LOOKS)))
                else:
                    letter.moving += clock.now() - looked
        except Exception as error:
            letter.error = error
        if letter.reply is not None or letter.unsent or letter.error is not None:
            self._done.put(letter)


def _push(grid: Grid, clock: Clock, letter: Letter) -> None:
    begun = clock.now()
    found = list(grid.push_messages([letter.message]))
    letter.moving += clock.now() - begun
    if len(found) == 1 and found[0]:
        letter.name = found[0]
    else:
        letter.unsent = True
