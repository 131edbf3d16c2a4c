"""The pump: walks many chains at once over a Grid, each by its own group manager, with no barrier between them.

A chain has one message on its way at any time; as soon as its answer is there, its next client is asked, whatever the others
do. At most `in_flight` chains are under way, so at most as many messages. Every message has a time to live, after which
nobody waits for it: answers that come late or twice belong to no message on the way and are never looked at. Questions (a
site's profile, an evaluation) are chains of one client, so they obey the same rules.

The pump knows nothing of what is sent: a `Dialect` composes messages and opens answers. Failures are data: what is yielded was
not acted upon yet, so that it can be written down before it takes effect.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedgsp.core.chain import Chain, HopReport, Stop
from fedgsp.core.errors import RunFailed
from fedgsp.engine.flower.records import Refused
from fedgsp.engine.manager import Action, Begin, Failed, Finished, GroupManager, Policy, Skipped, Tick, Train, Trained

CODES = {
    0: "its process failed",
    1: "its app could not be loaded",
    2: "its app raised an exception",
    3: "its time was up",
    4: "its answer got lost",
    5: "its node is gone",
    6: "a modifier of its app refused",
    7: "its app is not a valid one",
    8: "its process died",
}
"""What Flower's error codes mean for a hop (ErrorCode in flwr.common.constant)."""


@dataclass(frozen=True)
class Clock:
    """Time, as the pump sees it: tests bring their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    poll: float = 0.5


@dataclass(frozen=True)
class Letter:
    """A message to be sent: to which node, of which type, and how many bytes of tensors it has."""

    node: int
    kind: str
    content: RecordDict
    bytes: int = 0


@dataclass(frozen=True)
class Opened:
    """An answer that was understood: what the chain goes on with, a report, and (for a model) how far it moved."""

    token: Any
    report: HopReport
    moved: float | None = None


class Dialect(Protocol):
    """What is sent, and how an answer is read."""

    def compose(self, index: int, stop: Stop, token: Any) -> Letter:
        """The message for a stop of chain `index`; raises `Refused` where it cannot be sent at all."""
        ...

    def open(self, index: int, stop: Stop, token: Any, content: RecordDict, seconds: float) -> Opened:
        """What an answer says, checked; raises `Refused` with the reason for one that cannot be used."""
        ...

    def judge(self, waiting: Sequence[Opened], more: bool) -> dict[int, str | None] | None:
        """By place in `waiting`, why an answer is refused, or None; nothing at all to wait, while `more` are on their way."""
        ...


@dataclass(frozen=True)
class Hopped:
    """A client has answered, `waited` seconds after it was asked."""

    index: int
    report: HopReport
    waited: float


@dataclass(frozen=True)
class Missed:
    """A client was skipped: why, and what it cost."""

    index: int
    stop: Stop
    cause: str
    lost_bytes: int
    seconds: float


@dataclass(frozen=True)
class Arrived:
    """A chain is walked; `token` is what it ended with, `hops` are empty where every client failed."""

    index: int
    token: Any
    hops: tuple[HopReport, ...]


Happening = Hopped | Missed | Arrived


@dataclass
class _OnTheWay:
    """A chain under way, and its message."""

    manager: GroupManager
    train: Train | None = None
    message: str | None = None
    sent_at: float = 0.0
    bytes: int = 0
    opened: Opened | None = None
    waited: float = 0.0


class Pump:
    """One use of the Grid: `walk` it."""

    def __init__(self, grid: Grid, dialect: Dialect, policy: Policy, in_flight: int, clock: Clock, group: str = "") -> None:
        self._grid, self._dialect, self._policy, self._clock = grid, dialect, policy, clock
        self._most, self._group = max(1, in_flight), group
        self._under_way: dict[int, _OnTheWay] = {}

    def walk(
        self,
        chains: Mapping[int, Chain],
        begin: Callable[[int], Any] = lambda index: None,
        absent: Mapping[int, frozenset[int]] | None = None,
    ) -> Iterator[Happening]:
        """Walk the chains, in the order given as far as there is room; every one of them arrives."""
        waiting = deque(chains)
        while waiting or self._under_way:
            while waiting and len(self._under_way) < self._most:
                index = waiting.popleft()
                manager = GroupManager(chains[index], self._policy, (absent or {}).get(index, frozenset()))
                self._under_way[index] = _OnTheWay(manager)
                yield from self._act(index, manager.step(Begin(begin(index)), self._clock.now()))
            moved = False
            for happening in self._collected():
                moved = True
                yield happening
            if not moved and self._under_way:
                self._clock.sleep(self._clock.poll)

    def _act(self, index: int, actions: list[Action]) -> Iterator[Happening]:
        """Do what a manager says, until its chain waits for an answer or has arrived."""
        way = self._under_way[index]
        todo = deque(actions)
        while todo:
            action = todo.popleft()
            if isinstance(action, Skipped):
                waited = self._clock.now() - way.sent_at if way.train is not None else 0.0
                yield Missed(index, action.stop, action.cause, way.bytes, waited)
                way.train, way.message, way.bytes = None, None, 0
            elif isinstance(action, Finished):
                del self._under_way[index]
                yield Arrived(index, action.token, action.hops)
            elif isinstance(action, Train):
                cause = self._sent(index, way, action)
                if cause is not None:
                    todo.extend(way.manager.step(Failed(action.stop.hop, action.attempt, cause), self._clock.now()))

    def _sent(self, index: int, way: _OnTheWay, action: Train) -> str | None:
        """Send a message; why it could not be, if so."""
        way.train, way.opened, way.bytes, way.sent_at = action, None, 0, self._clock.now()
        try:
            letter = self._dialect.compose(index, action.stop, action.token)
        except Refused as error:
            return str(error)
        assert action.deadline is not None, "a message always has a time to live"
        ttl = max(1.0, action.deadline - way.sent_at)
        message = Message(letter.content, letter.node, letter.kind, ttl=ttl, group_id=self._group)
        try:
            found = list(self._grid.push_messages([message]))
        except Exception as error:
            raise unreachable(error) from error
        if len(found) != 1 or not found[0]:
            return "its message could not be sent"
        way.message, way.bytes = found[0], letter.bytes
        return None

    def _collected(self) -> Iterator[Happening]:
        """Answers that came, those that are judged with them, and clients whose time is up."""
        wanted = {way.message: index for index, way in self._under_way.items() if way.message is not None}
        if wanted:
            try:
                replies = list(self._grid.pull_messages(list(wanted)))
            except Exception as error:
                raise unreachable(error) from error
            for reply in replies:
                index = wanted.pop(reply.metadata.reply_to_message_id, -1)
                if index >= 0:  # else nobody waits for it: late, or the second of its kind
                    yield from self._answered(index, reply)
        yield from self._judged()
        for index, way in list(self._under_way.items()):
            if way.opened is None and way.message is not None:
                yield from self._act(index, way.manager.step(Tick(), self._clock.now()))

    def _answered(self, index: int, reply: Message) -> Iterator[Happening]:
        way = self._under_way[index]
        assert way.train is not None
        way.message, way.waited = None, self._clock.now() - way.sent_at
        stop, attempt = way.train.stop, way.train.attempt
        try:
            if reply.has_error():
                code = reply.error.code
                raise Refused(f"{CODES.get(code, 'an unknown failure')} (code {code})")
            way.opened = self._dialect.open(index, stop, way.train.token, reply.content, way.waited)
        except Refused as error:
            cause = str(error)
        except Exception as error:  # whatever a client sends must not end the run
            cause = f"its answer makes no sense ({type(error).__name__})"
        else:
            return
        yield from self._act(index, way.manager.step(Failed(stop.hop, attempt, cause), self._clock.now()))

    def _judged(self) -> Iterator[Happening]:
        """Let the dialect judge the answers that are there, perhaps only together with those still on their way."""
        held = [(index, way, way.opened) for index, way in self._under_way.items() if way.opened is not None]
        if not held:
            return
        more = any(way.message is not None for way in self._under_way.values())
        verdicts = self._dialect.judge([opened for _, _, opened in held], more)
        for place, cause in (verdicts or {}).items():
            index, way, opened = held[place]
            assert way.train is not None
            stop, attempt, way.opened = way.train.stop, way.train.attempt, None
            if cause is not None:
                yield from self._act(index, way.manager.step(Failed(stop.hop, attempt, cause), self._clock.now()))
                continue
            yield Hopped(index, opened.report, way.waited)
            way.train = None
            yield from self._act(
                index, way.manager.step(Trained(stop.hop, attempt, opened.token, opened.report), self._clock.now())
            )


def unreachable(error: Exception) -> RunFailed:
    """What ends a run whose Grid does not answer."""
    return RunFailed(
        f"the SuperLink cannot be reached any more ({type(error).__name__}); when it is back, go on with fedgsp deploy resume."
    )
