from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedgsp.core.chain import Plan
from fedgsp.core.errors import InputError
from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.plan import (
    ICG,
    Balanced,
    ClusterShape,
    Constant,
    Exp,
    Fixed,
    Grouped,
    Grouper,
    Growth,
    Linear,
    Log,
    Mediators,
    Planner,
    Random,
    Singletons,
    Superclients,
)  # fmt: skip
from fedgsp.plan.planner import shares

FEDGSP: Planner = Grouped(Log(2, 10), ICG())

# docs/methods-reference.md: K = 368, alpha = 2, beta = 10, kappa = .3:
# from round, f(r), L, size, clients clustered, clients in groups, m, trained
TABLE = [
    (1, 10, 36, 10, 360, 360, 3, 108),
    (2, 20, 18, 20, 360, 360, 6, 108),
    (3, 30, 12, 30, 360, 360, 9, 108),
    (5, 40, 9, 40, 360, 360, 12, 108),
    (8, 50, 7, 52, 364, 350, 15, 105),
    (13, 60, 6, 61, 366, 360, 18, 108),
    (21, 70, 5, 73, 365, 350, 21, 105),
    (34, 80, 4, 92, 368, 320, 24, 96),
    (55, 90, 4, 92, 368, 360, 27, 108),
    (91, 100, 3, 122, 366, 300, 30, 90),
    (149, 110, 3, 122, 366, 330, 33, 99),
    (245, 120, 3, 122, 366, 360, 36, 108),
    (404, 130, 2, 184, 368, 260, 39, 78),
]
STARTS = [row[0] for row in TABLE]


def test_the_whole_schedule_of_the_paper_setting() -> None:
    visits = 0
    for round_ in range(1, 501):
        _, groups, length, size, clustered, grouped, sampled, trained = next(row for row in reversed(TABLE) if row[0] <= round_)
        schedule = FEDGSP.schedule(round_, 368)
        assert (schedule.round, schedule.wanted, schedule.groups) == (round_, groups, groups)
        assert (schedule.shortest, schedule.longest, schedule.grouped) == (length, length, grouped)
        assert (schedule.sampled, schedule.trained, schedule.capped) == (sampled, trained, False)
        shape = ClusterShape.of(368, schedule.groups)
        assert (shape.clusters, shape.size, shape.sampled) == (length, size, clustered)
        visits += schedule.trained if round_ <= 34 else 0
    assert visits == 3606  # docs/methods-reference.md


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"round {row[0]}")
def test_real_plans_keep_the_schedule(row: tuple[int, ...], profiles_368: Profiles) -> None:
    round_, groups, length, _, _, grouped, sampled, trained = row
    plan = FEDGSP.plan(round_, profiles_368, Seeds(0))
    assert (plan.round, plan.groups, plan.left_out) == (round_, groups, 368 - grouped)
    assert [len(chain) for chain in plan.chains] == [length] * sampled
    assert len(set(plan.clients)) == len(plan.clients) == trained
    assert set(plan.clients) <= set(profiles_368.clients.tolist())
    assert all(chain.start == "global" and chain.passes == 1 for chain in plan.chains)


def test_chains_are_the_groups_and_carry_client_numbers(profiles_60: Profiles) -> None:
    planner = Grouped(Constant(7), ICG(), kappa=1.0)
    plan = planner.plan(3, profiles_60, Seeds(5))
    labels = ICG().assign(profiles_60.counts, 7, Seeds(5).groups(3))
    expected = [set(profiles_60.clients[labels == group].tolist()) for group in range(7)]
    assert [set(chain.clients) for chain in plan.chains] == expected  # in the order of the groups
    assert all(type(client) is int for client in plan.clients)
    assert plan.left_out == int((labels == -1).sum()) == 4


def test_a_plan_is_a_pure_function_of_seed_and_round(profiles_60: Profiles) -> None:
    planner = Grouped(Constant(6), ICG())
    plan = planner.plan(2, profiles_60, Seeds(0))
    assert planner.plan(2, profiles_60, Seeds(0)) == plan
    assert planner.plan(3, profiles_60, Seeds(0)).chains != plan.chains
    assert planner.plan(2, profiles_60, Seeds(1)).chains != plan.chains


def groups_of(plan: Plan) -> set[frozenset[int]]:
    return {frozenset(chain.clients) for chain in plan.chains}


def orders_of(plan: Plan) -> dict[frozenset[int], tuple[int, ...]]:
    return {frozenset(chain.clients): chain.clients for chain in plan.chains}


@pytest.mark.parametrize("grouper", [Random(), ICG()])
def test_fixed_groups_stay_while_samples_and_orders_change(grouper: Random | ICG, profiles_60: Profiles) -> None:
    planner = Grouped(Constant(6), Fixed(grouper), kappa=0.5)
    everybody = Grouped(Constant(6), Fixed(grouper), kappa=1.0)
    kept = groups_of(everybody.plan(1, profiles_60, Seeds(0)))
    plans = [planner.plan(round_, profiles_60, Seeds(0)) for round_ in range(1, 30)]
    assert all(groups_of(plan) < kept for plan in plans)
    assert set.union(*(groups_of(plan) for plan in plans)) == kept
    assert len({frozenset(groups_of(plan)) for plan in plans}) > 10
    for group in kept:
        orders = [orders_of(plan)[group] for plan in plans if group in groups_of(plan)]
        assert len(set(orders)) == len(orders) > 1

    free = Grouped(Constant(6), grouper, kappa=1.0)
    assert groups_of(free.plan(1, profiles_60, Seeds(0))) == kept
    assert groups_of(free.plan(2, profiles_60, Seeds(0))) != kept


def test_a_fixed_order_stays_and_was_drawn_not_sorted(profiles_60: Profiles) -> None:
    planner = Grouped(Constant(6), Fixed(Random()), kappa=0.5, order="fixed")
    seen: dict[frozenset[int], tuple[int, ...]] = {}
    for round_ in range(1, 20):
        for group, order in orders_of(planner.plan(round_, profiles_60, Seeds(0))).items():
            assert seen.setdefault(group, order) == order
    assert len(seen) == 6
    assert all(list(order) != sorted(order) for order in seen.values())


def test_the_order_does_not_change_who_trains(profiles_60: Profiles) -> None:
    shuffled = Grouped(Constant(9), ICG(), kappa=0.4)
    fixed = replace(shuffled, order="fixed")
    for round_ in range(1, 8):
        one, other = (planner.plan(round_, profiles_60, Seeds(3)) for planner in (shuffled, fixed))
        assert [frozenset(chain.clients) for chain in one.chains] == [frozenset(chain.clients) for chain in other.chains]
        assert one.chains != other.chains


def test_every_place_in_a_chain_is_as_likely(profiles_60: Profiles) -> None:
    planner, rounds = Grouped(Constant(15), Fixed(Random()), kappa=1.0), 1500
    first = [chain.clients[0] for r in range(1, rounds + 1) for chain in planner.plan(r, profiles_60, Seeds(0)).chains]
    often = np.bincount(np.searchsorted(profiles_60.clients, first), minlength=60) / rounds
    assert np.abs(often - 1 / 4).max() < 5 * np.sqrt(3 / 16 / rounds)


def test_groups_are_sampled_evenly_and_never_twice(profiles_60: Profiles) -> None:
    planner, rounds = Grouped(Constant(10), Fixed(Random()), kappa=0.3), 1500
    clients = [planner.plan(r, profiles_60, Seeds(0)).clients for r in range(1, rounds + 1)]
    assert all(len(set(trained)) == len(trained) == 18 for trained in clients)
    often = np.bincount(np.searchsorted(profiles_60.clients, np.concatenate(clients)), minlength=60) / rounds
    assert np.abs(often - 0.3).max() < 5 * np.sqrt(0.21 / rounds)


def test_fedavg_is_chains_of_one(profiles_368: Profiles) -> None:
    fedavg = Grouped(Singletons(), Random(), kappa=0.3)
    plan = fedavg.plan(1, profiles_368, Seeds(0))
    assert (plan.groups, plan.left_out, len(plan.chains)) == (368, 0, 110)
    assert {len(chain) for chain in plan.chains} == {1}
    assert len(set(plan.clients)) == 110
    assert set(plan.clients) != set(fedavg.plan(2, profiles_368, Seeds(0)).clients)
    schedule = fedavg.schedule(1, 368)
    assert (schedule.groups, schedule.shortest, schedule.longest) == (368, 1, 1)
    assert (schedule.sampled, schedule.trained, schedule.wanted, schedule.capped) == (110, 110, 368, False)


@pytest.mark.parametrize("kappa", [0.01, 0.07, 0.1, 0.15, 0.29, 0.3, 0.55, 0.57, 0.58, 0.7, 0.9, 0.99, 1.0, 1])
def test_the_share_of_groups_is_exact(kappa: float) -> None:
    planner = Grouped(Constant(), Random(), kappa=kappa)
    hundredths = round(kappa * 100)
    assert [planner.sampled(f) for f in range(1, 1001)] == [max(1, hundredths * f // 100) for f in range(1, 1001)]


def test_where_floats_would_train_one_group_too_few() -> None:
    assert math.floor(0.7 * 90) == 62
    assert Grouped(Constant(90), Random(), kappa=0.7).schedule(1, 368).sampled == 63
    assert math.floor(0.29 * 100) == 28
    assert Grouped(Constant(100), Random(), kappa=0.29).schedule(1, 368).sampled == 29
    assert Grouped(Constant(3), Random(), kappa=0.3).sampled(3) == 1  # never none


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 50), st.integers(1, 4))
def test_a_plan_keeps_its_schedule(data: st.DataObject, clients: int, classes: int) -> None:
    growths: list[Growth] = [Constant(1), Constant(4), Constant(40), Linear(0.5, 3), Log(), Exp(0.3, 2), Singletons()]
    groupers: list[Grouper] = [Random(), ICG(), Fixed(ICG(tau=2)), Fixed(Random())]
    growth, grouper = data.draw(st.sampled_from(growths)), data.draw(st.sampled_from(groupers))
    kappa = data.draw(st.sampled_from([0.01, 0.3, 0.5, 0.7, 1.0]))
    round_ = data.draw(st.integers(1, 60))
    counts = np.random.default_rng(data.draw(st.integers(0, 10**6))).integers(0, 30, (clients, classes))
    profiles = Profiles(np.arange(clients) + 500, counts, counts.sum(axis=1))
    planner = Grouped(growth, grouper, kappa=kappa)
    schedule, plan = planner.schedule(round_, clients), planner.plan(round_, profiles, Seeds(0))
    lengths = [len(chain) for chain in plan.chains]
    assert plan.groups == schedule.groups == growth.groups(round_, clients)
    assert schedule.capped == (schedule.wanted > clients)
    assert len(lengths) == schedule.sampled == max(1, math.floor(Fraction(str(kappa)) * plan.groups))
    assert schedule.shortest <= min(lengths) <= max(lengths) <= schedule.longest
    assert len(set(plan.clients)) == len(plan.clients) <= schedule.trained
    assert plan.left_out == clients - schedule.grouped


@pytest.mark.parametrize(
    ("clients", "groups", "kappa", "trained"), [(11, 4, 0.5, 6), (9, 4, 0.5, 5), (9, 4, 1.0, 9), (8, 4, 0.5, 4)]
)
def test_at_most_so_many_are_trained_and_it_happens(clients: int, groups: int, kappa: float, trained: int) -> None:
    planner = Grouped(Constant(groups), Random(), kappa=kappa)
    schedule = planner.schedule(1, clients)
    assert schedule.trained == trained
    assert (schedule.shortest, schedule.longest) == (clients // groups, math.ceil(clients / groups))
    profiles = Profiles(np.arange(clients), np.ones((clients, 1)), np.ones(clients, dtype=np.int64))
    assert max(len(planner.plan(r, profiles, Seeds(0)).clients) for r in range(1, 60)) == trained


def test_a_schedule_says_when_the_growth_was_capped() -> None:
    schedule = Grouped(Log(2, 10), ICG()).schedule(404, 100)
    assert (schedule.wanted, schedule.groups, schedule.capped) == (130, 100, True)
    assert (schedule.shortest, schedule.grouped, schedule.sampled, schedule.trained) == (1, 100, 30, 30)
    assert not Grouped(Constant(100), ICG()).schedule(1, 100).capped


@dataclass(frozen=True)
class HalfUsed(Random):
    """A grouper that leaves every other group empty and the first client out."""

    def assign(
        self, counts: NDArray[np.int64] | NDArray[np.float64], n_groups: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        labels = np.arange(len(counts)) % (n_groups // 2) * 2
        labels[0] = -1
        return labels


def test_groups_that_were_not_formed_are_not_sampled(profiles_60: Profiles) -> None:
    plan = Grouped(Constant(8), HalfUsed(), kappa=1.0).plan(1, profiles_60, Seeds(0))
    assert (plan.groups, len(plan.chains), plan.left_out, len(plan.clients)) == (4, 4, 1, 59)


@pytest.mark.parametrize("kappa", [0, -0.1, 1.01, math.nan, math.inf, "0.3", None, True])
def test_a_bad_share_is_refused(kappa: float) -> None:
    with pytest.raises(InputError, match=r"^Grouped: kappa must be .*\.$"):
        Grouped(Constant(), Random(), kappa=kappa)


def test_a_bad_order_is_refused() -> None:
    with pytest.raises(InputError, match=r"^Grouped: order cannot be 'shuffle'; did you mean 'shuffled'\?$"):
        Grouped(Constant(), Random(), order="shuffle")  # type: ignore[arg-type]


def test_nobody_there_cannot_be_planned() -> None:
    nobody = Profiles(np.zeros(0, dtype=np.int64), np.zeros((0, 3)), np.zeros(0, dtype=np.int64))
    with pytest.raises(ValueError, match="at least one client"):
        FEDGSP.plan(1, nobody, Seeds(0))


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


def test_just_so_many_chains(profiles_60: Profiles) -> None:
    planner = Grouped(Constant(15), ICG(), chains=6)
    plan = planner.plan(1, profiles_60, Seeds(0))
    assert [len(chain) for chain in plan.chains] == [4] * 6
    assert (plan.groups, planner.schedule(1, 60).sampled) == (15, 6)
    assert Grouped(Constant(3), ICG(), chains=6).schedule(1, 60).sampled == 3, "all if there are fewer"
    with pytest.raises(InputError, match="chains must be a whole number of at least 0"):
        Grouped(Constant(3), ICG(), chains=-1)
