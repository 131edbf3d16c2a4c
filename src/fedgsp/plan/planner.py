"""Who trains with whom in round r: groups are formed, some are sampled, each becomes a chain (Alg. 1, lines 3-5 and 8)."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.chain import Chain, Plan
from fedgsp.core.errors import InputError
from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.plan.checks import require_choice, require_real
from fedgsp.plan.exact import as_written
from fedgsp.plan.given import checked_drawn_in, checked_groups, checked_shape, checked_wanted
from fedgsp.plan.groupers import Grouper
from fedgsp.plan.growth import Growth
from fedgsp.plan.unknown import assigned

Order = Literal["shuffled", "fixed"]


@dataclass(frozen=True)
class Schedule:
    """What is known of a round before it is planned, so that a dry run is instant.

    `wanted` is the growth function's own number of groups and `groups` what is left of it with this many clients; every chain
    has between `shortest` and `longest` clients, `grouped` clients are in some group, `sampled` groups train, and at most
    `trained` clients, each visited `passes` times. Where sizes depend on the clients' data these are a guess: `about`.
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

    @property
    def capped(self) -> bool:
        """Whether the growth function asked for more groups than there are clients."""
        return self.wanted > self.groups


class Planner(Protocol):
    """Answers who trains with whom."""

    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """The chains of one round: a pure function of its arguments."""
        ...

    def schedule(self, round_: int, clients: int) -> Schedule:
        """The round's sizes for that many clients, without grouping anybody."""
        ...


@dataclass(frozen=True)
class Grouped:
    """The usual planner: form f(r) groups, sample a share `kappa` of them, train each as a chain.

    With `order` "shuffled" a chain's order is drawn anew each round, as STP demands; "fixed" keeps the order that was drawn
    when the group was formed, the same in all rounds if the groups are `Fixed`.
    """

    growth: Growth
    grouper: Grouper
    kappa: float = 0.3
    order: Order = "shuffled"

    def __post_init__(self) -> None:
        if not 0 < require_real("Grouped", "kappa", self.kappa) <= 1:
            raise InputError(
                f"Grouped: kappa must be above 0 and at most 1, but is {self.kappa!r}; it is the share of groups "
                "that train in a round."
            )
        require_choice("Grouped", "order", self.order, get_args(Order))

    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """Alg. 1, lines 3-5: regroup, sample groups without replacement, order each chain."""
        rng = seeds.groups(checked_drawn_in(self.grouper, self.grouper.drawn_in(round_), round_))
        labels = assigned(self.grouper, profiles, self._groups(round_, len(profiles)), rng)
        as_formed = rng.permutation(len(profiles))
        formed = np.unique(labels[labels >= 0])

        rng = seeds.plan(round_)  # the sample is drawn before any order, so that `order` does not change who trains
        sample = np.sort(rng.choice(formed, self.sampled(len(formed)), replace=False))
        order = rng.permutation(len(profiles)) if self.order == "shuffled" else as_formed
        return Plan(
            round=round_,
            chains=tuple(map(Chain, _members(sample, labels, order, profiles))),
            groups=len(formed),
            left_out=int((labels < 0).sum()),
        )

    def sampled(self, groups: int) -> int:
        """m = floor(kappa f), at least one; exact, so that a share of .7 of 90 groups is 63."""
        return max(1, floor(as_written(self.kappa) * groups))

    def schedule(self, round_: int, clients: int) -> Schedule:
        """The round's sizes for that many clients, without grouping anybody."""
        groups = self._groups(round_, clients)
        shape, sampled = checked_shape(self.grouper, self.grouper.shape(clients, groups), clients, groups), self.sampled(groups)
        return Schedule(
            round=round_,
            wanted=checked_wanted(self.growth, self.growth.wanted(round_), round_, groups),
            groups=groups,
            shortest=shape.shortest,
            longest=shape.longest,
            grouped=shape.grouped,
            sampled=sampled,
            trained=min(sampled * shape.longest, shape.grouped - (groups - sampled) * shape.shortest),
            about=shape.about,
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
