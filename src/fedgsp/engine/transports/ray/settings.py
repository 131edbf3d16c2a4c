"""How a run uses a Ray cluster: where it is, what a worker takes of it, how data gets to the workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedgsp.core.errors import InputError

Holding = Literal["auto", "files", "store", "shards"]
NAMES = {"cpu": "CPU", "gpu": "GPU", "memory": "memory"}
"""Resources that Ray has names of its own for; all others are a cluster's own."""


@dataclass(frozen=True)
class RaySettings:
    """`address` of an existing cluster (None: RAY_ADDRESS, else a Ray of our own on this machine); `resources` of one worker.

    `workers` is how many are asked for, which an autoscaling cluster takes as its cue; None is as many as there is room for.
    `data` says how samples get to the workers: read in place from files that every node sees ("files"), a copy in each node's
    object store ("store"), divided among the workers ("shards"), or the first of these that works ("auto").
    """

    address: str | None = None
    resources: tuple[tuple[str, float], ...] = (("CPU", 1.0),)
    workers: int | None = None
    data: Holding = "auto"


def parse_resources(text: str | None) -> tuple[tuple[str, float], ...]:
    """`cpu=1,gpu=0.25,memory=2e9,tpu=1` as Ray's names and amounts; a worker takes one CPU unless told otherwise."""
    found = {"CPU": 1.0}
    for entry in (text or "").split(","):
        name, equals, amount = (piece.strip() for piece in entry.partition("="))
        if not entry.strip():
            continue
        try:
            value = float(amount)
        except ValueError:
            value = math.nan
        if not (name and equals and math.isfinite(value) and value >= 0):
            raise InputError(f"--resources wants NAME=AMOUNT,.. for one worker, such as cpu=1,gpu=0.25; not '{text}'.")
        found[NAMES.get(name.lower(), name)] = value
    if not any(found.values()):
        raise InputError("--resources: a worker that takes nothing of a node could be placed on one without end.")
    return tuple(found.items())


def room(node: dict[str, float], resources: tuple[tuple[str, float], ...]) -> int:
    """How many workers a node with these resources could hold."""
    wanted = [(name, amount) for name, amount in resources if amount > 0]
    return min((int(node.get(name, 0.0) / amount + 1e-9) for name, amount in wanted), default=0)
