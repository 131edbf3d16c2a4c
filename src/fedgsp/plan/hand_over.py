"""Against what a client learns of the one before it: who is never next to whom, and how many are in a model that is handed on.

In a chain b is handed the model of a, and the difference to the round's own model is what a's samples made of it.

`apart`: pairs of clients of which neither is ever handed the other's model. Chains keep their lengths: a client that would come
next to one it must not changes places with another, of its own chain if that helps, else of another. The fewest places are
changed that a search by single swaps finds, always the same ones. In a deployment a client may become another's neighbour since
those between them were skipped; then it is skipped as well (`transports/flower/site_messages.py`).

`least`: as long as fewer than `least` clients of a chain have trained, the next one begins with the round's own model as well,
and their mean, in which each counts the same, is the chain's model (`core/blend.py`). So nobody is handed a model that fewer
than `least` clients have changed. It is FedAvg at the beginning of every chain: with `least` of a chain's length it is FedAvg,
and what chains are good for is lost as much. It protects against one curious client; two that collude, before and after a
third, still see what that one did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from fedgsp.core.errors import InputError
from fedgsp.core.params import require_whole
from fedgsp.plan.groupers import Random
from fedgsp.plan.growth import Singletons
from fedgsp.plan.planner import Grouped, Planner, RoundSizes

if TYPE_CHECKING:
    from fedgsp.core.chain import Plan
    from fedgsp.core.profiles import Profiles
    from fedgsp.core.seeds import Seeds

Pairs = tuple[tuple[int, int], ...]
Place = tuple[int, int]
"""A chain, and a place in it."""


@dataclass(frozen=True)
class HandOver(Planner):
    """The plan of another planner, with bounds on what a client learns of the one before it in its chain.

    Args:
        planner: Who plans.
        apart: Pairs of clients, by their numbers, of which neither is ever handed the other's model.
        least: How many clients have changed a model at least that is handed on.

    Raises:
        InputError: If a parameter cannot be used.

    Example:
        >>> HandOver(apart=((0, 4), (1, 4))).least
        1
    """

    kind: ClassVar[str] = "hand-over"

    planner: Planner = field(default_factory=lambda: Grouped(Singletons(), Random(), kappa=0.3))
    apart: Pairs = ()
    least: int = 1

    def __post_init__(self) -> None:
        require_whole("HandOver", "least", self.least, at_least=1)
        for pair in self.apart:
            if len(pair) != 2 or pair[0] == pair[1]:
                raise InputError(f"HandOver: apart has pairs of two clients, by their numbers, not {list(pair)}.")
            for client in pair:
                require_whole("HandOver", "a client of apart", client, at_least=0)

    def plan(self, round_: int, profiles: Profiles, seeds: Seeds) -> Plan:
        """The other planner's, kept apart."""
        plan = self.planner.plan(round_, profiles, seeds)
        if self.least > 1 and any(chain.passes > 1 for chain in plan.chains):
            raise InputError("HandOver: least is for chains that are walked once, and this planner's are walked several times.")
        orders = kept_apart([chain.clients for chain in plan.chains], [chain.passes > 1 for chain in plan.chains], self.apart)
        if orders is None:
            raise InputError(
                f"the clients that must be kept apart (planner.apart) cannot be in round {round_}: no exchange of places in "
                f"its {len(plan.chains)} chains keeps them from being next to each other; have more or longer chains, or "
                f"fewer pairs."
            )
        chains = (replace(chain, clients=clients, least=self.least) for chain, clients in zip(plan.chains, orders, strict=True))
        return replace(plan, chains=tuple(chains), apart=frozenset(frozenset(pair) for pair in self.apart))

    def schedule(self, round_: int, clients: int) -> RoundSizes:
        """The other planner's: chains keep their lengths."""
        return self.planner.schedule(round_, clients)


def kept_apart(chains: Sequence[Sequence[int]], closed: Sequence[bool], apart: Pairs) -> list[tuple[int, ...]] | None:
    """Chains of the same lengths in which no pair is next to each other; None if none were found.

    Args:
        chains: The clients of each chain.
        closed: Whether the last of a chain hands on to its first.
        apart: The pairs.

    Returns:
        The chains; those without such neighbours as they were, unless a client of theirs was exchanged.

    Example:
        >>> kept_apart([(0, 1, 2), (3, 4)], [False, False], ((0, 1),))
        [(0, 2, 1), (3, 4)]
        >>> kept_apart([(0, 1), (2, 3)], [False, False], ((0, 1),))
        [(0, 2), (1, 3)]
    """
    pairs, now = {frozenset(pair) for pair in apart}, [list(chain) for chain in chains]
    involved = {client for pair in pairs for client in pair}
    if not involved.intersection(*[[client for chain in now for client in chain]]):
        return [tuple(chain) for chain in now]

    def wrong(number: int) -> int:
        chain = now[number]
        around = [(chain[-1], chain[0])] if closed[number] and len(chain) > 1 else []
        return sum(frozenset(pair) in pairs for pair in (*pairwise(chain), *around))

    def swap(one: Place, other: Place) -> None:
        (a, i), (b, j) = one, other
        now[a][i], now[b][j] = now[b][j], now[a][i]

    def better(number: int) -> bool:
        """Do the first swap that leaves fewer wrong neighbours: with one of the same chain, else of another."""
        for offender in _offenders(now[number], pairs, closed[number]):
            for other in (number, *(k for k in range(len(now)) if k != number)):
                touched = {number, other}
                before = sum(map(wrong, touched))
                for place in range(len(now[other])):
                    swap((number, offender), (other, place))
                    if sum(map(wrong, touched)) < before:
                        return True
                    swap((number, offender), (other, place))
        return False

    for number in range(len(now)):
        while wrong(number):
            if not better(number):
                return None
    return [tuple(chain) for chain in now]


def _offenders(chain: Sequence[int], pairs: set[frozenset[int]], closed: bool) -> Iterator[int]:
    """Places of clients that are next to one they must not be next to: the second of two before the first."""
    ends = [(len(chain) - 1, 0)] if closed and len(chain) > 1 else []
    for first, second in (*pairwise(range(len(chain))), *ends):
        if frozenset((chain[first], chain[second])) in pairs:
            yield second
            yield first
