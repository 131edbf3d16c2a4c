"""Is a plan what its method's name says? Sentences for whoever starts a run, with the option that changes it.

The paper's growth functions count groups, whatever the number of clients. With few clients they mean something else: singletons
from an early round on, or many clients in no group. That is allowed, but nobody should find it out from the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedgsp.core.errors import Said
from fedgsp.plan import ICG, Fixed, Grouped, HandOver, OfLength, Singletons, WithPool

if TYPE_CHECKING:
    from fedgsp.plan import Planner, RoundSizes

MANY_OUT = 0.2
"""A share of the clients that sit out is told from here on,"""
LONG = 0.1
"""if it is so in this share of the rounds."""
LENGTH = "{} keeps chains of 4 clients, {} has the paper's chains for fewer clients"
IN_PYTHON = ("the growth `OfLength(4)`", "`Proportional(Log(2.0, 10))`")
TYPED = ("--growth length", "--growth proportional")


def plan_notes(planner: Planner, rounds: int, clients: int) -> tuple[str, ...]:
    """What is not as a reader of the method's name would think.

    Args:
        planner: The method's planner; only the usual one, which forms groups anew each round, can be misread.
        rounds: The rounds of the run.
        clients: The clients that may train.

    Returns:
        A sentence for each thing, with the option that changes it.
    """
    if isinstance(planner, HandOver):
        planner = planner.planner
    if isinstance(planner, WithPool):
        planner, clients = planner.planner, clients - 1
    if not isinstance(planner, Grouped) or isinstance(planner.growth, Singletons) or clients < 2:
        return ()
    rows = [planner.schedule(r, clients) for r in range(1, rounds + 1)]
    notes = [_single(planner, rows, clients), _left_out(planner, rows, clients)]
    return tuple(note for note in notes if note)


def _single(planner: Grouped, rows: Sequence[RoundSizes], clients: int) -> str:
    """From where on all groups are single clients, and stay so."""
    chained = [row.round for row in rows if row.longest > 1]
    first = chained[-1] + 1 if chained else 1
    if first > len(rows) or (isinstance(planner.growth, OfLength) and chained):  # halved on purpose
        return ""
    row = rows[first - 1]
    since = f"from round {first} on every group is a single client, and this is FedAvg" if chained else (
        "no two clients ever train in a chain, and this is FedAvg"
    )  # fmt: skip
    why = f"the growth function asks for {row.wanted} groups in round {first}, and {clients} clients train"
    if row.longest == 1 and row.grouped < clients:
        why += f", too few for two in each of {row.groups}"
    return Said(f"{since}: {why}; {LENGTH.format(*IN_PYTHON)}.", f"{since}: {why}; {LENGTH.format(*TYPED)}.")


def _left_out(planner: Grouped, rows: Sequence[RoundSizes], clients: int) -> str:
    """Who is in no group: for good where groups stay, else where they are many for long."""
    exact = [row for row in rows if not row.about]
    if not exact:
        return ""
    inner = planner.grouper.grouper if isinstance(planner.grouper, Fixed) else planner.grouper
    place = "method.planner.grouper." + ("grouper." if isinstance(planner.grouper, Fixed) else "")
    changes = ["another grouper has them all"] * 2
    if isinstance(inner, ICG):
        changes = [f"{how} puts them into groups" for how in ("`ICG(leftovers='deal')`", f"--set {place}leftovers=deal")]
    most = max(clients - row.grouped for row in exact)
    if isinstance(planner.grouper, Fixed) and most:
        out = f"{most} of {clients} clients are in no group and never train, since the groups are formed once"
        return Said(*(f"{out}; {change}." for change in changes))
    many = [row for row in exact if clients - row.grouped >= MANY_OUT * clients]
    if len(many) < max(1, LONG * len(rows)):
        return ""
    first = many[0]
    out = (
        f"in {len(many)} of {len(rows)} rounds a fifth of the clients or more are in no group and sit out, up to {most} of "
        f"{clients} (first in round {first.round}: {first.groups} groups of {first.longest})"
    )
    return Said(*(f"{out}; {change}." for change in changes))
