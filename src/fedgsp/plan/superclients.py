"""FedSeq's plan (Zaccone et al. 2022): superclients, formed once of clients that are unlike, each trained in sequence.

    open a superclient S, P_S its distribution (at first the target P); while it has fewer than `least_samples` samples and
    fewer than `most_clients` clients:   k* = argmin_k KL((P_S + p_k) / 2 || P),   S <- S + k*,   P_S weighed by samples
    the last one, should it have too few samples, is shared out among those that have the fewest and still have room

P is the uniform distribution, as in the authors' code, or the population's ("global"). Class counts stand in for the
confidences of a pre-trained model that they group by. Each round a share kappa of the superclients trains; a chain's order is
drawn anew. Candidates are looked at in a random order, so that ties do not favour low numbers. O(K^2 F) a round: nothing is
stored, the superclients are formed again from the same random numbers.

Traffic as FedAvg with as many clients, and class counts once. To tune: the client's lr as for sequential methods,
`most_clients` over 5, 11, 20, `least_samples` over 400, 800, 1600.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, get_args

import numpy as np
import scipy  # its parts are imported when they are used
from numpy.typing import NDArray

from fedgsp.core.chain import Chain, Plan
from fedgsp.core.params import require_choice, require_whole
from fedgsp.core.part import Values
from fedgsp.core.profiles import Profiles
from fedgsp.plan.divergence import distributions
from fedgsp.plan.greedy_kl import Target, target_distribution
from fedgsp.plan.planner import Order, Planner, RoundSizes, dealt, require_share, share_of

if TYPE_CHECKING:
    from fedgsp.core.seeds import Seeds


@dataclass(frozen=True)
class Superclients(Planner):
    """FedSeq's planner: form superclients once, sample some of them each round, train each as a chain.

    Args:
        kappa: The share of superclients that train in a round, above 0 and at most 1.
        most_clients: A superclient has at most so many clients.
        least_samples: A superclient is full once its clients have so many samples.
        target: What a superclient's distribution shall be like: "uniform", or "global" for the population's.
        order: "shuffled" draws a chain's order anew each round, "fixed" keeps it.

    Raises:
        InputError: If a parameter cannot be used.
    """

    kind: ClassVar[str] = "superclients"
    tuned_over: ClassVar[Mapping[str, Values]] = {"local.lr": (0.001, 0.003, 0.01, 0.03)}

    kappa: float = 0.2
    most_clients: int = 11
    least_samples: int = 800
    target: Target = "uniform"
    order: Order = "shuffled"

    def __post_init__(self) -> None:
        require_share("Superclients", self.kappa, "superclients")
        require_whole("Superclients", "most_clients", self.most_clients, at_least=1)
        require_whole("Superclients", "least_samples", self.least_samples, at_least=1)
        require_choice("Superclients", "target", self.target, get_args(Target))
        require_choice("Superclients", "order", self.order, get_args(Order))

    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """Sample superclients without replacement, order each chain."""
        formed = self._formed(profiles, seeds.groups(1))
        rng = seeds.plan(round_)
        sample = np.sort(rng.choice(len(formed), self._sampled(len(formed)), replace=False))
        place = (rng if self.order == "shuffled" else seeds.groups(2)).permutation(len(profiles))
        chains = []
        for number in sample:
            rows = sorted(formed[number], key=lambda row: int(place[row]))
            chains.append(Chain(tuple(int(profiles.clients[row]) for row in rows)))
        return Plan(round_, tuple(chains), len(formed))

    def _formed(self, profiles: Profiles, rng: np.random.Generator) -> list[list[int]]:
        """The superclients; clients that tell nothing of their data are spread evenly at random over them."""
        if profiles.known is None:
            return self.form(profiles, rng)
        known, others = np.flatnonzero(profiles.known), np.flatnonzero(~profiles.known)
        telling = Profiles(profiles.clients[known], profiles.counts[known], profiles.sizes[known])
        formed = [[int(known[row]) for row in group] for group in self.form(telling, rng)] if len(known) else []
        if not formed:
            formed = [[] for _ in range(-(-len(others) // self.most_clients))]
        for row, group in zip(others, dealt(len(others), len(formed), rng), strict=True):
            formed[int(group)].append(int(row))
        return formed

    def form(self, profiles: Profiles, rng: np.random.Generator) -> list[list[int]]:
        """The superclients, as rows of the profiles."""
        counts = np.asarray(profiles.counts, dtype=np.float64)
        own, target = distributions(counts), target_distribution(self.target, counts.sum(axis=0))
        left = rng.permutation(len(profiles))
        formed: list[list[int]] = []
        group: list[int] = []
        while len(left):
            mixed = target if not group else np.average(own[group], axis=0, weights=profiles.sizes[group])
            best = int(np.argmin(_divergences((mixed + own[left]) / 2, target)))
            group.append(int(left[best]))
            left = np.delete(left, best)
            if profiles.sizes[group].sum() >= self.least_samples or len(group) == self.most_clients:
                formed.append(group)
                group = []
        if group:
            self._share_out(group, formed, profiles.sizes)
        return formed

    def schedule(self, round_: int, clients: int) -> RoundSizes:
        """For superclients that are full: how many samples stop them earlier is only known from the data."""
        longest = min(clients, self.most_clients)
        groups = -(-clients // longest)
        sampled = self._sampled(groups)
        return RoundSizes(
            round=round_, wanted=groups, groups=groups, shortest=clients - (groups - 1) * longest, longest=longest,
            grouped=clients, sampled=sampled, trained=min(clients, sampled * longest), about=True,
        )  # fmt: skip

    def _sampled(self, groups: int) -> int:
        return share_of(self.kappa, groups)

    def _share_out(self, group: list[int], formed: list[list[int]], sizes: NDArray[np.int64]) -> None:
        """Put the members of an unfinished superclient into those with the fewest samples, or leave it where none has room."""
        room = sum(self.most_clients - len(other) for other in formed)
        if room < len(group):
            formed.append(group)
            return
        for row in group:
            roomy = [other for other in formed if len(other) < self.most_clients]
            min(roomy, key=lambda other: int(sizes[other].sum())).append(row)


def _divergences(p: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """KL(p || target) of each row; a class that the target lacks says nothing."""
    present = target > 0
    shares = p[:, present]
    result: NDArray[np.float64] = (scipy.special.xlogy(shares, shares) - shares * np.log(target[present])).sum(axis=1)
    return result
