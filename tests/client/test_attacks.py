"""Dishonest clients: what they hand on follows from what honest ones would; robust rules withstand two of ten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedgsp
from fedgsp.client import SGD
from fedgsp.client.attacks import Attack, Gaussian, InnerProduct, LabelFlip, Scaled, SignFlip
from fedgsp.core.errors import InputError
from fedgsp.core.tensors import Tensors
from fedgsp.data import FederatedData
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.server import CentredClipping, ClippedMean, Combine, GeometricMedian, Krum, Mean, Median, TrimmedMean

RULES: list[Combine] = [
    Median(),
    TrimmedMean(share=0.2),
    Krum(share=0.2),
    GeometricMedian(),
    ClippedMean(),
    CentredClipping(),
]


def federation(clients: int, each: int = 30, seed: int = 0) -> FederatedData:
    """Three classes in a plane, all clients alike."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, clients * each)
    x = (np.eye(3)[labels][:, :2] * 3 + rng.normal(size=(len(labels), 2)) * 0.5).astype(np.float32)
    return fedgsp.from_arrays(x, labels, np.repeat(np.arange(clients), each), classes=3, test_fraction=0.3)


def trained(rule: SGD, server: Any = None, clients: int = 1, rounds: int = 1, **options: Any) -> fedgsp.RunResult:
    every = fedgsp.Method(Grouped(Singletons(), Random(), kappa=1.0), rule, server or Mean())
    return fedgsp.train(every, federation(clients), lambda: torch.nn.Linear(2, 3), rounds=rounds, **{"workers": 0, **options})


def accuracy(*given: Any, **options: Any) -> float:
    found = trained(*given, **options).accuracy
    assert found is not None
    return found


def weights(rule: SGD) -> Tensors:
    return trained(rule).state.model


HONEST = SGD(lr=0.1)
START: Tensors = weights(SGD(lr=1e-30))


@pytest.mark.parametrize(
    ("attack", "factor"), [(SignFlip(lr=0.1, attackers=(0,)), -1.0), (Scaled(lr=0.1, attackers=(0,)), 10.0),
                           (InnerProduct(lr=0.1, attackers=(0,)), -0.5), (SignFlip(lr=0.1, attackers=(0,), scale=4.0), -4.0)],
)  # fmt: skip
def test_what_is_handed_on_is_a_multiple_of_the_honest_update(attack: Attack, factor: float) -> None:
    honest, made = weights(HONEST), weights(attack)
    for name, start in START.items():
        assert torch.allclose(made[name], start + factor * (honest[name] - start), atol=1e-6)


def test_noise_is_that_of_its_seed_round_and_client() -> None:
    first, again, other = (weights(Gaussian(lr=0.1, attackers=(0,), scale=2.0, seed=seed)) for seed in (1, 1, 2))
    expected = START["weight"] + 2.0 * torch.from_numpy(
        np.random.default_rng([1, 1, 0, 0, 0]).standard_normal((3, 2), dtype=np.float32)
    )
    assert torch.allclose(first["weight"], expected, atol=1e-6)
    assert torch.equal(first["weight"], again["weight"])
    assert not torch.equal(first["weight"], other["weight"])


def test_flipped_labels_teach_the_opposite() -> None:
    assert accuracy(HONEST, rounds=8) > 0.85
    assert accuracy(LabelFlip(lr=0.1, attackers=(0,)), rounds=8) < 0.5, "classes 0 and 2 are exchanged, 1 stays"


def test_nobody_attacks_unless_named() -> None:
    honest, none = weights(HONEST), weights(SignFlip(lr=0.1, attackers=(5,)))
    assert all(torch.equal(honest[name], none[name]) for name in honest)


@pytest.mark.parametrize("server", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("attack", [SignFlip(lr=0.1, attackers=(1, 6), scale=5.0), Scaled(lr=0.1, attackers=(1, 6), scale=50.0),
                                    Gaussian(lr=0.1, attackers=(1, 6), scale=20.0), InnerProduct(lr=0.1, attackers=(1, 6)),
                                    LabelFlip(lr=0.1, attackers=(1, 6))], ids=lambda rule: type(rule).__name__)  # fmt: skip
def test_two_of_ten_do_not_spoil_a_robust_rule(server: Combine, attack: Attack) -> None:
    assert accuracy(attack, server, clients=10, rounds=16) > 0.85


def test_two_of_ten_spoil_the_mean() -> None:
    assert accuracy(Gaussian(lr=0.1, attackers=(1, 6), scale=20.0), Mean(), clients=10, rounds=16) < 0.8


@pytest.mark.parametrize("server", RULES, ids=lambda rule: type(rule).__name__)
def test_the_same_bits_for_two_workers(server: Combine) -> None:
    attack = Gaussian(lr=0.1, attackers=(1,), scale=1.0)
    one, two = (trained(attack, server, clients=4, rounds=2, workers=workers).state.digest() for workers in (0, 2))
    assert one == two


def test_senseless_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="scale"):
        SignFlip(scale=float("nan"))
    with pytest.raises(InputError, match="numbers of clients"):
        SignFlip(attackers=(-1,))


def test_a_config_file_spells_them() -> None:
    from fedgsp.parts import decode, encode

    attack = SignFlip(attackers=(3, 4), scale=2.0)
    table = encode(attack)
    assert table["kind"] == "attack-sign-flip"
    assert decode("local", table, "local") == attack
