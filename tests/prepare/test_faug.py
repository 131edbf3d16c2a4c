"""FAug: who lacks what, what is sent, that everybody is filled up, and a GAN that learns and repeats to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData
from fedgsp.data.arrays import from_arrays
from fedgsp.methods import named
from fedgsp.prepare import FAugGAN, FAugOversample
from fedgsp.prepare.gan import train_gan
from tests.support.small_federations import bits, images, pairs

COUNTS = ([6, 4, 2, 0, 0], [0, 3, 3, 3, 0], [1, 0, 5, 9, 0])
"""Samples of each of five labels on three clients. Medians of those above 0: 4, 3, 5; nobody has the last label."""
EVERYBODY: NDArray[np.int64] = np.arange(3)


def federation() -> FederatedData:
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.repeat(np.arange(5), row) for row in COUNTS])
    owner = np.repeat(np.arange(3), [sum(row) for row in COUNTS])
    pixels = rng.integers(0, 90, (len(labels), 8, 8)).astype(np.uint8)
    pixels[np.arange(len(labels)), labels] = 250
    return from_arrays(pixels, labels, owner, classes=5, test_fraction=0.0)


@pytest.mark.parametrize("rule", [FAugOversample(seeds=2, redundant=9), FAugGAN(seeds=2, redundant=9, epochs=1, per_class=4)])
def test_everybody_is_filled_up_to_its_median_where_somebody_sent_a_seed(rule: Any) -> None:
    data = federation()
    prepared = rule.prepare(data, EVERYBODY, 0)
    assert prepared.data.profiles().counts.tolist() == [[6, 4, 4, 4, 0], [3, 3, 3, 3, 0], [5, 5, 5, 9, 0]]
    for client in range(3):
        own = data.train[client]
        assert prepared.data.train[client][: len(own)].tolist() == own.tolist(), "no sample is lost or moved"
    assert np.array_equal(prepared.data.features[: len(data.features)], data.features)
    assert prepared.data.features.dtype == np.uint8
    assert prepared.data.fingerprint == rule.prepare(data, EVERYBODY, 0).data.fingerprint
    assert prepared.data.fingerprint != rule.prepare(data, EVERYBODY, 1).data.fingerprint


def test_targets_seeds_and_redundant_labels_by_hand() -> None:
    data, rule = federation(), FAugOversample(seeds=2, redundant=1)
    first, second, third = (rule.lack_of(data, k, 0) for k in range(3))
    assert first.wanted == {2: 2, 3: 4, 4: 4}
    assert second.wanted == {0: 3, 4: 3}
    assert third.wanted == {0: 4, 1: 5, 4: 5}
    assert len(set(first.named) - {2, 3, 4}) == 1
    assert set(first.named) - {2, 3, 4} <= {0, 1}
    assert np.bincount(data.labels[first.sent], minlength=5)[[2, 3, 4]].tolist() == [2, 0, 0]
    assert len(first.sent) == 2 + 2
    assert len(second.sent) == 0 + 2
    assert len(third.sent) == 1 + 2
    assert set(third.sent.tolist()) <= set(data.train[2].tolist())
    none = FAugOversample(seeds=2, redundant=0).lack_of(data, 0, 0)
    assert none.named == (2, 3, 4)


def test_the_traffic() -> None:
    data = federation()
    names, seeds, sample = 5 + 5 + 5, 6 + 6 + 5, 64 + 4
    copies = (2 + 4) + 3 + (4 + 5)
    oversampled = FAugOversample(seeds=2, redundant=9).prepare(data, EVERYBODY, 0)
    assert oversampled.bytes == 4 * names + seeds * sample + copies * sample
    learnt = FAugGAN(seeds=2, redundant=9, epochs=1, per_class=4).prepare(data, EVERYBODY, 0)
    generator = 4 * ((105 * 256 + 256) + (256 * 512 + 512) + (512 * 64 + 64))
    assert learnt.bytes == 4 * names + seeds * sample + 3 * generator


def test_nobody_lacks_anything_so_nothing_is_sent_and_it_is_fedavg_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    even = from_arrays(
        rng.integers(0, 255, (80, 8, 8)).astype(np.uint8), np.tile(np.arange(4), 20), np.repeat(np.arange(4), 20),
        classes=4, test_fraction=0.0,
    )  # fmt: skip
    plain = fedgsp.train("fedavg", even, rounds=2, workers=0)
    for name in ("faug", "faug-oversample"):
        ours = fedgsp.train(name, even, rounds=2, workers=0)
        assert bits(ours.state.model) == bits(plain.state.model)
        assert ours.run.prepared_bytes == 0


def test_copies_look_like_their_label() -> None:
    """Pictures whose bright row is their label: so are affine copies, mostly, and so are the GAN's."""
    data = images(clients=6, each=60)
    before = len(data.features)
    for rule, least in ((FAugOversample(), 0.6), (FAugGAN(seeds=30, epochs=40, per_class=100), 0.6)):
        made = rule.prepare(data, np.arange(6), 0).data
        rows = made.features[before:].astype(float).sum(axis=2).argmax(axis=1)
        assert len(rows) > 50
        assert np.mean(np.abs(rows - made.labels[before:] * 2) <= 1) > least


def test_the_gan_follows_from_its_seed() -> None:
    rng = np.random.default_rng(0)
    seen, labels = rng.normal(size=(20, 4, 4)), np.arange(20) % 2
    asked = np.array([0, 1, 1])
    drawn = [train_gan(seen, labels, 2, 2, seed).draw(asked, np.random.default_rng(5)) for seed in (1, 1, 2)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert drawn[0].dtype == np.float64
    assert drawn[0].min() >= seen.min()
    assert drawn[0].max() <= seen.max()
    assert train_gan(seen, labels, 2, 1, 0).draw(asked[:0], np.random.default_rng(0)).shape == (0, 4, 4)


def test_resumed_to_the_bit(tmp_path: Path) -> None:
    data = images(clients=6, each=20)
    method = replace(named("faug"), preparation=FAugGAN(epochs=2, per_class=10))
    fedgsp.train(method, data, rounds=1, workers=0, out=tmp_path / "run")
    resumed = fedgsp.resume(tmp_path / "run", rounds=2, data=data)
    assert resumed.state.digest() == fedgsp.train(method, data, rounds=2, workers=0).state.digest()


def test_refused() -> None:
    with pytest.raises(InputError, match="seeds of at least 1"):
        FAugOversample(seeds=0)
    with pytest.raises(InputError, match="epochs and per_class must be at least 1"):
        FAugGAN(epochs=0)
    with pytest.raises(InputError, match="FAug balances classes, and this data has none"):
        FAugOversample().prepare(pairs([(1.0, 1.0)]), np.arange(1), 0)
    flat = from_arrays(np.zeros((4, 3), dtype=np.float32), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), classes=2)
    with pytest.raises(InputError, match="FAug turns and shifts images; samples of shape"):
        FAugGAN().prepare(flat, np.arange(2), 0)
