"""Plans of one long chain, and plans that change at a round.

`OneChain`: a share kappa of the clients is drawn, and one model visits them one after the other; nothing is averaged. With
kappa = 1 and a fixed order it is cyclic weight transfer (CWT, Chang et al. 2018), a round being one cycle; with a draw every
round it is how Li and Lyu (2023) run it.

`Switch`: one planner for the first rounds, another from then on. With a chain first and FedAvg's plan then it is CyclicFL
(Zhang et al. 2023): STP in two steps.

Traffic: down and up once for every client that trains. A round of one chain is as long as all its clients' epochs together. To
tune: the client's lr over 0.001, 0.003, 0.01, 0.03 (sequences want smaller ones: 3 to 30 times below the parallel methods'),
`kappa`, and for CyclicFL the number of sequential rounds over 5, 10, 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, get_args

import numpy as np

from fedgsp.core.chain import Chain, Plan
from fedgsp.core.params import require_choice, require_whole
from fedgsp.core.part import Values
from fedgsp.plan.groupers import Random
from fedgsp.plan.growth import Singletons
from fedgsp.plan.planner import Grouped, Order, Planner, RoundSizes, require_share, share_of

if TYPE_CHECKING:
    from fedgsp.core.profiles import Profiles
    from fedgsp.core.seeds import Seeds


@dataclass(frozen=True)
class OneChain(Planner):
    """Draw a share of the clients each round and train them in one chain.

    Args:
        kappa: The share of clients that train in a round, above 0 and at most 1.
        order: "fixed": in an order that is drawn once and kept; "shuffled": drawn anew each round.

    Raises:
        InputError: If a parameter cannot be used.
    """

    kind: ClassVar[str] = "one-chain"
    tuned_over: ClassVar[Mapping[str, Values]] = {"local.lr": (0.001, 0.003, 0.01, 0.03)}

    kappa: float = 1.0
    order: Order = "shuffled"

    def __post_init__(self) -> None:
        require_share("OneChain", self.kappa, "clients")
        require_choice("OneChain", "order", self.order, get_args(Order))

    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """The drawn clients in order."""
        rng = seeds.plan(round_)
        drawn = rng.choice(len(profiles), self.online(len(profiles)), replace=False)
        there = np.zeros(len(profiles), dtype=bool)
        there[drawn] = True
        order = (rng if self.order == "shuffled" else seeds.groups(1)).permutation(len(profiles))
        clients = tuple(int(profiles.clients[row]) for row in order if there[row])
        return Plan(round_, (Chain(clients),), 1, len(profiles) - len(clients))

    def online(self, clients: int) -> int:
        """floor(kappa K), at least one."""
        return share_of(self.kappa, clients)

    def schedule(self, round_: int, clients: int) -> RoundSizes:
        """The same in every round."""
        online = self.online(clients)
        return RoundSizes(
            round=round_, wanted=1, groups=1, shortest=online, longest=online, grouped=online, sampled=1, trained=online
        )  # fmt: skip


@dataclass(frozen=True)
class Switch(Planner):
    """One planner for the first rounds, another from then on.

    Args:
        first: The planner of the first rounds.
        then: The planner of all later ones.
        rounds: How many rounds `first` plans.

    Raises:
        InputError: If `rounds` is not a whole number of at least 0.
    """

    kind: ClassVar[str] = "switch"
    tuned_over: ClassVar[Mapping[str, Values]] = {"local.lr": (0.001, 0.003, 0.01, 0.03), "rounds": (5, 10)}

    first: Planner = field(default_factory=lambda: OneChain(kappa=0.3))
    then: Planner = field(default_factory=lambda: Grouped(Singletons(), Random(), kappa=0.3))
    rounds: int = 10

    def __post_init__(self) -> None:
        require_whole("Switch", "rounds", self.rounds, at_least=0)

    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """As the planner whose turn it is."""
        return self._at(round_).plan(round_, profiles, seeds)

    def schedule(self, round_: int, clients: int) -> RoundSizes:
        """As the planner whose turn it is."""
        return self._at(round_).schedule(round_, clients)

    def _at(self, round_: int) -> Planner:
        return self.first if round_ <= self.rounds else self.then
