from __future__ import annotations

import pytest

from fedgsp.core.errors import InputError
from fedgsp.plan import ICG, Constant, Grouped, Linear, Log, OfLength, Proportional, Singletons


def test_chains_of_a_length_however_many_clients() -> None:
    assert [OfLength(4).groups(r, 40) for r in (1, 2, 99)] == [10, 10, 10]
    assert [OfLength(4).groups(1, clients) for clients in (1, 3, 4, 7, 8, 368)] == [1, 1, 1, 1, 2, 92]


def test_halving() -> None:
    growth = OfLength(6, halve_every=2)  # 6, 3, 1, 1: rounded down
    assert [growth.groups(r, 60) for r in range(1, 9)] == [10, 10, 20, 20, 60, 60, 60, 60]
    assert growth.groups(10**6, 60) == 60


def test_in_proportion_to_the_clients() -> None:
    growth = Proportional(Log(2, 10), clients=368)
    assert [growth.groups(r, 368) for r in range(1, 60)] == [Log(2, 10).groups(r, 368) for r in range(1, 60)]
    assert [growth.groups(r, 736) for r in (1, 2, 3)] == [20, 40, 60]
    assert [growth.groups(1, clients) for clients in (1, 15, 40, 100)] == [1, 1, 1, 2]
    assert Proportional(Singletons()).groups(3, 15) == 15
    assert Proportional(Linear(10**6, 10)).groups(10**6, 15) == 15, "never more than there are clients"


def test_a_schedule_says_the_groups_themselves() -> None:
    sizes = Grouped(OfLength(4), ICG(), chains=6).schedule(1, 40)
    assert (sizes.wanted, sizes.groups, sizes.shortest, sizes.longest, sizes.sampled, sizes.trained) == (10, 10, 4, 4, 6, 24)
    assert not sizes.capped


def test_refusals() -> None:
    with pytest.raises(InputError, match="length must be a whole number of at least 1"):
        OfLength(0)
    with pytest.raises(InputError, match="halve_every must be a whole number"):
        OfLength(4, halve_every=-1)
    with pytest.raises(InputError, match="clients must be a whole number of at least 1"):
        Proportional(Constant(3), clients=0)
    with pytest.raises(InputError, match="cannot be scaled"):
        Proportional(OfLength(4))
    with pytest.raises(ValueError, match="rounds are counted from 1"):
        OfLength(4).groups(0, 10)
