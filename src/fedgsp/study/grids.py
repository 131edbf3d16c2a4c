"""The grids over which a method is tuned, on validation samples, before it is compared: what its parts say (`tuned_over`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedgsp.method import Method

CHOSEN: Mapping[str, tuple[str, ...]] = {
    "fedgsp+momentum": ("lr=0.003,0.01,0.03", "server_lr=0.1,0.316,1"),
    "fedgsp+yogi": ("lr=0.003,0.01,0.03", "server_lr=0.00316,0.01,0.0316"),
    "fedgsp+prox": ("lr=0.003,0.01,0.03,0.1", "mu=0.01,0.1"),
    "fedadam+warm": ("lr=0.01,0.03,0.1", "server.server.lr=0.00316,0.01,0.0316"),
    "fedyogi+warm": ("lr=0.01,0.03,0.1", "server.server.lr=0.00316,0.01,0.0316"),
}
"""For combinations that the studies try: smaller ones, or as many points as the rule inside has by itself."""


def grid_of(method: Method) -> tuple[str, ...]:
    """What a method is tuned over: the learning rate, then what its parts add; the server's defaults stand for the paper's."""
    if method.name in CHOSEN:
        return CHOSEN[method.name]
    axes = dict(method.local.tuned_over)
    for role, part in (("planner", method.planner), ("server", method.server)):
        for name, values in part.tuned_over.items():
            axes[{"local.lr": "lr", "lr": "server_lr", "rounds": f"{role}.rounds"}.get(name, name)] = values
    return tuple(f"{name}={','.join(map(str, values))}" for name, values in axes.items())
