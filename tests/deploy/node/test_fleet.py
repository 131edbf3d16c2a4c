"""What is used of Flower beside its public API is there in the versions that the extra asks for."""

from __future__ import annotations

import inspect
import queue
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, HEARTBEAT_MIN_INTERVAL, HEARTBEAT_PATIENCE
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.supercore.primitives.asymmetric import generate_key_pairs
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import http_grid
from flwr.supernode.fleet_http_client import FleetHttpClient
from packaging.requirements import Requirement

from fedgsp.core.heartbeat import CALM, CALM_SECONDS, PROMISE
from fedgsp.deploy.node import fleet

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())


def test_the_installed_flower_was_tried_and_the_extra_asks_for_no_other() -> None:
    assert metadata.version("flwr") in fleet.TRIED
    [asked] = [Requirement(text) for text in PROJECT["project"]["optional-dependencies"]["flower"] if "flwr" in text]
    assert all(asked.specifier.contains(version) for version in fleet.TRIED)
    for other in ("1.40.0", "1.42.0", "1.43.0", "2.0.0"):
        assert asked.specifier.contains(other) == (other in fleet.TRIED), other


def test_a_dead_node_is_known_as_soon_as_flower_can_be_told() -> None:
    assert HEARTBEAT_MIN_INTERVAL * HEARTBEAT_PATIENCE <= 20
    assert CALM_SECONDS * 3 < HEARTBEAT_MIN_INTERVAL * HEARTBEAT_PATIENCE
    assert HEARTBEAT_MIN_INTERVAL <= CALM < PROMISE < HEARTBEAT_DEFAULT_INTERVAL


class Beats:
    """A Fleet API that counts hearts."""

    def __init__(self) -> None:
        self.told: queue.Queue[float] = queue.Queue()

    def ActivateNode(self, request: Any) -> Any:
        assert request.heartbeat_interval == CALM
        return SimpleNamespace(node_id=7)

    def SendNodeHeartbeat(self, request: Any) -> Any:
        self.told.put(request.heartbeat_interval)
        return SimpleNamespace(success=True)

    def DeactivateNode(self, request: Any) -> None:
        """It leaves."""

    def close(self) -> None:
        """It is over."""


def test_a_node_that_begins_to_work_promises_to_beat_often_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    beats = Beats()
    monkeypatch.setattr(FleetHttpClient, "from_server_address", lambda *_: beats)
    monkeypatch.setattr(fleet, "CALM_SECONDS", 1e6)
    connection = fleet.FleetConnection("127.0.0.1:1", None, generate_key_pairs()[0])
    connection.activate()
    connection.promise(True)
    assert beats.told.get(timeout=300) == PROMISE
    assert beats.told.get(timeout=300) == PROMISE  # and again, by itself
    connection.promise(False)
    while beats.told.get(timeout=300) == PROMISE:
        pass
    assert beats.told.empty()
    connection.close()


def test_a_message_goes_through_an_app_and_back() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        said: Any = message.content["x"]["a"]
        return Message(RecordDict({"y": ConfigRecord({"b": f"{said} at {context.node_config['site']}"})}), reply_to=message)

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 7, 1
    sent = fleet.packed(Message(RecordDict({"x": ConfigRecord({"a": "hello"})}), 42, "train", ttl=60.0))
    root = ObjectTree.FromString(sent.tree).object_id
    message = fleet.inflated(root, dict(sent.contents))
    assert fleet.seconds_left(fleet.Received(message, root, {})) == 60.0

    answer = fleet.called(app, message, 7, 42, {"site": "/s"})
    about = message_from_proto(ProtoMessage.FromString(answer.message)).metadata
    assert (about.reply_to_message_id, about.run_id, about.src_node_id) == (root, 7, 42)
    tree = ObjectTree.FromString(answer.tree)
    assert {part.object_id for part in iterate_object_tree(tree)} == set(answer.contents)
    found = fleet.inflated(tree.object_id, dict(answer.contents))
    assert found.content["y"]["b"] == "hello at /s"

    failed = fleet.failure(fleet.Received(message, root, {}), fleet.CRASHED, "it died")
    error = message_from_proto(ProtoMessage.FromString(failed.message)).error
    assert (error.code, error.reason) == (8, "it died")


def test_the_grid_is_told_once_not_to_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    grid: Any = http_grid
    assert "initial_backoff" in inspect.signature(grid.pull_objects).parameters
    monkeypatch.setattr(grid, "pull_objects", pull_objects)
    fleet.quick_pulls()
    first = grid.pull_objects
    fleet.quick_pulls()
    assert grid.pull_objects is first
    assert first.keywords == {"initial_backoff": 0.05, "backoff_cap": 1.0}
