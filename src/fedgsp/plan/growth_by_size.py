"""Growth functions that look at how many clients there are: by the length of chains, or in proportion.

The paper's f(r) counts groups. With 40 clients Log(2, 10) is singletons from round 3 on, with 15 there is never a chain. These
keep chains what they are, however many clients there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from fedgsp.core.errors import InputError
from fedgsp.core.params import require_whole
from fedgsp.plan.growth import MOST_GROUPS, Growth, Log


@dataclass(frozen=True)
class OfLength(Growth):
    """f(r) = floor(K / l(r)): as many chains of `length` clients as there are clients for, shorter ones later.

    Args:
        length: l(1), the clients of a chain in round 1. Where `length` does not divide K, chains may have some more.
        halve_every: Halve the length, rounding down, after every so many rounds; 0: keep it.

    Raises:
        InputError: If a parameter cannot be used.

    Example:
        >>> [OfLength(4, halve_every=5).groups(r, clients=40) for r in (1, 5, 6, 11)]
        [10, 10, 20, 40]
    """

    kind: ClassVar[str] = "length"

    length: int = 4
    halve_every: int = 0

    def __post_init__(self) -> None:
        require_whole("OfLength", "length", self.length, at_least=1)
        require_whole("OfLength", "halve_every", self.halve_every, at_least=0)

    def wanted(self, round_: int) -> int | None:
        """As many as there are clients for."""
        return None

    def groups(self, round_: int, clients: int) -> int:
        """floor(K / l(r)), at least 1."""
        super().groups(round_, clients)  # its checks
        halvings = (round_ - 1) // self.halve_every if self.halve_every else 0
        length = self.length >> min(halvings, self.length.bit_length())
        return max(1, clients // max(1, length))


@dataclass(frozen=True)
class Proportional(Growth):
    """f(r) = floor(g(r) K / `clients`): the growth g, made for so many clients, scaled to those that are there.

    Args:
        growth: The growth that is scaled.
        clients: The number of clients that it was made for; the paper's 368.

    Raises:
        InputError: If a parameter cannot be used.

    Example:
        >>> [Proportional(Log(2, 10)).groups(r, clients=92) for r in (1, 2, 3)]
        [2, 5, 7]
    """

    kind: ClassVar[str] = "proportional"

    growth: Growth = field(default_factory=Log)
    clients: int = 368

    def __post_init__(self) -> None:
        require_whole("Proportional", "clients", self.clients, at_least=1)
        if isinstance(self.growth, OfLength | Proportional):
            raise InputError(f"the growth '{self.growth.kind}' goes by the number of clients as it is; it cannot be scaled.")

    def wanted(self, round_: int) -> int | None:
        """It depends on how many clients there are."""
        return None

    def groups(self, round_: int, clients: int) -> int:
        """floor(g(r) K / `clients`), from 1 to K."""
        super().groups(round_, clients)  # its checks
        wanted = self.growth.wanted(round_)
        return clients if wanted is None else max(1, min(clients, min(wanted, MOST_GROUPS) * clients // self.clients))
