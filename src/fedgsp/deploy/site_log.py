"""The sites of a deployment as its event log knows them: who joined, changed or left, and when.

Two kinds of events: `federation` (once: what all samples are like, and what models are on the wire) and `sites` (whenever
something changed: members that are new or different, whole, and the numbers of those that left). With the `round`, `skipped`
and `not_judged` events they are all that a replay must know beside configuration and data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.core.profiles import Profiles
from fedgsp.core.tensors import FULL, Wire
from fedgsp.data.federated import SPLITS, FederatedData, Split
from fedgsp.data.outline import DataOutline
from fedgsp.run.participants import Participants, RecordEvent
from fedgsp.run.recorded_rounds import RecordedRounds


@dataclass(frozen=True)
class SampleFormat:
    """What all samples of a federation are like, and what a model is on the wire: fixed when a run begins."""

    classes: int
    shape: tuple[int, ...]
    dtype: str
    divisor: float
    wire: Wire = FULL

    def fingerprint(self) -> str:
        """What stands for the data in a run's identity: sites come and go, and their samples change, but not this."""
        text = repr(self).replace(type(self).__name__, "Kind", 1)  # as the first runs have it in their checkpoints
        return hashlib.sha256(f"fedgsp-sites-1|{text}".encode()).hexdigest()


@dataclass(frozen=True)
class SiteRecord:
    """A site: its number in the run, its name, how many samples it has, and what it tells of their classes (None: nothing)."""

    number: int
    name: str
    version: str
    train: int
    validation: int
    test: int
    counts: tuple[int, ...] | None

    @classmethod
    def decode(cls, table: Mapping[str, Any]) -> SiteRecord:
        """From a line of the event log."""
        counts = table["counts"]
        return cls(**{**table, "counts": None if counts is None else tuple(counts)})


def outline(samples: SampleFormat, members: Iterable[SiteRecord]) -> DataOutline:
    """The federation of these members, each at its number; numbers that nobody has are empty."""
    by_number = {member.number: member for member in members}
    count = max(by_number, default=-1) + 1
    parts: dict[str, Any] = {}
    begin = 0
    for part in SPLITS:
        sizes = [getattr(by_number[k], part) if k in by_number else 0 for k in range(count)]
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        parts[part] = Split(np.arange(begin, begin + offsets[-1], dtype=np.int64), offsets)
        begin += int(offsets[-1])
    told = np.zeros((count, max(1, samples.classes)), dtype=np.int64)
    for member in by_number.values():
        if member.counts is not None:
            told[member.number, : len(member.counts)] = member.counts
    label = np.zeros((), dtype=np.int64 if samples.classes else np.float32)
    return DataOutline(
        features=np.broadcast_to(np.zeros((), dtype=samples.dtype), (max(1, begin), *samples.shape)),
        labels=np.broadcast_to(label, (max(1, begin),)),
        clients=tuple(by_number[k].name if k in by_number else "" for k in range(count)),
        classes=samples.classes, divisor=samples.divisor, identity=samples.fingerprint(), told=told, **parts,
    )  # fmt: skip


def profiles_of(samples: SampleFormat, members: Iterable[SiteRecord]) -> Profiles:
    """What a planner may know of the members that can train, in the order of their numbers."""
    there = sorted((member for member in members if member.train > 0), key=lambda member: member.number)
    counts = np.zeros((len(there), max(1, samples.classes)), dtype=np.int64)
    for row, member in enumerate(there):
        if member.counts is not None:
            counts[row, : len(member.counts)] = member.counts
    known = np.array([member.counts is not None for member in there], dtype=bool)
    numbers, sizes = (np.array([getattr(m, name) for m in there], dtype=np.int64) for name in ("number", "train"))
    return Profiles(numbers, counts, sizes, None if known.all() else known)


@dataclass
class SiteLog(RecordedRounds):
    """An event log of a deployment, folded: `known` are all sites ever seen, `here` those that have not left.

    `members` are the sites that were there in each round. Without a `federation` in it, the run was not a deployment.
    """

    run: str | None = None
    samples: SampleFormat | None = None
    first: dict[int, SiteRecord] = field(default_factory=dict)
    known: dict[int, SiteRecord] = field(default_factory=dict)
    here: dict[int, SiteRecord] = field(default_factory=dict)
    members: dict[int, dict[int, SiteRecord]] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold one event in."""
        super().take(event)
        if event["event"] == "federation":
            self.run = event["run"]
            self.samples = SampleFormat(**{**event["about"], "shape": tuple(event["about"]["shape"])})
        elif event["event"] == "sites":
            for table in event["members"]:
                site = SiteRecord.decode(table)
                self.known[site.number] = self.here[site.number] = site
            for number in event["left"]:
                self.here.pop(number, None)
            if not self.first:
                self.first = dict(self.here)
        elif event["event"] == "round":
            self.members[event["round"]] = dict(self.here)

    def data_changed_in(self) -> tuple[int, str] | None:
        """The first round in which a site had other data than when it joined, and its name."""
        versions: dict[int, str] = {}
        for round_, members in sorted(self.members.items()):
            for number, member in members.items():
                if versions.setdefault(number, member.version) != member.version:
                    return round_, member.name
        return None


def changes(before: Mapping[int, SiteRecord], now: Mapping[int, SiteRecord]) -> dict[str, Any] | None:
    """The facts of a `sites` event that leads from one list of sites to the other; None where nothing changed."""
    new = [asdict(member) for number, member in sorted(now.items()) if before.get(number) != member]
    left = sorted(before.keys() - now.keys())
    return {"members": new, "left": left} if new or left else None


def gathered(data: FederatedData, log: SiteLog) -> FederatedData:
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
        part: Split.of([getattr(data, part)[place[k]] if k in place else nothing for k in range(count)]) for part in SPLITS
    }
    return replace(data, clients=tuple(members[k].name if k in members else "" for k in range(count)), **parts)


def participants_of(
    samples: SampleFormat, members: Mapping[int, SiteRecord], attempt: int, data: FederatedData | None = None
) -> Participants:  # fmt: skip
    """A round's participants; `data` are their samples, or without it the outline of the federation."""
    there = sorted(members)
    seen = outline(samples, members.values()) if data is None else data
    numbers = np.array(there, dtype=np.int64)
    facts = {"present": len(there)}
    return Participants(profiles_of(samples, members.values()), seen, seen, numbers, numbers[:0], attempt, facts)


@dataclass(frozen=True)
class ReplayedAvailability:
    """Who was there, round by round, as the log has it; `data` is what the sites held, all in one place."""

    log: SiteLog
    data: FederatedData
    fixed: bool = False

    def participants(self, round_: int, event: RecordEvent) -> Participants:
        """See `Availability.participants`."""
        assert self.log.samples is not None
        return participants_of(self.log.samples, self.log.members[round_], self.log.of(round_).attempt, self.data)

    def enough(self, round_: int, trained: int, planned: int, event: RecordEvent) -> bool:
        """See `Availability.enough`: it was."""
        return True
