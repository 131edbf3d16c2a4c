"""Who trains with whom in round r: groups are formed, some are sampled, each becomes a chain (Alg. 1, lines 3-5 and 8)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.chain import Chain, Plan
from fedgsp.core.errors import InputError
from fedgsp.core.params import OMIT_DEFAULT, require_choice, require_real, require_whole
from fedgsp.core.part import Part
from fedgsp.plan.checks import checked_drawn_in, checked_groups, checked_labels, checked_shape, checked_wanted
from fedgsp.plan.groupers import NOBODY, Fixed, Grouper, Random
from fedgsp.plan.growth import Growth, floor_of

if TYPE_CHECKING:
    from fedgsp.core.profiles import Profiles
    from fedgsp.core.seeds import Seeds

Order = Literal["shuffled", "fixed"]
Sampling = Literal["fixed", "poisson"]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class RoundSizes:
    """What is known of a round before it is planned, so that a dry run is instant.

    `wanted` is the growth function's own number of groups and `groups` what is left of it with this many clients; every chain
    has between `shortest` and `longest` clients, `grouped` clients are in some group, `sampled` groups train, and at most
    `trained` clients, each visited `passes` times. Where sizes depend on the clients' data, or on a draw (each group with the
    probability `share`), these are a guess: `about`.

    Args:
        round: The round.
        wanted: What the growth function asks for.
        groups: How many groups there are.
        shortest: Clients in the shortest chain.
        longest: Clients in the longest chain.
        grouped: Clients that are in some group.
        sampled: Groups that train.
        trained: Clients that train, at most.
        passes: How often a chain is walked.
        about: Whether sizes are a guess.
        share: The probability with which each group is drawn, if it is.
    """

    round: int
    wanted: int
    groups: int
    shortest: int
    longest: int
    grouped: int
    sampled: int
    trained: int
    passes: int = 1
    about: bool = False
    share: float | None = None

    @property
    def capped(self) -> bool:
        """Whether the growth function asked for more groups than there are clients."""
        return self.wanted > self.groups


def require_share(where: str, kappa: object, of: str) -> None:
    """Raise an InputError unless `kappa` is a share of clients or groups that train."""
    if not 0 < require_real(where, "kappa", kappa) <= 1:
        raise InputError(
            f"{where}: kappa must be above 0 and at most 1, but is {kappa!r}; it is the share of {of} that train in a round."
        )


def share_of(kappa: float, count: int) -> int:
    """floor(kappa * count), at least one: how many groups or clients a share of them is."""
    return max(1, floor_of(kappa * count))


class Planner(Part):
    """The base of all planners: who trains with whom in a round."""

    @abstractmethod
    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """The chains of one round: a pure function of its arguments.

        Args:
            round_: The round, 1 = the first.
            profiles: The clients that are there: their numbers, class counts and samples.
            seeds: The run's randomness: `seeds.plan(round_)` and `seeds.groups(round_)` are for planners.

        Returns:
            The chains, how many groups were formed and how many clients are in none.
        """

    @abstractmethod
    def schedule(self, round_: int, clients: int) -> RoundSizes:
        """The round's sizes, without grouping anybody: so that a dry run is instant.

        Args:
            round_: The round, 1 = the first.
            clients: How many clients there are.

        Returns:
            What `plan` will keep to; `about=True` where that depends on the clients' data.
        """


@dataclass(frozen=True)
class Grouped(Planner):
    """The usual planner: form f(r) groups, sample a share `kappa` of them, train each as a chain.

    Args:
        growth: How many groups there are in each round.
        grouper: Who is in which group.
        kappa: The share of groups that train in a round, above 0 and at most 1.
        order: "shuffled" draws a chain's order anew each round, as STP demands; "fixed" keeps the order that was drawn when the
            group was formed, the same in all rounds if the groups are `Fixed`.
        chains: Train just so many groups in a round, or all if there are fewer; 0: the share `kappa` of them.
        sampling: "fixed" draws that number of groups; "poisson" draws each with the probability `kappa`, whatever becomes of
            the others, for the server rule `private`: nobody trains in some rounds.

    Raises:
        InputError: If a parameter cannot be used.

    Example:
        >>> from fedgsp.plan import ICG, Log
        >>> sizes = Grouped(Log(2, 10), ICG(), kappa=0.3).schedule(round_=3, clients=368)
        >>> sizes.groups, sizes.longest, sizes.sampled
        (30, 12, 9)
    """

    kind: ClassVar[str] = "grouped"

    growth: Growth
    grouper: Grouper
    kappa: float = 0.3
    order: Order = "shuffled"
    chains: int = field(default=0, metadata=OMIT_DEFAULT)
    sampling: Sampling = field(default="fixed", metadata=OMIT_DEFAULT)

    def __post_init__(self) -> None:
        require_share("Grouped", self.kappa, "groups")
        require_whole("Grouped", "chains", self.chains, at_least=0)
        require_choice("Grouped", "order", self.order, get_args(Order))
        require_choice("Grouped", "sampling", self.sampling, get_args(Sampling))
        if self.poisson and self.chains:
            raise InputError("Grouped: with sampling 'poisson' nobody knows how many groups will train; leave out chains.")

    @property
    def poisson(self) -> bool:
        """Whether groups are drawn each by itself."""
        return self.sampling == "poisson"

    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """Alg. 1, lines 3-5: regroup, sample groups without replacement, order each chain."""
        rng = seeds.groups(checked_drawn_in(self.grouper, self.grouper.drawn_in(round_), round_))
        labels = assigned(self.grouper, profiles, self._groups(round_, len(profiles)), rng)
        as_formed = rng.permutation(len(profiles))
        formed = np.unique(labels[labels >= 0])

        rng = seeds.plan(round_)  # the sample is drawn before any order, so that `order` does not change who trains
        sample = self._drawn(formed, rng)
        order = rng.permutation(len(profiles)) if self.order == "shuffled" else as_formed
        return Plan(
            round=round_,
            chains=tuple(map(Chain, _members(sample, labels, order, profiles))),
            groups=len(formed),
            left_out=int((labels < 0).sum()),
            share=self.kappa if self.poisson else None,
        )

    def _drawn(self, formed: Labels, rng: np.random.Generator) -> Labels:
        """The groups that train, in the order of their labels."""
        if self.poisson:
            return formed[rng.random(len(formed)) < self.kappa]
        return np.sort(rng.choice(formed, self.sampled(len(formed)), replace=False))

    def sampled(self, groups: int) -> int:
        """m = floor(kappa f), at least one; or as many as `chains` says."""
        return min(self.chains, groups) if self.chains else share_of(self.kappa, groups)

    def schedule(self, round_: int, clients: int) -> RoundSizes:
        """The round's sizes for that many clients, without grouping anybody."""
        groups = self._groups(round_, clients)
        shape, sampled = checked_shape(self.grouper, self.grouper.shape(clients, groups), clients, groups), self.sampled(groups)
        return RoundSizes(
            round=round_,
            wanted=checked_wanted(self.growth, self.growth.wanted(round_), round_, groups),
            groups=groups,
            shortest=shape.shortest,
            longest=shape.longest,
            grouped=shape.grouped,
            sampled=sampled,
            trained=min(sampled * shape.longest, shape.grouped - (groups - sampled) * shape.shortest),
            about=shape.about or self.poisson,
            share=self.kappa if self.poisson else None,
        )

    def _groups(self, round_: int, clients: int) -> int:
        return checked_groups(self.growth, self.growth.groups(round_, clients), round_, clients)


def _members(
    sample: NDArray[np.int64], labels: NDArray[np.int64], order: NDArray[np.int64], profiles: Profiles
) -> list[tuple[int, ...]]:
    """Each sampled group's client numbers, in the order in which their rows stand in `order` (a permutation of all rows).

    One stable sort for all groups: looking for each group among all clients would be quadratic.
    """
    rows = order[np.argsort(labels[order], kind="stable")]
    begins, ends = (np.searchsorted(labels[rows], sample, side=side) for side in ("left", "right"))
    return [tuple(profiles.clients[rows[begin:end]].tolist()) for begin, end in zip(begins, ends, strict=True)]


def assigned(grouper: Grouper, profiles: Profiles, groups: int, rng: np.random.Generator) -> Labels:
    """Labels (K,): `grouper`'s for those whose counts are known, the others dealt evenly at random.

    Where too few are known to form that many groups, everybody is dealt. A grouper that does not look at the data is not
    disturbed: it gives the same groups whether or not clients tell.
    """
    if profiles.known is None or _blind(grouper):
        return checked_labels(grouper, grouper.assign(profiles.counts, groups, rng), len(profiles), groups)
    labels = np.full(len(profiles), NOBODY, dtype=np.int64)
    known, others = np.flatnonzero(profiles.known), np.flatnonzero(~profiles.known)
    if len(known) >= groups:
        labels[known] = checked_labels(grouper, grouper.assign(profiles.counts[known], groups, rng), len(known), groups)
    else:
        others = np.arange(len(profiles))
    labels[others] = dealt(len(others), groups, rng)
    return labels


def dealt(count: int, groups: int, rng: np.random.Generator) -> Labels:
    """Labels (count,): every group gets as many, or one more, in a random order and at random."""
    turns = -(-count // groups)
    order = np.concatenate([np.empty(0, dtype=np.int64), *(rng.permutation(groups) for _ in range(turns))])[:count]
    return rng.permutation(order)


def shares(sizes: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
    """How many of `count` clients go to each group of the given sizes: evenly, as far as there is room, and at random."""
    room = np.asarray(sizes, dtype=np.int64)
    given = np.zeros(len(room), dtype=np.int64)
    for _ in range(count):
        open_ = np.flatnonzero(given < room)
        least = open_[given[open_] == given[open_].min()]
        given[rng.choice(least)] += 1
    return [int(n) for n in given]


def _blind(grouper: Grouper) -> bool:
    """Whether a grouper looks at the number of clients only."""
    return isinstance(grouper.grouper if isinstance(grouper, Fixed) else grouper, Random)
