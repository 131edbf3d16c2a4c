"""What the driver and its workers say to each other, beside what workers of this machine say too (`engine/worker.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedgsp.core.chain import Chain, HopReport
from fedgsp.core.state import beside
from fedgsp.core.tensors import Tensors
from fedgsp.data.federated import Rows
from fedgsp.engine.ray.parcel import Parcel, unpack
from fedgsp.server.mean import Weighing


@dataclass(frozen=True, eq=False)
class Board:
    """The models of the moment: put into the object store once, read in place by every worker of a node."""

    models: dict[str, Parcel]
    shared: Parcel
    slots: dict[str, Parcel] = field(default_factory=dict)

    def evaluated(self, name: str) -> tuple[Tensors, Tensors]:
        """A model, or a slot that holds one, and what is kept beside it."""
        model = self.models[name] if name in self.models else self.slots[name]
        more = self.slots.get(beside(name))
        return unpack(model), unpack(more) if more is not None else {}


@dataclass(frozen=True, eq=False)
class Kept:
    """What clients have kept: marks of files that the worker sees, or the states themselves where it does not."""

    marks: dict[int, str] = field(default_factory=dict)
    states: dict[int, Parcel] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Baton:
    """What a chain hands on between workers, or to the driver in the end; `model` is None where it was added to a sum."""

    model: Parcel | None
    sent: Parcel
    marks: dict[int, str]
    states: dict[int, Parcel]


@dataclass(frozen=True, eq=False)
class Leg:
    """Hops of one chain that are walked by one worker; all others are `absent` there, those `before` were walked elsewhere.

    `last`: the chain ends with it.
    """

    index: int
    chain: Chain
    absent: frozenset[int]
    kept: Kept
    before: tuple[HopReport, ...] = ()
    last: bool = True


@dataclass(frozen=True, eq=False)
class WalkTask:
    """Legs to walk one after the other: one, or several whole chains that are short. `board` is a reference."""

    legs: tuple[Leg, ...]
    round: int
    board: Any
    weighing: Weighing | None = None

    def label(self) -> str:
        """For a profile."""
        more = len(self.legs) - 1
        return f"round {self.round}, chain {self.legs[0].index}" + (f" and {more} more" if more else "")


@dataclass(frozen=True, eq=False)
class ScoreTask:
    """Score the model `name` of a board on some rows, or on the samples behind the reference `cut`."""

    number: int
    board: Any
    name: str
    rows: Rows
    cut: Any = None
    owner: int | None = None
    round: int = 0
    kept: Kept = field(default_factory=Kept)

    def label(self) -> str:
        """For a profile."""
        return f"round {self.round}, {len(self.rows)} samples"


@dataclass(frozen=True)
class GatherTask:
    """Hand over what was added up in this round, and forget it."""

    round: int

    def label(self) -> str:
        """For a profile."""
        return f"round {self.round}, sums"


Task = WalkTask | ScoreTask | GatherTask


@dataclass(frozen=True)
class Hello:
    """A worker is there: where, what it is made of, whether it sees the driver's files and the folder of client states."""

    node: str
    host: str
    versions: dict[str, str]
    sees_data: bool
    sees_states: bool
    process: int


@dataclass(frozen=True)
class Beat:
    """The worker is well, in the midst of legs that it says nothing else of."""


@dataclass(frozen=True)
class Walked:
    """All legs of a task are walked: their hops, in order. What they hand on comes after this, as an object of its own."""

    hops: tuple[tuple[HopReport, ...], ...]
    peak_memory: int
