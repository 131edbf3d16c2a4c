from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedgsp.core.seeds import Purpose, Seeds, generator


def first(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))


def test_purposes_keep_their_numbers() -> None:
    """Renumbering would change every run ever made."""
    assert {p.name: p.value for p in Purpose} == {
        "INIT": 1, "PLAN": 2, "BATCHES": 3, "TORCH": 4, "GROUPS": 5, "SPLIT": 6, "HOLDOUT": 7, "SUBSET": 8,
        "ROUTE": 9, "PERSONAL": 11, "META": 12, "UNTRAINED": 14, "AUGMENT": 20, "SHARE": 21, "POOL": 22, "SEED_SAMPLES": 23,
        "GAN": 24, "PARTITION": 30, "TRANSFORM": 31, "SERVER_NOISE": 40, "CLIENT_NOISE": 41,
        "ATTACKERS": 50,
    }  # fmt: skip


def test_golden_values() -> None:
    seeds = Seeds(7)
    assert seeds.init() == 7103296511922187878
    assert seeds.torch(3, 14, 1) == 5862210948170039641
    assert seeds.plan(3).permutation(8).tolist() == [2, 7, 4, 6, 0, 3, 1, 5]
    assert seeds.groups(3).permutation(8).tolist() == [7, 1, 2, 0, 5, 3, 4, 6]
    assert seeds.batches(3, 14, 1, 2).permutation(8).tolist() == [4, 7, 1, 6, 5, 3, 2, 0]


def test_the_same_key_gives_the_same_numbers_again() -> None:
    assert first(Seeds(1).batches(1, 2, 0, 0)) == first(Seeds(1).batches(1, 2, 0, 0))


def test_every_part_of_a_key_and_every_purpose_has_numbers_of_its_own() -> None:
    seen = [first(generator(seed, purpose, *key)) for seed, purpose, *key in _keys()]
    assert len(set(seen)) == len(seen)


def _keys() -> list[tuple[int, Purpose, *tuple[int, ...]]]:
    singles: list[tuple[int, Purpose, *tuple[int, ...]]] = [
        (seed, purpose, key) for seed in (0, 1, 2**32 - 1) for purpose in Purpose for key in (0, 1, 2)
    ]
    batches: list[tuple[int, Purpose, *tuple[int, ...]]] = [
        (0, Purpose.BATCHES, *key) for key in itertools.product((1, 2), (1, 2), (0, 1), (0, 1))
    ]
    return singles + batches


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, 2, 0, 0), (2, 1, 0, 0)),  # round and client must not be mixed up
        ((1, 2, 0, 1), (1, 2, 1, 0)),  # nor visit and epoch
        ((1, 1, 1, 1), (1, 1, 1, 2)),
    ],
)
def test_batches_of_different_visits_are_shuffled_apart(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int]
) -> None:
    seeds = Seeds(0)
    assert not np.array_equal(seeds.batches(*one).permutation(50), seeds.batches(*other).permutation(50))


def test_orders_of_consecutive_rounds_are_not_correlated() -> None:
    """A weak generator key would show here: 400 pairs of neighbouring rounds, mean correlation near 0."""
    orders = np.array([Seeds(0).plan(r).permutation(20) for r in range(1, 402)], dtype=float)
    pairs = [float(np.corrcoef(a, b)[0, 1]) for a, b in itertools.pairwise(orders)]
    assert abs(float(np.mean(pairs))) < 0.05
