"""A round is a plan of chains: the one idea that carries every method.

A chain is an ordered tuple of clients that hand one model on. FedAvg is a plan of chains of length one; FedGSP's come from
ICG and get shorter as rounds go by; cyclic weight transfer is one long chain. Nothing downstream knows which method runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedgsp.core.sums import PartialSum
    from fedgsp.core.tensors import Tensors


@dataclass(frozen=True, slots=True)
class Hop:
    """One client's turn in a chain: the chain's hop number `index`, at `client`, which had `repeat` turns in it before."""

    index: int
    client: int
    repeat: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Clients that hand one model on, in order.

    `start` names the model the chain begins with (most methods have one model, clustered ones several); `passes` says how
    often the chain is walked (Astraea's mediator epochs). As long as fewer than `least` of them have trained, the next begins
    with that model too, and the chain's model is their mean (`core/blend.py`).
    """

    clients: tuple[int, ...]
    start: str = "global"
    passes: int = 1
    least: int = 1

    def __post_init__(self) -> None:
        if not self.clients:
            raise ValueError("a chain needs at least one client")
        if self.passes < 1:
            raise ValueError("a chain is walked at least once")

    def hops(self) -> Iterator[Hop]:
        """Every hop of the chain, all passes, in order."""
        for repeat in range(self.passes):
            for position, client in enumerate(self.clients):
                yield Hop(repeat * len(self.clients) + position, client, repeat)

    def __len__(self) -> int:
        return len(self.clients) * self.passes


@dataclass(frozen=True, slots=True)
class Plan:
    """Who trains with whom in one round: the sampled groups as chains, and how many groups they were drawn from.

    `share` is the probability with which each group was drawn, whatever became of the others (then there may be no chain at
    all); None: a number of them was drawn. `apart` are pairs of clients of which neither may be handed the other's model.
    """

    round: int
    chains: tuple[Chain, ...]
    groups: int
    left_out: int = 0  # clients that belong to no group this round
    share: float | None = None
    apart: frozenset[frozenset[int]] = frozenset()

    @property
    def clients(self) -> tuple[int, ...]:
        """All clients that train this round, chain by chain."""
        return tuple(client for chain in self.chains for client in chain.clients)


@dataclass(frozen=True, slots=True)
class HopReport:
    """What one client did at its hop (number `hop` of the chain; `repeat`: how many turns it had in the chain before).

    `samples` are the client's samples that were really trained (counted once, whatever the number of epochs): they are what
    a chain weighs. `bytes_down` and `bytes_up` are what was really handed to and taken from the client.
    """

    client: int
    hop: int
    repeat: int
    samples: int
    steps: int
    bytes_down: int
    bytes_up: int
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChainResult:
    """A walked chain: the tensors its last client handed on, and a report of every hop that took place.

    `sent` is what its clients sent up beside the model, summed over the hops in their order (float64 for real numbers).
    `client_versions` names the states that its clients now keep; they count when the round is committed. Where an engine adds
    results up far away, it says `summed` and leaves the tensors out; `partial` is the sum of this one and of others said before
    it.
    """

    index: int
    chain: Chain
    tensors: Tensors = field(repr=False)
    hops: tuple[HopReport, ...] = field(repr=False)
    sent: Tensors = field(default_factory=dict, repr=False)
    client_versions: dict[int, str] = field(default_factory=dict, repr=False)
    summed: bool = False
    partial: PartialSum | None = field(default=None, repr=False)

    @property
    def samples(self) -> int:
        """Samples really trained, each client counted once however often the chain was walked."""
        best: dict[int, int] = {}
        for hop in self.hops:
            best[hop.client] = max(best.get(hop.client, 0), hop.samples)
        return sum(best.values())

    @property
    def steps(self) -> int:
        """SGD steps made one after the other along this chain."""
        return sum(hop.steps for hop in self.hops)

    @property
    def bytes_moved(self) -> int:
        """Bytes handed down to and up from this chain's clients."""
        return sum(hop.bytes_down + hop.bytes_up for hop in self.hops)
