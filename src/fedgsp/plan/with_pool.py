"""Hybrid-FL's plan: the server's own pool trains in every round, in a chain of its own, beside whatever else is planned."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fedgsp.core.chain import Chain, Plan
from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.plan.groupers import Random
from fedgsp.plan.growth import Singletons
from fedgsp.plan.planner import Grouped, Planner, Schedule


@dataclass(frozen=True)
class WithPool:
    """The plan of `planner` over all clients but the last, which is the server's pool and trains every time."""

    planner: Planner = field(default_factory=lambda: Grouped(Singletons(), Random(), kappa=0.3))

    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """One chain more."""
        known = None if profiles.known is None else profiles.known[:-1]
        others = Profiles(profiles.clients[:-1], profiles.counts[:-1], profiles.sizes[:-1], known)
        plan = self.planner.plan(round_, others, seeds)
        pool = Chain((int(profiles.clients[-1]),))
        return replace(plan, chains=(*plan.chains, pool), groups=plan.groups + 1)

    def schedule(self, round_: int, clients: int) -> Schedule:
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
