"""FedSeq's superclients: formed once, of unlike clients, within the limits; the greedy choice against a plain version."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.core.profiles import Profiles
from fedgsp.core.seeds import Seeds
from fedgsp.plan import Superclients


def profiles(counts: list[list[int]]) -> Profiles:
    array = np.array(counts)
    return Profiles(np.arange(len(array)) + 100, array, array.sum(axis=1))


def slowly(found: Profiles, order: list[int], most: int, least: int) -> list[list[int]]:
    """The authors' greedy choice, client by client, with the uniform target."""
    shares = [[c / sum(row) for c in row] for row in found.counts.tolist()]
    classes, left = len(shares[0]), list(order)
    groups: list[list[int]] = []
    group: list[int] = []
    while left:
        size = sum(int(found.sizes[i]) for i in group)
        mixed = [
            sum(shares[i][y] * int(found.sizes[i]) for i in group) / size if group else 1 / classes for y in range(classes)
        ]
        scores = []
        for k in left:
            mean = [(a + b) / 2 for a, b in zip(mixed, shares[k], strict=True)]
            scores.append(sum(m * math.log(m * classes) for m in mean if m > 0))
        group.append(left.pop(scores.index(min(scores))))
        if sum(int(found.sizes[i]) for i in group) >= least or len(group) == most:
            groups.append(group)
            group = []
    return [*groups, group] if group else groups


def test_the_greedy_choice(profiles_60: Profiles) -> None:
    planner = Superclients(most_clients=6, least_samples=500)
    formed = planner.form(profiles_60, Seeds(0).groups(1))
    expected = slowly(profiles_60, Seeds(0).groups(1).permutation(60).tolist(), 6, 500)
    if profiles_60.sizes[expected[-1]].sum() < 500 and len(expected[-1]) < 6:
        expected = expected[:-1]
    assert [group[: len(e)] for group, e in zip(formed, expected, strict=True)] == expected
    assert sorted(row for group in formed for row in group) == list(range(60))


def test_two_kinds_of_clients_are_mixed() -> None:
    planner = Superclients(kappa=1.0, most_clients=2, least_samples=1000)
    plan = planner.plan(1, profiles([[9, 1]] * 4 + [[1, 9]] * 4), Seeds(0))
    assert plan.groups == 4
    assert all((a < 104) != (b < 104) for a, b in (chain.clients for chain in plan.chains))


def test_enough_samples_close_a_superclient_and_the_rest_is_shared_out() -> None:
    planner = Superclients(most_clients=4, least_samples=20)
    formed = planner.form(profiles([[5, 5]] * 7), np.random.default_rng(0))
    assert sorted(map(len, formed)) == [2, 2, 3]
    crowded = Superclients(most_clients=2, least_samples=20).form(profiles([[5, 5]] * 7), np.random.default_rng(0))
    assert sorted(map(len, crowded)) == [1, 2, 2, 2], "nobody has room, so it stays on its own"


def test_formed_once_sampled_and_ordered_anew(profiles_60: Profiles) -> None:
    planner = Superclients(kappa=0.5, most_clients=6, least_samples=10_000)
    plans = [planner.plan(r, profiles_60, Seeds(0)) for r in (1, 2, 3)]
    assert [(len(plan.chains), plan.groups) for plan in plans] == [(5, 10)] * 3
    groups = {frozenset(chain.clients) for plan in plans for chain in plan.chains}
    assert len(groups) <= 10
    orders = {chain.clients for plan in plans for chain in plan.chains}
    assert len(orders) > len(groups)
    fixed = Superclients(kappa=1.0, most_clients=6, least_samples=10_000, order="fixed")
    assert fixed.plan(1, profiles_60, Seeds(0)).chains == fixed.plan(2, profiles_60, Seeds(0)).chains
    expected = planner.schedule(1, 60)
    assert (expected.groups, expected.sampled, expected.longest, expected.trained) == (10, 5, 6, 30)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"kappa": 1.5}, "Superclients: kappa must be above 0 and at most 1"),
        ({"most_clients": 0}, "most_clients must be a whole number of at least 1"),
        ({"least_samples": 0}, "least_samples must be a whole number of at least 1"),
        ({"target": "local"}, "target cannot be 'local'"),
    ],
)
def test_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Superclients(**wrong)
