"""Astraea's plan: clients first, mediators of gamma, several passes; the schedule says the same without planning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.plan import ICG, GreedyKL, Mediators, Random


@pytest.mark.parametrize("grouper", [GreedyKL(), Random()])
def test_sizes_passes_and_who_trains(profiles_60: Profiles, grouper: Any) -> None:
    planner = Mediators(kappa=0.4, gamma=10, passes=3, grouper=grouper)
    plan = planner.plan(5, profiles_60, Seeds(0))
    assert [len(chain.clients) for chain in plan.chains] == [10, 10, 4]
    assert all(chain.passes == 3 for chain in plan.chains)
    assert len(set(plan.clients)) == 24
    assert set(plan.clients) <= set(profiles_60.clients.tolist())
    assert (plan.groups, plan.left_out) == (3, 36)
    expected = planner.schedule(5, 60)
    assert (expected.groups, expected.sampled, expected.shortest, expected.longest) == (3, 3, 4, 10)
    assert (expected.trained, expected.grouped, expected.passes) == (24, 24, 3)
    assert not expected.capped


def test_other_clients_each_round_and_the_same_for_the_same_seed(profiles_60: Profiles) -> None:
    planner = Mediators()
    assert planner.plan(1, profiles_60, Seeds(0)) == planner.plan(1, profiles_60, Seeds(0))
    assert set(planner.plan(1, profiles_60, Seeds(0)).clients) != set(planner.plan(2, profiles_60, Seeds(0)).clients)
    assert set(planner.plan(1, profiles_60, Seeds(0)).clients) != set(planner.plan(1, profiles_60, Seeds(1)).clients)


def test_the_target_is_that_of_all_clients_not_of_those_sampled() -> None:
    """Two clients are sampled of many; whoever is more like everybody opens the first mediator."""
    counts = np.array([[9, 1]] * 30 + [[5, 5]] * 10)
    profiles = Profiles(np.arange(40), counts, counts.sum(axis=1))
    planner = Mediators(kappa=0.05, gamma=1, passes=1)
    mixed = 0
    for round_ in range(1, 40):
        first, second = (int(chain.clients[0]) for chain in planner.plan(round_, profiles, Seeds(0)).chains)
        if (first < 30) != (second < 30):
            mixed += 1
            assert first < 30
    assert mixed > 5


def test_at_least_one_client() -> None:
    assert Mediators(kappa=0.01).online(7) == 1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"kappa": 0.0}, "Mediators: kappa must be above 0 and at most 1"),
        ({"gamma": 0}, "Mediators: gamma must be a whole number of at least 1, not 0"),
        ({"passes": 0}, "Mediators: passes must be a whole number of at least 1, not 0"),
        ({"grouper": ICG()}, "Mediators: ICG cannot fill groups of a given size"),
    ],
)
def test_wrong_parameters(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Mediators(**wrong)
