"""The table of named methods: a row each, a combination of parts that a reader of the paper recognises at a glance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedgsp.client.rules import SGD
from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.parts import decode, encode
from fedgsp.plan import ICG, Balanced, Constant, Fixed, GreedyKL, Grouped, Log, Planner, Random, Singletons
from fedgsp.server import Mean, ServerRule


@dataclass(frozen=True)
class Method:
    """Who trains with whom (`planner`), what a client does (`local`), what becomes of the results (`server`)."""

    planner: Planner
    local: SGD
    server: ServerRule
    name: str = "custom"

    def encode(self) -> dict[str, Any]:
        """As plain data, for config files."""
        parts = {"planner": self.planner, "local": self.local, "server": self.server}
        return {"name": self.name, **{role: encode(part) for role, part in parts.items()}}

    @classmethod
    def decode(cls, table: Any, where: str = "method") -> Method:
        """From a config file: a known name, whose parts may be replaced one by one, or all parts spelled out."""
        if not isinstance(table, dict):
            raise InputError(f"[{where}] must be a table.")
        unknown = sorted(table.keys() - {"name", "planner", "local", "server"})
        if unknown:
            raise InputError(
                f"[{where}] has no entry '{unknown[0]}': {did_you_mean(unknown[0], ('name', 'planner', 'local', 'server'))}"
            )
        name = table.get("name", "custom")
        roles = {role: decode(role, table[role], f"{where}.{role}") for role in ("planner", "local", "server") if role in table}
        if len(roles) == 3:
            return cls(name=name, **roles)
        if name not in METHODS:
            if "name" in table and name != "custom":
                raise InputError(f"unknown method '{name}': {did_you_mean(name, METHODS)}")
            raise InputError(f"[{where}] needs a name, or all of planner, local and server.")
        return replace(named(name), **roles)


@dataclass(frozen=True)
class Row:
    """One row of the table: what it is in a sentence, and how it is put together."""

    summary: str
    make: Callable[[], Method]


METHODS: Mapping[str, Row] = {
    "fedavg": Row(
        "every sampled client trains alone, the models are averaged",
        lambda: Method(Grouped(Singletons(), Random(), kappa=0.3), SGD(), Mean()),
    ),
    "naive-gsp": Row(
        "clients in a fixed number of random groups, formed once; in a group they train in sequence",
        lambda: Method(Grouped(Constant(10), Fixed(Random()), kappa=0.3), SGD(), Mean()),
    ),
    "naive-gsp-icg": Row(
        "naive-gsp with groups formed once by inter-cluster grouping (ICG)",
        lambda: Method(Grouped(Constant(10), Fixed(ICG()), kappa=0.3), SGD(), Mean()),
    ),
    "fedgsp": Row(
        "ICG anew every round into a growing number of groups: from sequential to parallel (STP)",
        lambda: Method(Grouped(Log(2, 10), ICG(), kappa=0.3), SGD(), Mean()),
    ),
    "fedgsp-balanced": Row(
        "fedgsp with groups balanced by exchange in place of ICG: more alike, and nobody left out",
        lambda: Method(Grouped(Log(2, 10), Balanced(), kappa=0.3), SGD(), Mean()),
    ),
    "fedgsp-random": Row(
        "fedgsp with random groups: what the growing number of groups does alone",
        lambda: Method(Grouped(Log(2, 10), Random(), kappa=0.3), SGD(), Mean()),
    ),
    "fedgsp-greedy-kl": Row(
        "fedgsp with Astraea's greedy grouping by KL divergence",
        lambda: Method(Grouped(Log(2, 10), GreedyKL(), kappa=0.3), SGD(), Mean()),
    ),
}


def named(name: str) -> Method:
    """The method of that name with the paper's parameters."""
    if name not in METHODS:
        raise InputError(f"unknown method '{name}': {did_you_mean(name, METHODS)}")
    return replace(METHODS[name].make(), name=name)
