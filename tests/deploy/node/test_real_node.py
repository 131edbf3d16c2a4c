"""Real warm nodes at a real SuperLink: deaths that cost no node, deaths that are known at once, and coming back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedgsp.deploy import guardian
from fedgsp.deploy.local import START_SECONDS, LocalDeployment, presence
from fedgsp.deploy.registered_keys import read_keys, restore
from tests.support.real_deployments import children, deployment
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def log(processes: LocalDeployment, name: str) -> str:
    return (processes.place.root / "logs" / f"{name}.log").read_text()


def pid_of(processes: LocalDeployment, name: str) -> int:
    return next(one.pid for one in processes.supervisor.running() if one.name == name)


def test_killed_nodes_are_known_at_once_and_those_of_a_killed_superlink_come_back(tmp_path: Path) -> None:
    place = deployment(tmp_path / "fed", 2, data="glyphs:clients=2", rounds=1)
    with LocalDeployment(place, print) as processes:
        processes.start_server()
        processes.start_nodes(place.sites())
        assert sorted(read_keys(place)) == ["site-0", "site-1"]

        first = pid_of(processes, "node-site-0")
        [app] = children(first)
        os.kill(app, signal.SIGKILL)  # nobody asks for anything now: the next hop will find a new one
        until(lambda: guardian.started_at(app) == 0, 60, "the app's process to end")
        assert guardian.started_at(first) > 0
        assert presence(place, processes.link).online == ["site-0", "site-1"]

        second = pid_of(processes, "node-site-1")
        [other] = children(second)
        os.kill(second, signal.SIGKILL)  # its app's process tells of it
        until(lambda: presence(place, processes.link).away == ["site-1"], 120, "the SuperLink to know")
        until(lambda: guardian.started_at(other) == 0, 60, "the app's process to end")
        assert "the node's process is gone; the SuperLink at" in log(processes, "node-site-1")

        os.kill(pid_of(processes, "superlink"), signal.SIGKILL)
        until(lambda: not processes.link.answers(), 60, "the SuperLink to be gone")
        processes.supervisor.start("superlink", [str(place.server / "superlink.sh")])
        assert restore(place, processes.link, START_SECONDS) == ["site-0", "site-1"]
        until(lambda: presence(place, processes.link).online == ["site-0"], 300, "the node to come back")
        assert guardian.started_at(first) > 0  # the very same process
        until(lambda: log(processes, "node-site-0").count("connected to") == 2, 60, "the node to say so")
    assert guardian.marked(processes.supervisor.mark) == {}
