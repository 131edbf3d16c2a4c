"""All of Flower that is not its public API and that a node needs: the Fleet connection, and messages as objects on the wire.

Tried with the versions in `TRIED` (`tests/deploy/node/test_fleet.py` holds the installed one against them). A node registers,
proves itself by its key and beats its heart as a stock SuperNode does; only the intervals are its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import fleet_pb2 as fleet
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectUnavailableError,
    inflate_object_from_contents,
    pull_objects,
    push_object_contents_from_iterable,
)
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedgsp.core.heartbeat import BEAT_SECONDS, CALM, CALM_SECONDS, PROMISE

TRIED = ("1.41.0",)
"""Versions of Flower that this file was tried with; the extra `flower` asks for these."""
OBJECT_BACKOFF, OBJECT_SECONDS = 0.05, 60.0
"""How long to wait, at first and in all, for an object that its sender is about to push."""
CRASHED = int(ErrorCode.CLIENT_APP_CRASHED)


class Away(Exception):
    """The SuperLink does not answer, or not as it should; it may be back in a moment."""


class NotKnown(Exception):
    """The SuperLink does not take this node: its key is not registered, or a node with that key is connected already."""


class RunOver(Exception):
    """The run that a message belongs to has ended."""


@dataclass(frozen=True)
class Received:
    """A message as it came: its metadata, its objects by their names, and the name of the whole."""

    message: Message
    root: str
    contents: dict[str, bytes]

    @property
    def run(self) -> int:
        """Flower's number of the run."""
        return int(self.message.metadata.run_id)


@dataclass(frozen=True)
class Answered:
    """An answer as it goes: its metadata and the tree of its objects, both encoded, and the objects."""

    message: bytes
    tree: bytes
    contents: Mapping[str, bytes]


class FleetConnection:
    """A node's connection to its SuperLink. `key` is the node's own, None where there are no keys."""

    def __init__(self, address: str, authority: Path | None, key: ec.EllipticCurvePrivateKey | None) -> None:
        self._registers = key is None
        private, public = generate_key_pairs() if key is None else (key, key.public_key())
        self._public = public_key_to_bytes(public)
        interceptors: list[Any] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(private, public),
        ]
        root = None if authority is None else str(authority)
        self._client = FleetHttpClient.from_server_address(address, authority is None, root, interceptors)
        self._node: Node | None = None
        self._stopped, self._other_pace = threading.Event(), threading.Event()
        self._promises = False
        self.joined = 0
        """How often this node has joined a SuperLink: what came before the last time is for nobody any more."""
        self._heart: threading.Thread | None = None
        self._lost = False

    @property
    def node(self) -> int:
        """The node's number at the SuperLink; 0 before it is connected."""
        return 0 if self._node is None else int(self._node.node_id)

    def promise(self, often: bool) -> None:
        """Beat often from now on, or not; the SuperLink is told at once."""
        if often != self._promises:
            self._promises = often
            self._other_pace.set()

    def activate(self) -> int:
        """Be there from now on, until `close`.

        Returns:
            The node's number.

        Raises:
            Away: Nobody answers.
            NotKnown: This node is not taken.
        """
        if self._registers:
            with suppress(NotKnown):  # it is registered already
                self._call(self._client.RegisterNode, fleet.RegisterNodeFleetRequest(public_key=self._public))
        request = fleet.ActivateNodeRequest(public_key=self._public, heartbeat_interval=CALM)
        self._node = Node(node_id=self._call(self._client.ActivateNode, request).node_id)
        self._lost = False
        self.joined += 1
        if self._heart is None:
            self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
            self._heart.start()
        return self.node

    def receive(self) -> Received | None:
        """The next message for this node, if there is one.

        Raises:
            Away, NotKnown, RunOver: It cannot be had.
        """
        if self._lost:
            raise NotKnown("the SuperLink does not know this node any more")
        found = self._call(self._client.PullMessages, fleet.PullMessagesRequest(node=self._node))
        if not found.messages_list:
            return None
        message, tree = message_from_proto(found.messages_list[0]), found.message_object_trees[0]
        run, names = message.metadata.run_id, [part.object_id for part in iterate_object_tree(tree)]
        try:
            contents = pull_objects(
                names, partial(self._pull, run), initial_backoff=OBJECT_BACKOFF, backoff_cap=1.0, max_time=OBJECT_SECONDS
            )
        except ObjectPullError as error:  # its sender died in the midst of it
            raise RunOver(str(error)) from error
        confirmed = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=message.metadata.message_id)
        self._call(self._client.ConfirmMessageReceived, confirmed)
        return Received(message, tree.object_id, contents)

    def answer(self, received: Received, answer: Answered, seconds: float) -> None:
        """Send an answer; `seconds` is what the app took.

        Raises:
            Away, NotKnown, RunOver: It could not be sent.
        """
        request = fleet.PushMessagesRequest(
            node=self._node,
            messages_list=[ProtoMessage.FromString(answer.message)],
            message_object_trees=[ObjectTree.FromString(answer.tree)],
            clientapp_runtime_list=[seconds],
        )
        said = self._call(self._client.PushMessages, request)
        wanted = [(name, answer.contents[name]) for name in said.objects_to_push]
        push_object_contents_from_iterable(wanted, partial(self._push, received.run, said.session_id))

    def close(self) -> None:
        """Leave: the SuperLink knows at once."""
        self._stopped.set()
        self._other_pace.set()
        if self._node is not None:
            with suppress(Exception):
                self._client.DeactivateNode(fleet.DeactivateNodeRequest(node_id=self.node))
            if self._registers:
                with suppress(Exception):
                    self._client.UnregisterNode(fleet.UnregisterNodeFleetRequest(node_id=self.node))
        self._client.close()

    def _pull(self, run: int, name: str) -> bytes:
        found = self._call(self._client.PullObject, PullObjectRequest(node=self._node, run_id=run, object_id=name))
        if not found.object_found:
            raise RunOver("an object of the message is gone")
        if not found.object_available:
            raise ObjectUnavailableError(name)
        return bytes(found.object_content)

    def _push(self, run: int, session: str, name: str, content: bytes) -> None:
        request = PushObjectRequest(node=self._node, run_id=run, object_id=name, object_content=content, session_id=session)
        if not self._call(self._client.PushObject, request).stored:
            raise RunOver("the SuperLink does not want the answer any more")

    def _call(self, method: Callable[[Any], Any], request: Any) -> Any:
        """One request; what goes wrong is told apart by what there is to do about it."""
        try:
            return method(request)
        except httpx.HTTPStatusError as error:
            code, said = error.response.status_code, error.response.text.strip()[:300]
            if code >= 500:
                raise Away(f"the SuperLink has trouble ({code}): {said}") from error
            raise (RunOver if code == httpx.codes.FORBIDDEN else NotKnown)(f"{code}: {said}") from error
        except (httpx.TransportError, ValueError) as error:  # nobody there, or somebody who is no SuperLink
            raise Away(str(error) or type(error).__name__) from error

    def _beat(self) -> None:
        while True:
            self._other_pace.wait(BEAT_SECONDS if self._promises else CALM_SECONDS)
            self._other_pace.clear()
            if self._stopped.is_set():
                return
            request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=PROMISE if self._promises else CALM)
            with suppress(Away):
                try:
                    self._lost = self._lost or not self._call(self._client.SendNodeHeartbeat, request).success
                except (NotKnown, RunOver):
                    self._lost = True


def failure(received: Received, code: int, reason: str) -> Answered:
    """The answer of a node whose app gave none."""
    return packed(Message(Error(code, reason), reply_to=received.message))


def packed(answer: Message) -> Answered:
    """An answer as it goes over the wire."""
    answer.metadata.__dict__["_message_id"] = answer.object_id
    with no_object_id_recompute():
        tree = get_object_tree(answer)
        contents = {name: part.deflate() for name, part in get_all_nested_objects(answer).items()}
        bare = remove_content_from_message(answer) if answer.has_content() else answer
        return Answered(message_to_proto(bare).SerializeToString(), tree.SerializeToString(), contents)


def inflated(root: str, contents: dict[str, bytes]) -> Message:
    """A message put together from its objects."""
    message: Any = inflate_object_from_contents(root, contents)
    message.metadata.__dict__["_message_id"] = root
    return cast(Message, message)


def called(app: ClientApp, message: Message, run: int, node: int, settings: dict[str, Any]) -> Answered:
    """Call the app with a message and pack its answer: what Flower's own client process does."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run, node
    context = Context(run_id=run, node_id=node, node_config=settings, state=RecordDict(), run_config={})
    return packed(app(message=message, context=context))


def seconds_left(received: Received) -> float:
    """How long a message lives, from now on; the server's clock may be another than ours, so its age is not counted."""
    return max(1.0, float(received.message.metadata.ttl))


def quick_pulls() -> None:
    """Let the server's Grid wait 50 ms, not a second, for an object that its sender is about to push.

    An answer can be seen as soon as its first object is there; Flower's Grid then sleeps a second, and two, and so on.
    """
    from flwr.superlink.grid import http_grid

    grid: Any = http_grid
    if not isinstance(grid.pull_objects, partial):
        grid.pull_objects = partial(grid.pull_objects, initial_backoff=OBJECT_BACKOFF, backoff_cap=1.0)
