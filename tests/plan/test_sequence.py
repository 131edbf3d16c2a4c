"""One long chain, and a planner that changes at a round."""

from __future__ import annotations

from typing import Any

import pytest

from fedgsp.core.errors import InputError
from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.plan import Grouped, OneChain, Random, Singletons, Switch

FEDAVG = Grouped(Singletons(), Random(), kappa=0.3)


def test_a_fixed_order_is_a_cycle_of_everybody_that_a_seed_draws(profiles_60: Profiles) -> None:
    planner = OneChain(kappa=1.0, order="fixed")
    (chain,) = planner.plan(1, profiles_60, Seeds(0)).chains
    assert sorted(chain.clients) == profiles_60.clients.tolist()
    assert list(chain.clients) != sorted(chain.clients)
    assert planner.plan(7, profiles_60, Seeds(0)).chains == (chain,)
    assert planner.plan(7, profiles_60, Seeds(1)).chains != (chain,)


def test_a_share_is_drawn_anew_and_keeps_the_cycles_order(profiles_60: Profiles) -> None:
    whole = OneChain(order="fixed").plan(1, profiles_60, Seeds(0)).chains[0].clients
    some = [OneChain(kappa=0.3, order="fixed").plan(r, profiles_60, Seeds(0)) for r in (1, 2)]
    for plan in some:
        assert [len(plan.chains[0].clients), plan.groups, plan.left_out] == [18, 1, 42]
        places = [whole.index(client) for client in plan.chains[0].clients]
        assert places == sorted(places)
    assert some[0].chains != some[1].chains
    shuffled = [set(OneChain(kappa=1.0).plan(r, profiles_60, Seeds(0)).chains) for r in (1, 2)]
    assert shuffled[0] != shuffled[1]


def test_the_schedule_says_the_same(profiles_60: Profiles) -> None:
    expected = OneChain(kappa=0.7).schedule(3, 90)
    assert (expected.trained, expected.longest, expected.shortest, expected.sampled) == (63, 63, 63, 1)


def test_a_switch_plans_as_the_first_and_then_as_the_other(profiles_60: Profiles) -> None:
    planner = Switch(OneChain(kappa=0.3), FEDAVG, rounds=4)
    for round_, inside in ((1, OneChain(kappa=0.3)), (4, OneChain(kappa=0.3)), (5, FEDAVG), (9, FEDAVG)):
        assert planner.plan(round_, profiles_60, Seeds(3)) == inside.plan(round_, profiles_60, Seeds(3))
        assert planner.schedule(round_, 60) == inside.schedule(round_, 60)
    assert Switch(OneChain(), FEDAVG, rounds=0).plan(1, profiles_60, Seeds(0)) == FEDAVG.plan(1, profiles_60, Seeds(0))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: OneChain(kappa=0.0), "OneChain: kappa must be above 0"),
        (lambda: OneChain(order="odd"), "order cannot be 'odd'"),  # type: ignore[arg-type]
        (lambda: Switch(rounds=-1), "Switch: rounds must be a whole number of at least 0"),
    ],
)
def test_refused(make: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()
