"""A warm node and its app's process: what costs a hop, and what must not cost the node."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.task_identity import TaskIdentity

from fedgsp.core.errors import InputError
from fedgsp.deploy.node import fleet, frames
from fedgsp.deploy.node import node as node_module
from fedgsp.deploy.node.node import NodeSettings, Polling, WarmNode
from fedgsp.deploy.node.warm_app import AppFailed, WarmApp

FAR = 1e6


class TestFrames:
    def test_facts_and_bytes_come_as_they_were_sent(self) -> None:
        here, there = socket.socketpair()
        blobs = [b"", b"x" * 3_000_000, memoryview(b"abc")]
        sender = threading.Thread(target=frames.send, args=(here, {"a": [1, None]}, blobs))
        sender.start()
        facts, found = frames.receive(there, time.monotonic() + FAR)
        sender.join()
        assert facts == {"a": [1, None]}
        assert found == [bytes(blob) for blob in blobs]

    def test_who_is_gone_and_who_is_late_are_told_apart(self) -> None:
        here, there = socket.socketpair()
        with pytest.raises(frames.Late):
            frames.receive(there, time.monotonic() + 0.01)
        here.send(b"\0\0\0\7half")  # and then nothing more
        with pytest.raises(frames.Late):
            frames.receive(there, time.monotonic() + 0.01)
        here.close()
        with pytest.raises(frames.Closed):
            frames.receive(there, time.monotonic() + FAR)


class TestPolling:
    def test_quick_while_a_run_is_on_and_slow_when_idle(self) -> None:
        polling = Polling()
        assert polling.seconds(0.0) == 3.0
        polling.worked(10.0, None)
        assert polling.seconds(10.0) == polling.seconds(69.9) == 0.1
        assert polling.seconds(70.0) == 3.0

    def test_hearts_beat_often_in_a_run_of_few_nodes_only(self) -> None:
        polling = Polling()
        assert not polling.closely(0.0)
        polling.worked(10.0, 2.0)
        assert polling.closely(69.0)
        assert not polling.closely(70.0)
        polling.worked(80.0, 2.1)
        assert not polling.closely(81.0)

    def test_a_server_of_many_nodes_asks_for_patience_within_bounds(self) -> None:
        polling = Polling()
        polling.worked(0.0, 1.5)
        assert polling.seconds(1.0) == 1.5
        for told, used in ((0.0, 0.1), (1e9, 10.0), (5.0, 5.0)):
            polling.worked(0.0, told)
            assert polling.seconds(1.0) == used
        assert polling.seconds(100.0) == 5.0  # never quicker when idle


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Any:
    """App processes that run a text of the test's in place of the real app's main."""

    def use(text: str) -> WarmApp:
        made = WarmApp()
        head = (
            "import os, socket, sys, time; from fedgsp.deploy.node import frames; "
            "link = socket.socket(fileno=int(sys.argv[1])); frames.send(link, {'ready': True})\n"
        )
        monkeypatch.setattr(
            "fedgsp.deploy.node.warm_app.python", lambda module, call: [os.sys.executable, "-c", head + text]  # type: ignore[attr-defined]
        )  # fmt: skip
        return made

    return use


ECHO = """
while True:
    facts, blobs = frames.receive(link)
    if 'bye' in facts: break
    if facts.get('do') == 'die': os._exit(3)
    if facts.get('do') == 'loop':
        while True: pass
    frames.send(link, {'pid': os.getpid(), **facts}, blobs)
"""


LOOPING = """
while True: frames.receive(link)
"""
SLOW = """
while True:
    facts, blobs = frames.receive(link)
    if 'connected' in facts: continue
    while not os.path.exists(facts['site'] + '.go'): time.sleep(0.01)
    frames.send(link, {'names': [], 'poll': None, 'seconds': 0.5}, [b'', b''])
"""


class TestWarmApp:
    def test_one_process_answers_all_and_a_dead_one_is_replaced(self, answering: Any) -> None:
        app: WarmApp = answering(ECHO)
        try:
            first, blobs = app.ask({"n": 1}, [b"abc"], FAR)
            second, _ = app.ask({"n": 2}, [], FAR)
            assert blobs == [b"abc"]
            assert first["pid"] == second["pid"] == app.pid != os.getpid()
            with pytest.raises(AppFailed, match=r"died \(code 3\)") as died:
                app.ask({"do": "die"}, [], FAR)
            assert not died.value.late
            third, _ = app.ask({"n": 3}, [], FAR)
            assert third["pid"] != first["pid"]
            assert app.pid is not None
            os.kill(app.pid, signal.SIGKILL)  # while nobody looks
            fourth, _ = app.ask({"n": 4}, [], FAR) if _ended(app) else pytest.fail("it lives")
            assert fourth["pid"] != third["pid"]
        finally:
            app.stop()

    def test_one_that_never_comes_back_is_ended(self, answering: Any) -> None:
        app: WarmApp = answering(ECHO)
        try:
            pid = app.ask({}, [], FAR)[0]["pid"]
            with pytest.raises(AppFailed, match=r"no answer within 0.2 s") as late:
                app.ask({"do": "loop"}, [], 0.2)
            assert late.value.late
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            assert app.ask({}, [], FAR)[0]["pid"] != pid
        finally:
            app.stop()
        assert app.pid is None


class Link:
    """A Fleet connection that gives what it has, one a question; then a slow app may go on."""

    node = 7

    def __init__(self, folder: Path, *given: Any) -> None:
        self.given, self.joined, self.answers = list(given), 1, list[Any]()
        self.go = folder / "site.toml.go"

    def promise(self, often: bool) -> None:
        """Hearts are tested elsewhere."""

    def activate(self) -> int:
        self.joined += 1
        return self.node

    def receive(self) -> Any:
        if not self.given:
            self.go.touch()
            return None
        one = self.given.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    def answer(self, received: Any, answer: Any, seconds: float) -> None:
        self.answers.append(answer)


def message(flower_run: int, run: str) -> fleet.Received:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, flower_run, 1
    made = Message(RecordDict({"fedgsp": ConfigRecord({"json": json.dumps({"run": {"run": run}})})}), 7, "train", ttl=FAR)
    made.metadata.__dict__["_run_id"] = flower_run
    packed = fleet.packed(made)
    return fleet.Received(made, ObjectTree.FromString(packed.tree).object_id, dict(packed.contents))


class TestWorking:
    """What a node does while its app works."""

    @pytest.fixture(autouse=True)
    def hasty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(node_module, "WORKING_SECONDS", 0.01)
        monkeypatch.setattr(node_module, "GRACE_SECONDS", 0.0)

    def node(self, app: WarmApp, tmp_path: Path) -> tuple[WarmNode, list[str]]:
        said: list[str] = []
        settings = NodeSettings(tmp_path / "site.toml", "127.0.0.1:1", None, None, tmp_path / "alive")
        return WarmNode(settings, said.append, app), said

    def test_work_for_the_earlier_part_of_a_resumed_run_is_given_up(self, answering: Any, tmp_path: Path) -> None:
        node, said = self.node(answering(LOOPING), tmp_path)
        again = message(2, "a")
        link = Link(tmp_path, None, again)
        try:
            node._work(link, message(1, "a"))  # type: ignore[arg-type]
        finally:
            node.app.end()
        assert link.answers == []
        assert node._next == [again]
        assert any("the run was resumed" in line for line in said)

    def test_other_runs_wait_their_turn(self, answering: Any, tmp_path: Path) -> None:
        node, _ = self.node(answering(SLOW), tmp_path)
        others = [message(2, "b"), message(1, "a")]
        link = Link(tmp_path, *others)
        try:
            node._work(link, message(1, "a"))  # type: ignore[arg-type]
        finally:
            node.app.end()
        assert node._next == others
        assert len(link.answers) == 1

    def test_a_superlink_that_was_restarted_is_joined_at_once_and_gets_no_answer_of_before(
        self, answering: Any, tmp_path: Path
    ) -> None:  # fmt: skip
        node, said = self.node(answering(SLOW), tmp_path)
        link = Link(tmp_path, fleet.Away("gone"), fleet.NotKnown("who?"))
        try:
            node._work(link, message(1, "a"))  # type: ignore[arg-type]
        finally:
            node.app.end()
        assert link.joined == 2
        assert link.answers == []
        assert any("the SuperLink that asked for it is gone" in line for line in said)


def _ended(app: WarmApp) -> bool:
    child = app._child
    assert child is not None
    return child.wait(60) == -signal.SIGKILL


@pytest.mark.slow
def test_a_site_whose_settings_make_no_sense_does_not_join(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('[site]\nname = "a"\n[data]\nsource = "glyphs:clients=2"\n[allow]\nmodel = 1\n')
    settings = NodeSettings.of(tmp_path, "127.0.0.1:1", insecure=True)
    with pytest.raises(InputError, match=r"cannot be started: .*has no entry 'model'"):
        WarmNode(settings).run()


class TestSettings:
    def test_what_is_missing_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "site.toml").write_text('[site]\nname = "a"\n[data]\nsource = "glyphs:clients=2"\n')
        with pytest.raises(InputError, match=r"no superlink.txt; say where"):
            NodeSettings.of(tmp_path, None, insecure=True)
        (tmp_path / "superlink.txt").write_text("somewhere:1\n")
        assert NodeSettings.of(tmp_path, None, insecure=True).address == "somewhere:1"
        assert NodeSettings.of(tmp_path, "else:2", insecure=True).address == "else:2"
        with pytest.raises(InputError, match=r"no ca.crt; without keys"):
            NodeSettings.of(tmp_path, None, insecure=False)
        with pytest.raises(InputError, match="must be host:port"):
            NodeSettings.of(tmp_path, "nowhere", insecure=True)
