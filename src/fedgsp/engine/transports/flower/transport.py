"""Sites over a Flower Grid as workers: every message carries one hop, and at most `in_flight` are on their way.

A chain has one message on its way at any time; as soon as its answer is there, its next client is asked, whatever the others
do. Every message has a time to live, after which nobody waits for it: answers that come late or twice belong to no message on
the way and are never looked at. A site that fails, is late or sends what cannot be used is skipped.

What is sent, and how answers are checked, is a `Conversation`'s. Questions (a site's profile, an evaluation) are chains of one
client, so they obey the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedgsp.core.chain import Chain, Hop, Plan
from fedgsp.core.errors import RunFailed
from fedgsp.core.state import ServerState
from fedgsp.engine.manager import Policy
from fedgsp.engine.messages import (
    Answer,
    ChainOutput,
    HopDone,
    HopSkipped,
    Segment,
    Task,
    TaskFailed,
    TrainDone,
    TrainTask,
    WorkerGone,
)
from fedgsp.engine.scheduler import ChainScheduler
from fedgsp.engine.task_batching import BatchLimits
from fedgsp.engine.transports.base import Transport, WorkerHandle
from fedgsp.engine.transports.flower.conversation import CheckedAnswer, Conversation, SendAgain
from fedgsp.engine.transports.flower.post import Clock, DirectPost, Letter, Post, ThreadedPost
from fedgsp.engine.transports.flower.site_checks import site_sentence
from fedgsp.engine.transports.flower.wire import Refused

if TYPE_CHECKING:
    from fedgsp.engine.time_limits import Activity
    from fedgsp.engine.transports.flower.pulse import Pulse

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
SILENT = "its node is silent: its heartbeat has stopped"
FIRST_LISTEN = 0.7
"""How long a message has been on its way before its node's heartbeat is listened for."""


@dataclass(eq=False)
class MessageSlot(WorkerHandle):
    """Room for one message on its way: for which hop it is, when it was sent, and its answer while that is not decided on."""

    hop: Hop = field(default_factory=lambda: Hop(0, 0, 0))
    letter: Letter | None = None
    sent_at: float = 0.0
    bytes: int = 0
    waited: float = 0.0
    moving: float = 0.0
    checked: CheckedAnswer | None = None
    failed: str | None = None
    again: bool = False


class FlowerTransport(Transport):
    """One conversation over a Grid. `limit` says how many seconds a hop may take; `answers` has what chains have come to."""

    workers: list[MessageSlot]  # type: ignore[assignment]
    policy = Policy(on_failure="skip")
    batch_limits = BatchLimits(chains=1)
    hops_at_once = 1

    def __init__(
        self,
        grid: Grid,
        conversation: Conversation,
        limit: float | Callable[[Hop], float],
        in_flight: int,
        clock: Clock,
        group: str = "",
        pulse: Pulse | None = None,
    ) -> None:
        super().__init__()
        self._grid, self._conversation, self._limit, self._clock, self._group = grid, conversation, limit, clock, group
        self.workers = [MessageSlot(number, ready=True) for number in range(max(1, in_flight))]
        self._pulse = pulse
        self._post: Post = (ThreadedPost if clock.threads else DirectPost)(grid, clock)
        self.answers: dict[int, Any] = {}
        self.asked: Callable[[int, Hop], None] = lambda index, hop: None

    def send(self, worker: MessageSlot, task: Task) -> None:
        """Compose a message and send it; why it cannot be is told with the next answers."""
        segment = _segment(task)
        worker.again = False
        hop = next(one for one in segment.chain.hops() if one.index not in segment.absent)
        worker.hop, worker.bytes = hop, 0
        self._compose(worker, segment)
        self.asked(segment.index, hop)

    def _compose(self, worker: MessageSlot, segment: Segment) -> None:
        hop, worker.sent_at = worker.hop, self._clock.now()
        worker.letter = worker.checked = worker.failed = None
        try:
            message = self._conversation.compose(segment.index, hop, self.answers.get(segment.index))
        except Refused as error:
            worker.failed = str(error)
            return
        if self._pulse is not None and self._pulse.silent(message.node):
            worker.failed = SILENT
            return
        limit = self._limit(hop) if callable(self._limit) else self._limit
        sent = Message(message.content, message.node, message.kind, ttl=max(1.0, limit), group_id=self._group)
        tensors = frozenset(map(id, message.content.array_records.values()))
        worker.letter, worker.bytes = Letter(sent, worker.sent_at + limit, tensors), message.bytes
        try:
            self._post.send(worker.letter)
        except Exception as error:
            raise unreachable(error) from error

    def receive(self, seconds: float) -> Iterator[tuple[MessageSlot, Answer]]:
        """Answers that came, those that are decided on with them, and clients whose time is up; a pause if there is nothing."""
        moved = False
        for answer in self._collected():
            moved = True
            yield answer
        if not moved and any(worker.task is not None for worker in self.workers):
            self._post.wait()

    def _collected(self) -> Iterator[tuple[MessageSlot, Answer]]:
        for worker in self.workers:
            if worker.failed is not None:
                yield worker, self._failure(worker, worker.failed)
        wanted = {worker.letter: worker for worker in self.workers if worker.letter is not None}
        try:
            arrived = self._post.arrived(wanted)
        except Exception as error:
            raise unreachable(error) from error
        for letter in arrived:
            slot = wanted[letter]
            cause = self._opened(slot, letter)
            if cause is not None:
                yield slot, self._failure(slot, cause)
        yield from self._decided()
        for worker in self.workers:
            due = worker.letter
            if due is not None and self._clock.now() >= due.deadline:
                yield worker, self._failure(worker, f"no answer within {due.deadline - worker.sent_at:g} s")
            elif due is not None and self._silent(worker, due):
                yield worker, self._failure(worker, SILENT)

    def _silent(self, worker: MessageSlot, letter: Letter) -> bool:
        """Whether the node that a message was sent to has lost its heartbeat."""
        pulse = self._pulse
        if pulse is None or self._clock.now() - worker.sent_at < FIRST_LISTEN:
            return False
        try:
            pulse.look()
        except Exception as error:
            raise unreachable(error) from error
        return pulse.silent(int(letter.message.metadata.dst_node_id))

    def _opened(self, worker: MessageSlot, letter: Letter) -> str | None:
        """Look at an answer; why it cannot be used, if so."""
        worker.letter, worker.waited, worker.moving = None, self._clock.now() - worker.sent_at, letter.moving
        index, reply = _segment(worker.task).index, letter.reply
        try:
            if reply is None:
                worker.bytes = 0
                raise Refused("its message could not be sent")
            if reply.has_error():
                code = reply.error.code
                raise Refused(f"{CODES.get(code, 'an unknown failure')} (code {code})")
            token = self.answers.get(index)
            worker.checked = self._conversation.open(index, worker.hop, token, reply.content, worker.waited)
        except Refused as error:  # it may quote what was sent
            return site_sentence(str(error))
        except SendAgain:
            if worker.again:
                return "it says it lacks what it was sent"
            worker.again = True
            self._compose(worker, _segment(worker.task))
        except Exception as error:  # whatever a client sends must not end the run
            return f"its answer makes no sense ({type(error).__name__})"
        return None

    def _decided(self) -> Iterator[tuple[MessageSlot, Answer]]:
        """Decide on the answers that are there, perhaps only together with those still on their way."""
        held = [(worker, worker.checked) for worker in self.workers if worker.checked is not None]
        if not held:
            return
        more = any(worker.letter is not None for worker in self.workers)
        verdicts = self._conversation.verdicts([checked for _, checked in held], more)
        for place, cause in (verdicts or {}).items():
            worker, checked = held[place]
            worker.checked = None
            if cause is not None:
                yield worker, self._failure(worker, cause)
                continue
            task, index = worker.task, _segment(worker.task).index
            assert task is not None
            yield worker, HopDone(task.round, index, checked.report, worker.waited, worker.moving, checked.lengths)
            self.answers[index] = checked.token
            yield worker, TrainDone(((checked.report,),), index)

    def _failure(self, worker: MessageSlot, cause: str) -> TaskFailed:
        if worker.letter is not None:
            worker.letter.recalled = True
        worker.letter = worker.checked = worker.failed = None
        return TaskFailed(_segment(worker.task).index, worker.hop.client, cause)

    def cost_of(self, worker: MessageSlot) -> tuple[int, float]:
        """See `Transport.cost_of`."""
        return worker.bytes, self._clock.now() - worker.sent_at

    def fetch(self, worker: MessageSlot, done: TrainDone, round_: int) -> Sequence[ChainOutput]:
        """What a chain has come to is here already."""
        return [self._conversation.output(self.answers[done.outputs])]

    def publish(self, state: ServerState, slots: frozenset[str] | None = None) -> None:
        """Models go with each message."""

    def replace(self, worker: MessageSlot, cause: str | None = None, blameless: bool = False) -> WorkerGone:
        """A site is replaced by nobody."""
        raise NotImplementedError

    def activity(self, worker: MessageSlot) -> Activity | None:
        """What sites do is theirs to know."""
        return None

    def close(self) -> None:
        """The Grid is not ours to close."""


def ask(
    transport: FlowerTransport,
    clients: Sequence[int],
    on_skip: Callable[[HopSkipped], None] = lambda event: None,
    round_: int = 0,
) -> list[int]:
    """Ask each of some clients one question; the places of those who answered. `transport.answers` has what they said."""
    plan = Plan(round_, tuple(Chain((client,)) for client in clients), len(clients))

    def told(event: Any) -> None:
        if isinstance(event, HopSkipped):
            on_skip(event)

    return [result.index for result in ChainScheduler(transport).run_chains(plan, ServerState(round_, {}), told)]


def unreachable(error: Exception) -> RunFailed:
    """What ends a run whose Grid does not answer."""
    return RunFailed(
        f"the SuperLink cannot be reached any more ({type(error).__name__}); when it is back, go on with fedgsp deploy resume."
    )


def _segment(task: Task | None) -> Segment:
    assert isinstance(task, TrainTask)
    return task.segments[0]
