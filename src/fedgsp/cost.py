"""What training costs on a fleet of devices: the paper's formulas, and the same for what really happened in a run.

The paper's (section 4.1), with f(r) groups in round r, K clients of n samples, e epochs, a share kappa of the groups sampled:

    T_comp(R) = sum_r [ N_calc / T_FLOPS * n e K / min(K, f(r)) + N_aggr / T_FLOPS * (kappa f(r) - 1) ]   seconds
    T_comm(R) = 8 kappa K M R (1 / R_in + 1 / R_out)                                                       seconds
    D_comm(R) = 2 kappa K M R                                                                              bytes

Its constants are kept as printed (docs/methods-reference.md): M = 25.2 "MB" and 6.3 "M" are binary units there, which the
formulas take as decimal. They ignore floors, the sizes of single clients and everything but the server's link. `run_cost` does
not: it adds up the hops of a run's event log on a `Fleet`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedgsp.core.adding import added
from fedgsp.core.callable_module import make_callable
from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.files import read_toml
from fedgsp.plan import Grouped

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.plan import Growth, RoundSizes


@dataclass(frozen=True)
class PaperConstants:
    """The paper's numbers: a Snapdragon 835 phone, LEAF's CNN, an EC2 server's network."""

    flops_per_sample: float = 96e6
    flops_per_aggregation: float = 6.3e6
    device_flops: float = 567e9
    model_bytes: float = 25.2e6
    bits_in: float = 567e6
    bits_out: float = 567e6
    samples_per_client: float = 226.0


PAPER = PaperConstants()
Hops = Sequence[Mapping[str, Any]]
"""The hops of one chain, in order: the samples trained, the bytes down and up."""


@dataclass(frozen=True)
class PaperCosts:
    """T_comp in its two parts, T_comm (seconds) and D_comm (bytes)."""

    training: float
    aggregation: float
    communication: float
    traffic: float

    @property
    def computing(self) -> float:
        """T_comp."""
        return self.training + self.aggregation

    @property
    def total(self) -> float:
        """T_comp + T_comm."""
        return self.computing + self.communication


def paper_costs(
    growth: Growth, clients: int, rounds: int, kappa: float, epochs: int = 1, constants: PaperConstants = PAPER
) -> PaperCosts:
    """The paper's T_comp, T_comm and D_comm.

    Args:
        growth: How the number of groups grows; `Singletons()` for FedAvg.
        clients: K.
        rounds: R.
        kappa: The share of groups that is sampled.
        epochs: Local epochs.
        constants: The paper's constants, or others.

    Returns:
        Seconds of computing and of communication, and bytes.
    """
    groups = [growth.groups(r, clients) for r in range(1, rounds + 1)]
    work = constants.samples_per_client * epochs * clients
    moved = kappa * clients * constants.model_bytes * rounds
    return PaperCosts(
        training=added(constants.flops_per_sample / constants.device_flops * work / f for f in groups),
        aggregation=added(constants.flops_per_aggregation / constants.device_flops * (kappa * f - 1) for f in groups),
        communication=8 * moved * (1 / constants.bits_in + 1 / constants.bits_out),
        traffic=2 * moved,
    )


def paper_costs_of(method: Method, clients: int, rounds: int) -> PaperCosts | None:
    """The paper's formulas for a method; None where they do not apply: other planners, or epochs that change."""
    planner, local = method.planner, method.local
    if not isinstance(planner, Grouped) or planner.chains or local.epochs_by_round:
        return None
    return paper_costs(planner.growth, clients, rounds, planner.kappa, local.epochs)


@dataclass(frozen=True)
class Fleet:
    """Devices and network: what a client computes and moves in a second.

    Args:
        device_flops: What a device computes, in FLOP/s.
        down_bits: A client's download, in bit/s.
        up_bits: A client's upload, in bit/s.
        latency: Seconds, one way.
        server_bits: The link of the server (or group managers), shared by all chains; None: wide enough.
        relay: How a model goes from client to client: through the manager ("manager": up, then down) or straight ("direct").

    Raises:
        InputError: A value is out of range.
    """

    device_flops: float
    down_bits: float
    up_bits: float
    latency: float
    server_bits: float | None = None
    relay: Literal["manager", "direct"] = "manager"

    def __post_init__(self) -> None:
        for name in ("device_flops", "down_bits", "up_bits"):
            if not getattr(self, name) > 0:
                raise InputError(f"a fleet's {name} must be positive, not {getattr(self, name)}.")
        if self.latency < 0 or (self.server_bits is not None and self.server_bits <= 0):
            raise InputError("a fleet's latency must not be negative, and its server_bits must be positive.")
        if self.relay not in ("manager", "direct"):
            raise InputError(f"a fleet's relay must be 'manager' or 'direct', not '{self.relay}'.")


FLEETS: Mapping[str, Fleet] = {
    "paper": Fleet(567e9, 567e6, 567e6, 0.0, server_bits=567e6),
    "phone-4g": Fleet(50e9, 30e6, 10e6, 0.05, server_bits=1e9),
    "phone-wifi": Fleet(50e9, 100e6, 40e6, 0.02, server_bits=1e9),
    "hospital-fibre": Fleet(5e12, 1e9, 1e9, 0.01, server_bits=1e9),
}
"""Named fleets. "paper" has the paper's figures; the others are round numbers to orient by, not measurements: give your own."""


def fleet_named(name: str) -> Fleet:
    """A fleet by its name.

    Args:
        name: A name in `FLEETS`, or a .toml file whose entries are a `Fleet`'s.

    Returns:
        The fleet.

    Raises:
        InputError: There is no such fleet, or the file is not one.
    """
    if name.endswith(".toml"):
        return _read_fleet(Path(name))
    if name not in FLEETS:
        raise InputError(f"unknown fleet '{name}': {did_you_mean(name, FLEETS)}")
    return FLEETS[name]


def _read_fleet(path: Path) -> Fleet:
    table = read_toml(path, "the fleet")
    known = {field.name: field for field in fields(Fleet)}
    for name, value in table.items():
        if name not in known:
            raise InputError(f"{path} has no entry '{name}': {did_you_mean(name, known)}")
        if name != "relay" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{path}: {name} must be a number, not {value!r}.")
    missing = [name for name in ("device_flops", "down_bits", "up_bits") if name not in table]
    if missing:
        raise InputError(f"{path} does not say '{missing[0]}'; a fleet needs device_flops, down_bits and up_bits.")
    return Fleet(**{"latency": 0.0, **table})


@dataclass(frozen=True)
class RunCosts:
    """What a run would take on a fleet.

    Attributes:
        rounds: Rounds.
        visits: Hops of clients.
        seconds: Round by round, the longer of `chains` and the time that the server's link needs for all chains.
        chains: The time of each round's longest chain: computing and its own transfers.
        computing: The part of `chains` spent computing.
        traffic: Bytes through the server.
    """

    rounds: int
    visits: int
    seconds: float
    chains: float
    computing: float
    traffic: float


Epochs = int | Callable[[int], int]
"""Local epochs: the same in all rounds, or those of a round (from 1)."""


def run_cost(
    events: Iterable[Mapping[str, Any]], fleet: Fleet, flops_per_sample: float, epochs: Epochs, rounds: int
) -> RunCosts:
    """What a run would have cost on a fleet, by what really happened.

    Args:
        events: The run's event log (`run.reader.read_log`).
        fleet: Devices and network.
        flops_per_sample: What training on one sample costs.
        epochs: Local epochs, or a function that gives those of a round.
        rounds: How many rounds to count.

    Returns:
        The cost of the first `rounds` rounds.

    Raises:
        InputError: The log does not have the bytes of every hop.
    """
    return total_cost(costs_by_round(events, fleet, flops_per_sample, epochs, rounds).values())


def costs_by_round(
    events: Iterable[Mapping[str, Any]], fleet: Fleet, flops_per_sample: float, epochs: Epochs, rounds: int
) -> dict[int, RunCosts]:
    """round -> its own cost, for the first `rounds` rounds of an event log."""
    walked = walked_chains(events, rounds)
    return {r: round_cost(chains, fleet, flops_per_sample, _epochs_in(epochs, r)) for r, chains in walked.items()}


def round_cost(chains: Mapping[int, Hops], fleet: Fleet, flops_per_sample: float, epochs: int) -> RunCosts:
    """The cost of one round, given the hops of each of its chains."""
    through_server = added(_server_bytes(hops, fleet.relay) for hops in chains.values())
    visits = sum(len(hops) for hops in chains.values())
    return _of_round(list(chains.values()), through_server, visits, fleet, flops_per_sample * epochs)


def planned_cost(
    schedule: Iterable[RoundSizes], fleet: Fleet, flops_per_sample: float, epochs: Epochs, samples: float, model_bytes: float
) -> RunCosts:
    """What a run that is only planned would cost: every client of `samples` samples, everybody there."""
    hop = {"samples": samples, "down": model_bytes, "up": model_bytes}
    rounds = []
    for row in schedule:
        visits = row.trained * row.passes
        models = 2 * (visits if fleet.relay == "manager" else row.sampled)
        longest = [hop] * (row.longest * row.passes)
        work = flops_per_sample * _epochs_in(epochs, row.round)
        rounds.append(_of_round([longest], float(models * model_bytes), visits, fleet, work))
    return total_cost(rounds)


def _epochs_in(epochs: Epochs, round_: int) -> int:
    return epochs if isinstance(epochs, int) else epochs(round_)


def total_cost(rounds: Iterable[RunCosts]) -> RunCosts:
    """Rounds one after the other."""
    every = list(rounds)
    return RunCosts(*(added(getattr(cost, field.name) for cost in every) for field in fields(RunCosts)))


def _of_round(chains: Sequence[Hops], through_server: float, visits: int, fleet: Fleet, flops_per_sample: float) -> RunCosts:
    longest, computing = max((_chain_seconds(hops, fleet, flops_per_sample) for hops in chains), key=lambda pair: pair[0])
    link = 8 * through_server / fleet.server_bits if fleet.server_bits else 0.0
    return RunCosts(1, visits, max(longest, link), longest, computing, through_server)


def walked_chains(events: Iterable[Mapping[str, Any]], rounds: int) -> dict[int, dict[int, Hops]]:
    """round -> chain -> hops in order: those of the last attempt at each round and of the last walk of each chain."""
    found: dict[int, dict[int, dict[int, Mapping[str, Any]]]] = {}
    for event in events:
        if event["event"] == "round":
            found[event["round"]] = {}
        elif event["event"] == "hop":
            if event["round"] not in found:
                raise InputError(f"the event log is damaged: it has a hop of round {event['round']}, which did not begin.")
            if "down" not in event or "up" not in event:
                raise InputError("this run was recorded without the bytes of every hop, so its cost cannot be worked out.")
            found[event["round"]].setdefault(event["chain"], {})[event["hop"]] = event
    return {
        r: {chain: [hops[n] for n in sorted(hops)] for chain, hops in chains.items()}
        for r, chains in found.items()
        if r <= rounds and chains
    }


def _chain_seconds(hops: Hops, fleet: Fleet, flops_per_sample: float) -> tuple[float, float]:
    """(the whole chain, its computing)."""
    computing = added(hop["samples"] * flops_per_sample for hop in hops) / fleet.device_flops
    if fleet.relay == "manager":
        moving = added(8 * hop["down"] / fleet.down_bits + 8 * hop["up"] / fleet.up_bits + 2 * fleet.latency for hop in hops)
    else:
        between = min(fleet.up_bits, fleet.down_bits)
        moving = 8 * hops[0]["down"] / fleet.down_bits + 8 * hops[-1]["up"] / fleet.up_bits + (len(hops) + 1) * fleet.latency
        moving += added(8 * hop["up"] / between for hop in hops[:-1])
    return computing + moving, computing


def _server_bytes(hops: Hops, relay: str) -> float:
    """Bytes of one chain that pass the server (or the managers beside it)."""
    if relay == "direct":
        return float(hops[0]["down"] + hops[-1]["up"])
    return float(sum(hop["down"] + hop["up"] for hop in hops))


make_callable(__name__, "fedgsp.report.run_costs", "cost")  # fedgsp.cost(...)
