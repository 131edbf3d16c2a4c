"""The sites of a deployment as its event log knows them: who joined, changed or left, and when.

Two kinds of events: `federation` (once: what all samples are like, and what models are on the wire) and `sites` (whenever
something changed: members that are new or different, whole, and the numbers of those that left). With the `round`, `skipped`
and `not_judged` events they are all that a replay must know beside configuration and data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.profiles import Profiles
from fedgsp.core.wire import FULL, Wire
from fedgsp.data.federated import PARTS, FederatedData, Part
from fedgsp.engine.job import HopSkipped, NotJudged
from fedgsp.run.files import read_lines


@dataclass(frozen=True)
class Kind:
    """What all samples of a federation are like, and what a model is on the wire: fixed when a run begins."""

    classes: int
    shape: tuple[int, ...]
    dtype: str
    divisor: float
    wire: Wire = FULL

    def fingerprint(self) -> str:
        """What stands for the data in a run's identity: sites come and go, and their samples change, but not this."""
        return hashlib.sha256(f"fedgsp-sites-1|{self}".encode()).hexdigest()


@dataclass(frozen=True)
class Member:
    """A site: its number in the run, its name, how many samples it has, and what it tells of their classes (None: nothing)."""

    number: int
    name: str
    version: str
    train: int
    validation: int
    test: int
    counts: tuple[int, ...] | None

    @classmethod
    def decode(cls, table: Mapping[str, Any]) -> Member:
        """From a line of the event log."""
        counts = table["counts"]
        return cls(**{**table, "counts": None if counts is None else tuple(counts)})


@dataclass(frozen=True, eq=False)
class Outline(FederatedData):
    """A federation without its samples: who has how many of each part. What a server plans, weighs and asks by.

    Features and labels are a single zero that is looked at as often as there are rows, so it takes no memory; rows are numbered
    part by part, client by client. Class counts are those that sites tell.
    """

    kind: Kind | None = None
    told: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))

    @property
    def _counts(self) -> NDArray[np.int64]:
        return self.told

    @property
    def fingerprint(self) -> str:
        """See `Kind.fingerprint`."""
        assert self.kind is not None
        return self.kind.fingerprint()

    def with_validation(self, fraction: float, data_seed: int) -> FederatedData:
        """Sites have carved it out already."""
        return self


def outline(kind: Kind, members: Iterable[Member]) -> Outline:
    """The federation of these members, each at its number; numbers that nobody has are empty."""
    by_number = {member.number: member for member in members}
    count = max(by_number, default=-1) + 1
    parts: dict[str, Any] = {}
    begin = 0
    for part in PARTS:
        sizes = [getattr(by_number[k], part) if k in by_number else 0 for k in range(count)]
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        parts[part] = Part(np.arange(begin, begin + offsets[-1], dtype=np.int64), offsets)
        begin += int(offsets[-1])
    told = np.zeros((count, max(1, kind.classes)), dtype=np.int64)
    for member in by_number.values():
        if member.counts is not None:
            told[member.number, : len(member.counts)] = member.counts
    label = np.zeros((), dtype=np.int64 if kind.classes else np.float32)
    return Outline(
        features=np.broadcast_to(np.zeros((), dtype=kind.dtype), (max(1, begin), *kind.shape)),
        labels=np.broadcast_to(label, (max(1, begin),)),
        clients=tuple(by_number[k].name if k in by_number else "" for k in range(count)),
        classes=kind.classes, divisor=kind.divisor, kind=kind, told=told, **parts,
    )  # fmt: skip


def made_up(like: FederatedData, samples: int = 64) -> FederatedData:
    """Two clients with random samples of the same kind, for a server that has none but must try something out."""
    rng, shape, dtype = np.random.default_rng(0), like.sample_shape, like.features.dtype
    if np.issubdtype(dtype, np.floating):
        features = rng.normal(size=(2 * samples, *shape)).astype(dtype)
    else:
        features = rng.integers(0, 256 if dtype == np.uint8 else 2, (2 * samples, *shape)).astype(dtype)
    labels = rng.integers(0, like.classes, 2 * samples) if like.classes else rng.normal(size=2 * samples).astype(np.float32)
    train = Part.of([np.arange(samples), np.arange(samples, 2 * samples)])
    return FederatedData(
        features, labels, ("made up 1", "made up 2"), train, Part.empty(2), Part.empty(2), like.classes, like.divisor
    )


def profiles_of(kind: Kind, members: Iterable[Member]) -> Profiles:
    """What a planner may know of the members that can train, in the order of their numbers."""
    there = sorted((member for member in members if member.train > 0), key=lambda member: member.number)
    counts = np.zeros((len(there), max(1, kind.classes)), dtype=np.int64)
    for row, member in enumerate(there):
        if member.counts is not None:
            counts[row, : len(member.counts)] = member.counts
    known = np.array([member.counts is not None for member in there], dtype=bool)
    numbers, sizes = (np.array([getattr(m, name) for m in there], dtype=np.int64) for name in ("number", "train"))
    return Profiles(numbers, counts, sizes, None if known.all() else known)


@dataclass
class Attempt:
    """The attempt at a round that counted: who was there, how often it was tried, and what went wrong in it."""

    members: dict[int, Member]
    number: int = 1
    skipped: list[HopSkipped] = field(default_factory=list)
    not_judged: list[NotJudged] = field(default_factory=list)


@dataclass
class Log:
    """An event log of a deployment, folded: `known` are all sites ever seen, `here` those that have not left."""

    run: str | None = None
    kind: Kind | None = None
    first: dict[int, Member] = field(default_factory=dict)
    known: dict[int, Member] = field(default_factory=dict)
    here: dict[int, Member] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Log:
        """Of a run directory; without a `federation` in it, the run was not a deployment."""
        log = cls()
        if (path / "events.jsonl").exists():
            for event in read_lines(path / "events.jsonl"):
                log.take(event)
        return log

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold one event in."""
        what = event["event"]
        if what == "federation":
            self.run = event["run"]
            self.kind = Kind(**{**event["about"], "shape": tuple(event["about"]["shape"])})
        elif what == "sites":
            for table in event["members"]:
                member = Member.decode(table)
                self.known[member.number] = self.here[member.number] = member
            for number in event["left"]:
                self.here.pop(number, None)
            if not self.first:
                self.first = dict(self.here)
        elif what == "round":
            self.attempts[event["round"]] = Attempt(dict(self.here), event.get("attempt", 1))
        elif what == "skipped":
            self.attempts[event["round"]].skipped.append(
                HopSkipped(
                    event["round"], event["chain"], event["hop"], event["client"], event.get("cause", ""),
                    event.get("bytes", 0), event.get("seconds", 0.0),
                )
            )  # fmt: skip
        elif what == "not_judged":
            self.attempts[event["round"]].not_judged.append(NotJudged(event["round"], event["client"], event["cause"]))

    def data_changed_in(self) -> tuple[int, str] | None:
        """The first round in which a site had other data than when it joined, and its name."""
        versions: dict[int, str] = {}
        for round_, attempt in sorted(self.attempts.items()):
            for number, member in attempt.members.items():
                if versions.setdefault(number, member.version) != member.version:
                    return round_, member.name
        return None


def changes(before: Mapping[int, Member], now: Mapping[int, Member]) -> dict[str, Any] | None:
    """The facts of a `sites` event that leads from one roster to the other; None where nothing changed."""
    new = [asdict(member) for number, member in sorted(now.items()) if before.get(number) != member]
    left = sorted(before.keys() - now.keys())
    return {"members": new, "left": left} if new or left else None


def gathered(data: FederatedData, log: Log) -> FederatedData:
    """All the sites' samples from one federation that has them: by their names, or else by their numbers."""
    members = log.known
    names = {name: k for k, name in enumerate(data.clients)}
    if all(member.name in names for member in members.values()):
        place = {number: names[member.name] for number, member in members.items()}
    elif all(number < len(data) for number in members):
        place = {number: number for number in members}
    else:
        unknown = next(member.name for member in members.values() if member.name not in names)
        raise InputError(f"{data.source or 'the data'} has no client '{unknown}', which was a site of this run.")
    count = max(members, default=-1) + 1
    nothing = np.empty(0, dtype=np.int64)
    parts: dict[str, Any] = {
        part: Part.of([getattr(data, part)[place[k]] if k in place else nothing for k in range(count)]) for part in PARTS
    }
    return replace(data, clients=tuple(members[k].name if k in members else "" for k in range(count)), **parts)
