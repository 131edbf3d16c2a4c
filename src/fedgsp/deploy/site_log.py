"""The sites of a deployment as its event log knows them: who joined, changed or left, and when.

Two kinds of events: `federation` (once: what all samples are like, and what models are on the wire) and `sites` (whenever
something changed: members that are new or different, whole, and the numbers of those that left). With the `round`, `skipped`
and `not_judged` events they are all that a replay must know beside configuration and data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.core.profiles import Profiles
from fedgsp.core.tensors import FULL, Wire
from fedgsp.data.federated import SPLITS, FederatedData, Rows, Split
from fedgsp.data.outline import DataOutline, capped, outlined, recounted
from fedgsp.engine.transports.flower.update_guard import voted
from fedgsp.run.participants import Participants, RecordEvent, Work
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


def announced_sizes(members: Iterable[SiteRecord]) -> dict[str, Rows]:
    """What members announce, split by split, each at its number; numbers that nobody has are empty."""
    there = list(members)
    numbers = np.array([member.number for member in there], dtype=np.int64)
    found = {}
    for part in SPLITS:
        sizes = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.int64)
        sizes[numbers] = [getattr(member, part) for member in there]
        found[part] = sizes
    return found


def counted_sizes(members: Iterable[SiteRecord], bound: float | None) -> dict[str, Rows]:
    """What members count for, split by split: at most `bound` times the median of what all announce."""
    return {part: capped(sizes, bound) for part, sizes in announced_sizes(members).items()}


def outline(samples: SampleFormat, members: Iterable[SiteRecord], bound: float | None = None) -> DataOutline:
    """The federation of these members, each at its number; numbers that nobody has are empty."""
    by_number = {member.number: member for member in members}
    announced, counted = announced_sizes(by_number.values()), counted_sizes(by_number.values(), bound)
    count, begin = len(announced["train"]), 0
    parts: dict[str, Any] = {}
    for part in SPLITS:
        parts[part] = outlined(announced[part], counted[part], begin)
        begin += len(parts[part].rows)
    told = {number: member.counts for number, member in by_number.items() if member.counts is not None}
    label = np.zeros((), dtype=np.int64 if samples.classes else np.float32)
    return DataOutline(
        features=np.broadcast_to(np.zeros((), dtype=samples.dtype), (max(1, begin), *samples.shape)),
        labels=np.broadcast_to(label, (max(1, begin),)),
        clients=tuple(by_number[k].name if k in by_number else "" for k in range(count)),
        classes=samples.classes, divisor=samples.divisor, identity=samples.fingerprint(), told=told, **parts,
    )  # fmt: skip


def profiles_of(samples: SampleFormat, members: Iterable[SiteRecord], bound: float | None = None) -> Profiles:
    """What a planner may know of the members that can train, in the order of their numbers.

    Where one counts for less than it announces, its class counts shrink alike.
    """
    there = sorted((member for member in members if member.train > 0), key=lambda member: member.number)
    announced = np.array([member.train for member in there], dtype=np.int64)
    sizes = capped(announced, bound)
    counts = np.zeros((len(there), max(1, samples.classes)), dtype=np.int64)
    for row, member in enumerate(there):
        if member.counts is not None:
            own = np.array(member.counts, dtype=np.int64)
            counts[row, : len(own)] = own if sizes[row] == announced[row] else own * int(sizes[row]) // int(announced[row])
    known = np.array([member.counts is not None for member in there], dtype=bool)
    numbers = np.array([member.number for member in there], dtype=np.int64)
    return Profiles(numbers, counts, sizes, None if known.all() else known)


@dataclass
class SiteLog(RecordedRounds):
    """An event log of a deployment, folded: `known` are all sites ever seen (`joined`: as they were then), `here` those
    that have not left.

    `members` are the sites that were there in each round, `trained` the numbers of those whose training was taken in. Without
    a `federation` in it, the run was not a deployment.
    `weight_bound` is how many times the median a site counts for (0, or None in runs of earlier versions: no limit), `votes`
    what sites' updates say of how long one may be (`transports/flower/update_guard.py`).
    """

    run: str | None = None
    samples: SampleFormat | None = None
    weight_bound: float | None = None
    votes: dict[str, dict[int, float]] = field(default_factory=dict)
    first: dict[int, SiteRecord] = field(default_factory=dict)
    joined: dict[int, SiteRecord] = field(default_factory=dict)
    known: dict[int, SiteRecord] = field(default_factory=dict)
    here: dict[int, SiteRecord] = field(default_factory=dict)
    members: dict[int, dict[int, SiteRecord]] = field(default_factory=dict)
    trained: dict[int, set[int]] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold one event in."""
        super().take(event)
        if event["event"] == "federation":
            self.run = event["run"]
            self.samples = SampleFormat(**{**event["about"], "shape": tuple(event["about"]["shape"])})
            self.weight_bound = event.get("weight_bound")
        elif event["event"] == "sites":
            for table in event["members"]:
                site = SiteRecord.decode(table)
                self.known[site.number] = self.here[site.number] = site
                self.joined.setdefault(site.number, site)
            for number in event["left"]:
                self.here.pop(number, None)
            if not self.first:
                self.first = dict(self.here)
        elif event["event"] == "round":
            self.members[event["round"]], self.trained[event["round"]] = dict(self.here), set()
        elif event["event"] == "hop":
            self.trained.setdefault(event["round"], set()).add(event["client"])
            for what, length in event.get("lengths", {}).items():
                voted(self.votes, what, event["client"], length, into=self.votes)

    @property
    def bound(self) -> float | None:
        """How many times the median a site counted for at most; None: there was no limit."""
        return self.weight_bound or None

    def data_changed_in(self) -> tuple[int, str] | None:
        """The first round to which a site contributed with other data than before, and its name.

        Who says it has new data and then is skipped wherever it is asked has changed nothing.
        """
        versions: dict[int, str] = {}
        for round_, member in self.contributions():
            if versions.setdefault(member.number, member.version) != member.version:
                return round_, member.name
        return None

    def contributions(self) -> Iterator[tuple[int, SiteRecord]]:
        """Each round and a site of which something was taken in then: its training, or scores."""
        for round_, members in sorted(self.members.items()):
            silent = {one.client for one in self.of(round_).not_evaluated}
            for number, member in members.items():
                scored = (member.test or member.validation) and number not in silent
                if scored or number in self.trained[round_]:
                    yield round_, member


def changes(before: Mapping[int, SiteRecord], now: Mapping[int, SiteRecord]) -> dict[str, Any] | None:
    """The facts of a `sites` event that leads from one list of sites to the other; None where nothing changed."""
    new = [asdict(member) for number, member in sorted(now.items()) if before.get(number) != member]
    left = sorted(before.keys() - now.keys())
    return {"members": new, "left": left} if new or left else None


def gathered(data: FederatedData, log: SiteLog, carved: bool = False) -> FederatedData:
    """All the sites' samples from one federation that has them: by their names, or else by their numbers.

    Sites that only said they were there have none.
    `carved` says that sites had their validation samples out of their training samples, where they still are here.
    """
    members, needed = log.known, {member.number: member for _, member in log.contributions()}
    names = {name: k for k, name in enumerate(data.clients)}
    if all(member.name in names for member in needed.values()):
        place = {number: names[member.name] for number, member in members.items() if member.name in names}
    elif all(number < len(data) for number in needed):
        place = {number: number for number in members if number < len(data)}
    else:
        unknown = next(member.name for member in needed.values() if member.name not in names)
        raise InputError(f"{data.source or 'the data'} has no client '{unknown}', which was a site of this run.")
    count = max(members, default=-1) + 1
    nothing = np.empty(0, dtype=np.int64)

    def rows(part: str, number: int) -> Rows:
        if number not in place:
            return nothing
        first = log.joined[number]  # a site whose sizes are noised uses no more samples than it announces
        most = first.train + first.validation if carved and part == "train" else getattr(first, part)
        own: Rows = getattr(data, part)[place[number]]
        return own[:most]

    parts: dict[str, Any] = {part: Split.of([rows(part, k) for k in range(count)]) for part in SPLITS}
    return replace(data, clients=tuple(members[k].name if k in members else "" for k in range(count)), **parts)


def participants_of(
    samples: SampleFormat, members: Mapping[int, SiteRecord], attempt: int, bound: float | None,
    data: FederatedData | None = None,
) -> Participants:  # fmt: skip
    """A round's participants; `data` are their samples, or without it the outline of the federation."""
    there = sorted(members)
    if data is None:
        seen: FederatedData = outline(samples, members.values(), bound)
    else:
        counted = counted_sizes(members.values(), bound)
        seen = recounted(data, {part: np.pad(sizes, (0, len(data) - len(sizes))) for part, sizes in counted.items()})
    numbers = np.array(there, dtype=np.int64)
    facts = {"present": len(there)}
    return Participants(profiles_of(samples, members.values(), bound), seen, seen, numbers, numbers[:0], attempt, facts)


@dataclass(frozen=True)
class ReplayedAvailability:
    """Who was there, round by round, as the log has it; `data` is what the sites held, all in one place."""

    log: SiteLog
    data: FederatedData
    fixed: bool = False

    def participants(self, round_: int, event: RecordEvent) -> Participants:
        """See `Availability.participants`."""
        assert self.log.samples is not None
        log = self.log
        return participants_of(self.log.samples, log.members[round_], log.of(round_).attempt, log.bound, self.data)

    def counted(self, round_: int) -> Rows:
        """(K,) the training samples that each site counted for in a round."""
        return counted_sizes(self.log.members[round_].values(), self.log.bound)["train"]

    def enough(self, round_: int, trained: Work, planned: Work, event: RecordEvent) -> bool:
        """See `Availability.enough`: it was."""
        return True
