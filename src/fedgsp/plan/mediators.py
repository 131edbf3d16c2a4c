"""Astraea's plan: clients are sampled first, then put into mediators, whose chains are walked several times.

Each round c = floor(kappa K) clients are drawn without replacement; they fill mediators of `gamma` clients each (the last may
be smaller); a mediator's clients train one after the other and the whole chain is repeated `passes` times (mediator epochs).
Every visit hands a model down and up, so a round moves `passes` times the traffic of FedAvg with as many clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.chain import Chain, Plan
from fedgsp.core.errors import InputError
from fedgsp.core.params import require_whole
from fedgsp.plan.checks import checked_fill
from fedgsp.plan.greedy_kl import GreedyKL
from fedgsp.plan.groupers import Counts, Random
from fedgsp.plan.planner import Planner, RoundSizes, require_share, share_of, shares

if TYPE_CHECKING:
    from fedgsp.core.profiles import Profiles
    from fedgsp.core.seeds import Seeds


@runtime_checkable
class Filler(Protocol):
    """A grouper that can fill groups of given sizes."""

    def fill(
        self, counts: Counts, sizes: Sequence[int], rng: np.random.Generator, population: Counts | None = None
    ) -> NDArray[np.int64]:
        """Labels (K,); group g has `sizes[g]` clients."""
        ...


@dataclass(frozen=True)
class Mediators(Planner):
    """Astraea's planner: sample clients, group them into mediators, walk each mediator's chain several times.

    Args:
        kappa: The share of clients that train in a round, above 0 and at most 1.
        gamma: Clients of a mediator.
        passes: How often a mediator's chain is walked.
        grouper: Who is in which mediator: `GreedyKL`, `Random`, or anything with their `fill`.

    Raises:
        InputError: If a parameter cannot be used.
    """

    kind: ClassVar[str] = "mediators"

    kappa: float = 0.3
    gamma: int = 10
    passes: int = 2
    grouper: Filler = field(default_factory=GreedyKL)

    def __post_init__(self) -> None:
        require_share("Mediators", self.kappa, "clients")
        require_whole("Mediators", "gamma", self.gamma, at_least=1)
        require_whole("Mediators", "passes", self.passes, at_least=1)
        if not isinstance(self.grouper, Filler):
            raise InputError(
                f"Mediators: {type(self.grouper).__name__} cannot fill groups of a given size; use GreedyKL or Random."
            )

    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """Draw the clients, form the mediators, order each chain anew."""
        rng = seeds.plan(round_)
        online = np.sort(rng.choice(len(profiles), self.online(len(profiles)), replace=False))
        sizes = self._sizes(len(online))
        labels = self._filled(profiles, online, sizes, seeds.groups(round_))
        order = rng.permutation(len(online))
        chains = [profiles.clients[online[order[labels[order] == group]]] for group in range(len(sizes))]
        return Plan(
            round=round_,
            chains=tuple(Chain(tuple(int(k) for k in clients), passes=self.passes) for clients in chains),
            groups=len(sizes),
            left_out=len(profiles) - len(online),
        )

    def _filled(
        self, profiles: Profiles, online: NDArray[np.int64], sizes: list[int], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """The mediator of each client drawn; those that tell nothing of their data are spread evenly at random."""
        population = profiles.counts.sum(axis=0)
        if profiles.known is None or profiles.known[online].all() or isinstance(self.grouper, Random):
            labels = self.grouper.fill(profiles.counts[online], sizes, rng, population=population)
            return checked_fill(self.grouper, labels, sizes)
        known = profiles.known[online]
        given = shares(sizes, int((~known).sum()), rng)
        left = [size - some for size, some in zip(sizes, given, strict=True)]
        filled = [group for group, size in enumerate(left) if size]
        labels = np.empty(len(online), dtype=np.int64)
        labels[~known] = rng.permutation(np.repeat(np.arange(len(sizes)), given))
        if filled:
            sizes = [left[g] for g in filled]
            inner = self.grouper.fill(profiles.counts[online][known], sizes, rng, population=population)
            labels[known] = np.asarray(filled)[checked_fill(self.grouper, inner, sizes)]
        return labels

    def online(self, clients: int) -> int:
        """c = floor(kappa K), at least one."""
        return share_of(self.kappa, clients)

    def schedule(self, round_: int, clients: int) -> RoundSizes:
        """The same sizes in every round."""
        online = self.online(clients)
        sizes = self._sizes(online)
        return RoundSizes(
            round=round_, wanted=len(sizes), groups=len(sizes), shortest=sizes[-1], longest=sizes[0], grouped=online,
            sampled=len(sizes), trained=online, passes=self.passes,
        )  # fmt: skip

    def _sizes(self, online: int) -> list[int]:
        full, rest = divmod(online, self.gamma)
        return [self.gamma] * full + ([rest] if rest else [])
