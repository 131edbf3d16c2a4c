"""What is said over a Grid, apart from how it gets there: messages to be sent, answers that were understood, conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flwr.app import RecordDict

from fedgsp.core.chain import Hop, HopReport
from fedgsp.engine.messages import ChainOutput


@dataclass(frozen=True)
class OutgoingMessage:
    """A message to be sent: to which node, of which type, and how many bytes of tensors it has."""

    node: int
    kind: str
    content: RecordDict
    bytes: int = 0


@dataclass(frozen=True)
class CheckedAnswer:
    """An answer that was understood: what the chain goes on with, a report, and how far it moved, by what was measured."""

    token: Any
    report: HopReport
    lengths: Mapping[str, float] = field(default_factory=dict)


class SendAgain(Exception):
    """The same client is to be sent its message once more, composed anew: it said what it lacks."""


class Conversation(Protocol):
    """What is sent, and how an answer is read."""

    def compose(self, index: int, hop: Hop, token: Any) -> OutgoingMessage:
        """The message for a hop of chain `index`, which has come to `token` (None: it begins).

        Raises:
            Refused: It cannot be sent at all.
        """
        ...

    def open(self, index: int, hop: Hop, token: Any, content: RecordDict, seconds: float) -> CheckedAnswer:
        """What an answer says, checked.

        Raises:
            Refused: It cannot be used, with the reason.
            SendAgain: The client must be sent more.
        """
        ...

    def verdicts(self, waiting: Sequence[CheckedAnswer], more: bool) -> dict[int, str | None] | None:
        """By place in `waiting`, why an answer is refused, or None; nothing at all to wait, while `more` are on their way."""
        ...

    def output(self, token: Any) -> ChainOutput:
        """What a chain that ended with `token` hands on."""
        ...


class Questions:
    """What conversations have in common that only ask, and take answers as they come."""

    def verdicts(self, waiting: Sequence[CheckedAnswer], more: bool) -> dict[int, str | None] | None:
        """See `Conversation.verdicts`."""
        return dict.fromkeys(range(len(waiting)))

    def output(self, token: Any) -> ChainOutput:
        """See `Conversation.output`."""
        return ChainOutput({}, {}, {})
