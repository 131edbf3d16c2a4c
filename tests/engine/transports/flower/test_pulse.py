"""Hearts are listened to by this process's own clock, and only those that promised to beat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from flwr.proto.node_pb2 import NodeInfo

from fedgsp.core.heartbeat import BEAT_SECONDS, PROMISE
from fedgsp.deploy.settings import DeploySettings
from fedgsp.engine.transports.flower.post import Clock
from fedgsp.engine.transports.flower.pulse import LOOK_SECONDS, Pulse


@dataclass
class Told:
    """What a SuperLink says of its nodes, by a clock that is years away from ours."""

    now: float = 0.0
    nodes: dict[int, NodeInfo] = field(default_factory=dict)
    asked: int = 0

    def get_nodes(self) -> list[NodeInfo]:
        self.asked += 1
        return list(self.nodes.values())

    def beat(self, node: int, interval: float = PROMISE) -> None:
        until = 1e9 + self.now + 2 * interval
        self.nodes[node] = NodeInfo(node_id=node, heartbeat_interval=interval, online_until=until)


def heard(seconds: float = 7.0) -> tuple[Told, Pulse]:
    told = Told()
    return told, Pulse(cast(Any, told), Clock(now=lambda: told.now), seconds)


def test_a_heart_that_stops_is_missed_after_so_many_seconds_and_found_again() -> None:
    told, pulse = heard()
    for now in range(30):
        told.now = float(now)
        if now % 2 == 0 and (now <= 10 or now >= 24):
            told.beat(1)
        told.beat(2)
        pulse.look()
        assert pulse.silent(1) == (17 <= now < 24), now
        assert not pulse.silent(2)
        assert not pulse.silent(99)


def test_a_stock_node_promised_nothing_and_no_limit_judges_nobody() -> None:
    for interval, seconds in ((30.0, 7.0), (10.0, 7.0), (PROMISE, 0.0)):
        told, pulse = heard(seconds)
        told.beat(1, interval)
        for now in range(40):
            told.now = float(now)
            pulse.look()
            assert not pulse.silent(1)


def test_looking_costs_one_request_a_second() -> None:
    told, pulse = heard()
    for tenth in range(100):
        told.now = tenth / 10
        pulse.look()
    assert told.asked <= 10 / LOOK_SECONDS + 1


def test_a_killed_node_is_known_within_ten_seconds() -> None:
    assert DeploySettings().silent_seconds + 2 * LOOK_SECONDS < 10
    assert DeploySettings().silent_seconds > 3 * BEAT_SECONDS
