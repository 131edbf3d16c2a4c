"""An in-process Flower Grid: the real ClientApp, real messages, a clock of its own, and faults on demand.

Every node is a site with its settings on disk. A message is answered when the clock has reached the moment that its fault (or
none) says; nothing ever sleeps.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedgsp.core.heartbeat import PROMISE
from fedgsp.engine.transports.flower.client_app import app
from fedgsp.engine.transports.flower.post import Clock
from fedgsp.engine.transports.flower.records import pack, unpack
from tests.support import tiny

Fault = Literal[
    "ok", "killed", "terminated", "stalled", "process killed", "ttl", "dead", "raises", "late", "twice", "nan", "shape", "far",
    "unpushed", "garbage", "samples", "silent",
]  # fmt: skip


@dataclass
class Node:
    """A SuperNode with a site's settings; `up` while it is connected."""

    number: int
    site: Path
    up: bool = True
    back_at: float = float("inf")
    heart_stopped: float | None = None

    def context(self) -> Context:
        return Context(1, self.number, {"site": str(self.site)}, RecordDict(), {})


@dataclass
class Parcel:
    """A message on its way: its answer, and when it comes."""

    message: Message
    answer: Callable[[], Message]
    at: float
    copies: int = 1


Chooser = Callable[[Node, Message], Fault]
Tamper = Callable[[Node, Message, RecordDict], RecordDict]
"""What a hostile site makes of its honest answer."""


@dataclass
class InProcessGrid(Grid):
    """See the module. `fault` says what happens to a message; `seconds` is what an honest answer takes."""

    nodes: dict[int, Node]
    fault: Chooser = lambda node, message: "ok"
    seconds: Callable[[Node, Message], float] = lambda node, message: 1.0
    tamper: Tamper = lambda node, message, content: content
    time: float = 0.0
    handled: list[tuple[int, str, Fault]] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    on_the_way: dict[str, Parcel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # a message wants to know whose it is
        self._ids = itertools.count()

    @property
    def clock(self) -> Clock:
        return Clock(now=lambda: self.time, sleep=self._sleep, poll=0.5)

    def _sleep(self, seconds: float) -> None:
        self.time += seconds
        assert self.time < 100_000 and len(self.sent) < 5_000, "this never ends"  # noqa: PT018
        for node in self.nodes.values():
            if self.time >= node.back_at:
                node.up, node.back_at = True, float("inf")

    def set_run(self, run: Any) -> None:
        """There is only one."""

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *arguments: Any, **options: Any) -> Iterable[Message]:
        raise AssertionError("that is a barrier")

    def get_node_ids(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.up]

    def get_nodes(self) -> list[NodeInfo]:
        """Hearts beat every two seconds until they stop; the SuperLink gives a node 21 s from its last beat on."""
        return [
            NodeInfo(node_id=n, heartbeat_interval=PROMISE, online_until=self._last_beat(self.nodes[n]) + 2 * PROMISE)
            for n in self.get_node_ids()
        ]

    def _last_beat(self, node: Node) -> float:
        return (self.time if node.heart_stopped is None else min(self.time, node.heart_stopped)) // 2 * 2

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        assert 0 < message.metadata.ttl < 12 * 3600, "a message always has a time to live"
        node = self.nodes[message.metadata.dst_node_id]
        fault: Fault = self.fault(node, message) if node.up else "dead"
        self.handled.append((node.number, message.metadata.message_type, fault))
        self.sent.append(message)
        if fault == "unpushed":
            return ""
        name = f"message-{next(self._ids)}"
        message.metadata.__dict__["_message_id"] = name
        self.on_the_way[name] = self._parcel(node, message, fault)
        return name

    def _parcel(self, node: Node, message: Message, fault: Fault) -> Parcel:
        """The failure table of Flower, row by row: what the Grid sees, and after how long."""
        honest, ttl = self.seconds(node, message), message.metadata.ttl

        def fails(code: int, after: float) -> Parcel:
            return Parcel(message, lambda: Message(Error(code, "x"), reply_to=message), self.time + after)

        def answers(change: Callable[[RecordDict], RecordDict] = lambda content: content, after: float = honest) -> Parcel:
            def answer() -> Message:
                reply = app(message, node.context())
                return Message(self.tamper(node, message, change(reply.content)), reply_to=message)

            return Parcel(message, answer, self.time + after)

        if fault in ("killed", "terminated", "stalled"):
            node.up = False
            if fault == "stalled":
                node.back_at = self.time + 51.0
            return fails(5, 1.0 if fault == "terminated" else 50.0)
        if fault == "silent":
            node.heart_stopped = self.time
            return fails(5, 21.0)
        if fault == "process killed":
            return fails(8, 55.0)
        if fault == "ttl":
            return fails(3, ttl)
        if fault == "dead":
            return fails(5, 0.3)
        if fault == "raises":
            return fails(2, honest)
        if fault == "late":
            return answers(after=ttl + 5.0)
        if fault == "twice":
            parcel = answers()
            parcel.copies = 2
            return parcel
        if fault == "garbage":
            return answers(lambda content: RecordDict())
        if fault in ("nan", "shape", "far"):
            return answers(lambda content: _spoilt(content, fault))
        if fault == "samples":
            return answers(_boastful)
        return answers()

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = []
        for name in message_ids:
            parcel = self.on_the_way.get(name)
            if parcel is None or self.time < parcel.at:
                continue
            parcel.copies -= 1
            if parcel.copies == 0:
                del self.on_the_way[name]
            reply = parcel.answer()
            found += [reply, reply] if parcel.copies else [reply]
        return found


def _spoilt(content: RecordDict, how: Fault) -> RecordDict:
    record = content.get("model")
    if not isinstance(record, ArrayRecord) or not record:
        return content
    tensors = unpack(record, "the test's")
    name = next(iter(tensors))
    if how == "nan":
        tensors[name].view(-1)[0] = torch.nan
    elif how == "shape":
        tensors[name] = tensors[name].reshape(-1)[:-1]
    else:
        tensors[name] = tensors[name] + 900.0
    content["model"] = pack(tensors)
    return content


def _boastful(content: RecordDict) -> RecordDict:
    record: Any = content["fedgsp"]
    facts = json.loads(record["json"])
    if "samples" in facts:
        facts["samples"] += 1000
        record["json"] = json.dumps(facts)
    return content


def write_sites(
    folder: Path, source: str, clients: Sequence[str], *, histogram: str = "exact", models: Sequence[str] = (tiny.LINEAR,),
    numbered: bool = True, methods: Sequence[str] | None = None,
) -> list[Path]:  # fmt: skip
    """A site.toml for each client of a source."""
    paths = []
    for number, client in enumerate(clients):
        place = folder / f"site-{number:02d}"
        place.mkdir(parents=True, exist_ok=True)
        lines = [
            "[site]", f'name = "{client}"', *([f"number = {number}"] if numbered else []),
            "[data]", f'source = "{source}"', f'client = "{client}"',
            "[privacy]", f'histogram = "{histogram}"',
            "[allow]", f"models = {list(models)!r}".replace("'", '"'),
            *([] if methods is None else [f"methods = {list(methods)!r}".replace("'", '"')]),
        ]  # fmt: skip
        (place / "site.toml").write_text("\n".join(lines) + "\n")
        paths.append(place / "site.toml")
    return paths


def grid_of(sites: Sequence[Path], **options: Any) -> InProcessGrid:
    """A Grid with a node for each site."""
    return InProcessGrid({100 + k: Node(100 + k, path) for k, path in enumerate(sites)}, **options)


def drawn_faults(rng: np.random.Generator, share: float, kinds: Sequence[Fault]) -> Chooser:
    """Faults at random, for training messages only."""

    def choose(node: Node, message: Message) -> Fault:
        if message.metadata.message_type != "train" or rng.random() >= share:
            return "ok"
        return kinds[int(rng.integers(len(kinds)))]

    return choose
