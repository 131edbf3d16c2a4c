"""Federations of y = w x whose every step is a line of plain Python: references that share no code with the package."""

from __future__ import annotations

from collections.abc import Sequence

import fedgsp
from fedgsp.client import SGD
from fedgsp.method import Method
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.server import ServerRule
from tests.support.small_federations import pairs, weight

Client = tuple[float, float, int]
"""(x, y, how many times the client has that one sample): all its samples are alike, so their order cannot matter."""
THREE: tuple[Client, ...] = ((1.0, 2.0, 1), (2.0, 2.0, 2), (-1.0, 1.0, 4))
START = 0.5


def slope(x: float, y: float, w: float) -> float:
    """The derivative of (w x - y)^2."""
    return 2 * x * (w * x - y)


def trained(local: SGD, server: ServerRule, rounds: int, clients: Sequence[Client] = THREE, start: float = START) -> float:
    """What w becomes when all clients train in every round, each alone; batches of one sample unless `local` says otherwise."""
    data = pairs(*[[(x, y)] * count for x, y, count in clients])
    method = Method(Grouped(Singletons(), Random(), kappa=1.0), local, server)
    state = fedgsp.train(method, data, lambda: weight(start), rounds=rounds, workers=0).state
    return state.model["weight"].item()
