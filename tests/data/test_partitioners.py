from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgsp.core.errors import InputError
from fedgsp.data.partitioners import IID, Dirichlet, Partitioner, Quantity, Shards

LABELS = np.arange(1000) % 10


def deal(how: Partitioner, labels: Any = LABELS, seed: int = 0) -> Any:
    owner = how.assign(np.asarray(labels), np.random.default_rng(seed))
    assert owner.shape == (len(labels),)
    assert set(owner.tolist()) == set(range(how.clients))
    return owner


@pytest.mark.parametrize("how", [IID(7), Dirichlet(7, 0.3), Shards(7, 2), Quantity(7, 0.3)])
def test_the_same_seed_deals_the_same_and_another_one_another(how: Partitioner) -> None:
    assert np.array_equal(deal(how), deal(how))
    assert not np.array_equal(deal(how), deal(how, seed=1))


def test_iid_sizes_are_equal_give_or_take_one() -> None:
    assert sorted(np.bincount(deal(IID(7))).tolist()) == [142] + [143] * 6


def test_small_alpha_means_few_classes_and_large_alpha_all() -> None:
    def held(alpha: float) -> float:
        owner = deal(Dirichlet(20, alpha))
        shares = np.array([np.bincount(LABELS[owner == k], minlength=10) / (owner == k).sum() for k in range(20)])
        return float(shares.max(axis=1).mean())

    assert held(0.05) > 0.6
    assert held(100) < 0.25


def test_dirichlet_respects_the_minimum_size_and_ends() -> None:
    sizes = np.bincount(deal(Dirichlet(50, 0.01, min_size=15)))
    assert sizes.min() >= 15
    assert sizes.sum() == 1000


def test_dirichlet_survives_an_alpha_that_underflows() -> None:
    deal(Dirichlet(5, 1e-9))


@pytest.mark.parametrize(("clients", "each"), [(10, 1), (5, 2), (7, 3), (100, 2), (3, 10)])
def test_shards_give_exactly_that_many_classes(clients: int, each: int) -> None:
    owner = deal(Shards(clients, each))
    assert [len(np.unique(LABELS[owner == k])) for k in range(clients)] == [each] * clients


def test_quantity_is_skewed_in_size_only() -> None:
    owner = deal(Quantity(10, 0.3, min_size=20))
    sizes = np.bincount(owner)
    assert sizes.min() >= 20
    assert sizes.max() > 3 * sizes.min()
    largest = np.bincount(LABELS[owner == sizes.argmax()], minlength=10) / sizes.max()
    assert largest.max() < 0.25


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=60),
    st.sampled_from(["iid", "dirichlet", "shards", "quantity"]),
    st.integers(1, 12),
    st.floats(0.01, 50),
    st.integers(0, 4),
)
def test_every_sample_goes_to_one_client_and_nobody_is_empty(
    labels: list[int], name: str, clients: int, alpha: float, least: int
) -> None:
    made: dict[str, Partitioner] = {
        "iid": IID(clients), "dirichlet": Dirichlet(clients, alpha, least), "shards": Shards(clients, max(1, least)),
        "quantity": Quantity(clients, alpha, least),
    }  # fmt: skip
    try:
        owner = made[name].assign(np.array(labels), np.random.default_rng(0))
    except InputError:
        return
    sizes = np.bincount(owner, minlength=clients)
    assert len(sizes) == clients
    assert sizes.min() >= (max(1, least) if name in ("dirichlet", "quantity") else 1)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (IID(0), "at least one client"),
        (IID(2000), "1000 samples are too few for 2000 clients"),
        (Dirichlet(10, 0.0), "alpha must be a positive number"),
        (Dirichlet(10, float("nan")), "alpha must be a positive number"),
        (Dirichlet(10, 1.0, 200), "too few for 10 clients of at least 200"),
        (Shards(10, 11), "per_client must be from 1 to the 10 classes"),
        (Shards(3, 2), "6 shards cannot hold 10 classes"),
        (Quantity(10, 1.0, -1), "min_size cannot be negative"),
    ],
)
def test_refused(how: Partitioner, told: str) -> None:
    with pytest.raises(InputError, match=told):
        how.assign(LABELS, np.random.default_rng(0))


def test_real_targets_have_no_classes_to_deal() -> None:
    with pytest.raises(InputError, match="needs class labels"):
        Dirichlet(3).assign(np.linspace(0, 1, 30), np.random.default_rng(0))
    IID(3).assign(np.linspace(0, 1, 30), np.random.default_rng(0))
