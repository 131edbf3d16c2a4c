"""Hybrid-FL's plan: the server's own pool trains in every round, in a chain of its own, beside whatever else is planned."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from fedgsp.core.chain import Chain, Plan
from fedgsp.core.profiles import Profiles
from fedgsp.plan.groupers import Random
from fedgsp.plan.growth import Singletons
from fedgsp.plan.planner import Grouped, Planner, RoundSizes

if TYPE_CHECKING:
    from fedgsp.core.seeds import Seeds


@dataclass(frozen=True)
class WithPool(Planner):
    """The plan of another planner over all clients but the last, which is the server's pool and trains every time.

    Args:
        planner: Who plans for the clients.
    """

    kind: ClassVar[str] = "with-pool"

    planner: Planner = field(default_factory=lambda: Grouped(Singletons(), Random(), kappa=0.3))

    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """One chain more."""
        known = None if profiles.known is None else profiles.known[:-1]
        others = Profiles(profiles.clients[:-1], profiles.counts[:-1], profiles.sizes[:-1], known)
        plan = self.planner.plan(round_, others, seeds)
        pool = Chain((int(profiles.clients[-1]),))
        return replace(plan, chains=(*plan.chains, pool), groups=plan.groups + 1)

    def schedule(self, round_: int, clients: int) -> RoundSizes:
        """One chain more."""
        inside = self.planner.schedule(round_, clients - 1)
        return replace(
            inside,
            wanted=inside.wanted + 1,
            groups=inside.groups + 1,
            shortest=1,
            grouped=inside.grouped + 1,
            sampled=inside.sampled + 1,
            trained=inside.trained + 1,
        )
