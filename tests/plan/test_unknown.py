"""Clients that tell nothing of their data are spread evenly at random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.plan import ICG, Balanced, Constant, Fixed, Grouped, Mediators, Random, Superclients
from fedgsp.plan.planner import Planner
from fedgsp.plan.unknown import shares


def profiles(known: list[bool], classes: int = 4) -> Profiles:
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 20, (len(known), classes))
    told = np.where(np.array(known)[:, None], counts, 0)
    return Profiles(np.arange(len(known)) + 7, told, counts.sum(axis=1), None if all(known) else np.array(known))


def unknown_in_each(planner: Planner, known: list[bool], round_: int = 1) -> list[int]:
    plan = planner.plan(round_, profiles(known), Seeds(3))
    hidden = {k + 7 for k, told in enumerate(known) if not told}
    assert len(set(plan.clients)) == len(plan.clients)
    return sorted(len(hidden & set(chain.clients)) for chain in plan.chains)


@pytest.mark.parametrize("grouper", [ICG(), Balanced(), Fixed(ICG())])
def test_every_group_gets_as_many_of_them(grouper: ICG) -> None:
    known = [True] * 12 + [False] * 10
    assert unknown_in_each(Grouped(Constant(4), grouper, kappa=1.0), known) == [2, 2, 3, 3]


def test_mediators_and_superclients_spread_them_too() -> None:
    known = [True] * 10 + [False] * 10
    assert unknown_in_each(Mediators(kappa=1.0, gamma=5, passes=1), known) == [2, 2, 3, 3]
    spread = unknown_in_each(Superclients(kappa=1.0, most_clients=5, least_samples=10**6), known)
    assert len(spread) == 2
    assert spread == [5, 5]


def test_where_nobody_tells_everybody_is_dealt_evenly() -> None:
    known = [False] * 10
    plan = Grouped(Constant(4), ICG(), kappa=1.0).plan(1, profiles(known), Seeds(0))
    assert sorted(len(chain) for chain in plan.chains) == [2, 2, 3, 3]
    assert sorted(plan.clients) == list(range(7, 17))
    assert len(Superclients(kappa=1.0, most_clients=5).plan(1, profiles(known), Seeds(0)).clients) == 10


def test_where_too_few_tell_to_form_the_groups_everybody_is_dealt() -> None:
    plan = Grouped(Constant(4), ICG(), kappa=1.0).plan(1, profiles([True, True] + [False] * 10), Seeds(0))
    assert sorted(plan.clients) == list(range(7, 19))
    assert sorted(len(chain) for chain in plan.chains) == [3, 3, 3, 3]


def test_where_they_go_is_drawn_anew_each_round() -> None:
    known = [True] * 8 + [False] * 8
    planner = Grouped(Constant(4), ICG(), kappa=1.0)
    with_seven = {
        frozenset(next(chain.clients for chain in planner.plan(r, profiles(known), Seeds(0)).chains if 7 in chain.clients))
        & set(range(15, 23))
        for r in range(1, 6)
    }
    assert len(with_seven) > 1


def test_a_grouper_that_does_not_look_is_not_disturbed() -> None:
    told = profiles([True] * 9)
    secret = replace(told, counts=np.zeros_like(told.counts), known=np.zeros(9, dtype=bool))
    planner = Grouped(Constant(3), Random(), kappa=1.0)
    assert planner.plan(2, told, Seeds(0)) == planner.plan(2, secret, Seeds(0))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.data())
def test_shares_fit_and_are_even_as_far_as_there_is_room(sizes: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, sum(sizes)))
    given_ = shares(sizes, count, np.random.default_rng(0))
    assert sum(given_) == count
    assert all(some <= size for some, size in zip(given_, sizes, strict=True))
    most = max(given_)
    assert all(some >= most - 1 or some == size for some, size in zip(given_, sizes, strict=True))
