"""Astraea's augmentation: ratios by hand, counts after it, the same on every call, nothing but training data touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData
from fedgsp.data.arrays import from_arrays
from fedgsp.prepare import AugmentMean, AugmentZScore
from fedgsp.prepare.augment import transformed


def test_ratios_to_the_mean_by_hand() -> None:
    counts = np.array([10, 40, 100, 0])  # mean of those that occur: 50
    assert AugmentMean(alpha=1.0).ratios(counts).tolist() == pytest.approx([5.0, 1.25, 1.0, 1.0])
    assert AugmentMean(alpha=0.5).ratios(counts).tolist() == pytest.approx([5**0.5, 1.25**0.5, 1.0, 1.0])
    assert AugmentMean(alpha=0.0).ratios(counts).tolist() == [1.0] * 4


def test_ratios_by_z_score_by_hand() -> None:
    counts = np.array([20] * 11 + [240])  # mean 460/12, s with ddof 1 = 63.509, z = -.2887 and 3.1754
    mean, spread = 460 / 12, 63.50853
    high = (mean + spread * (3.17542648 * 2.0) ** 0.5) / 240
    found = AugmentZScore(tau_d=2.0).ratios(counts)
    assert found[:11].tolist() == pytest.approx([1.0] * 11), "z = -.29 is not below tau_a = -.5"
    assert found[11] == pytest.approx(high, rel=1e-5)
    wide = AugmentZScore(tau_d=4.0).ratios(counts)  # tau_a = -.25
    low = (mean - spread * (0.28867513 * 0.25) ** 0.5) / 20
    assert wide[:11].tolist() == pytest.approx([max(1.0, low)] * 11, rel=1e-5)
    assert low > 1
    assert wide[11] == 1.0
    assert AugmentZScore().ratios(np.array([5, 5, 5])).tolist() == [1.0] * 3


def skewed(seed: int = 0) -> FederatedData:
    """Class 0 ten times as common as the others, on six clients."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, size=600, p=[10 / 13, 1 / 13, 1 / 13, 1 / 13])
    pixels = np.full((600, 8, 8), 255, dtype=np.uint8)
    pixels[:, 2:6, 2:6] = rng.integers(0, 200, (600, 4, 4))
    return from_arrays(pixels, labels, np.repeat(np.arange(6), 100), classes=4, test_fraction=0.2)


EVERYBODY: NDArray[np.int64] = np.arange(6)


def test_full_balance_brings_every_class_to_the_mean() -> None:
    data = skewed()
    before = data.profiles().counts.sum(axis=0)
    after = AugmentMean(alpha=1.0).prepare(data, EVERYBODY, 0).data.profiles().counts.sum(axis=0)
    assert after[0] == before[0]
    np.testing.assert_allclose(after[1:], before.mean(), rtol=0.1)


def test_thinning_keeps_the_expected_share_and_a_sample_a_client() -> None:
    data = skewed()
    rule = AugmentZScore(tau_d=0.5)
    before = data.profiles().counts.sum(axis=0)
    ratio = rule.ratios(before)[0]
    prepared = rule.prepare(data, EVERYBODY, 0).data
    after = prepared.profiles().counts.sum(axis=0)
    assert ratio < 1
    assert after[0] == pytest.approx(ratio * before[0], rel=0.1)
    assert prepared.train.sizes.min() >= 1


def test_no_row_is_moved_and_only_training_parts_of_the_clients_named_change() -> None:
    data = skewed().with_validation(0.2, 0)
    prepared = AugmentMean(alpha=1.0).prepare(data, np.array([0, 1, 2]), 0).data
    assert np.array_equal(prepared.features[: len(data.features)], data.features)
    assert np.array_equal(prepared.labels[: len(data.labels)], data.labels)
    for client in range(6):
        assert np.array_equal(prepared.test[client], data.test[client])
        assert np.array_equal(prepared.validation[client], data.validation[client])
        assert (len(prepared.train[client]) > len(data.train[client])) == (client < 3)
    added = prepared.train[0][prepared.train[0] >= len(data.features)]
    seen = {data.features[row].tobytes() for row in np.concatenate([data.test[0], data.validation[0]])}
    assert not any(prepared.features[row].tobytes() in seen for row in added)


def test_the_same_seed_gives_the_same_samples() -> None:
    rule = AugmentMean(alpha=1.0)
    one, two, other = (rule.prepare(skewed(), EVERYBODY, seed).data for seed in (0, 0, 1))
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != other.fingerprint


def test_what_is_sent_is_the_class_counts_up_and_their_sums_down() -> None:
    assert AugmentMean().prepare(skewed(), EVERYBODY, 0).bytes == 2 * 4 * 4 * 6


def test_alpha_zero_leaves_the_data_alone() -> None:
    data = skewed()
    assert AugmentMean(alpha=0.0).prepare(data, EVERYBODY, 0).data.fingerprint == data.fingerprint


def test_what_comes_into_the_picture_is_background() -> None:
    image = np.full((8, 8), 255, dtype=np.uint8)
    rng = np.random.default_rng(0)
    for _ in range(40):
        assert (transformed(image, rng, 255.0) == 255).all()
    image[3:5, 3:5] = 0
    changed = [transformed(image, rng, 255.0) for _ in range(40)]
    assert all(c.dtype == np.uint8 and c.min() < 200 for c in changed)
    assert len({c.tobytes() for c in changed}) > 35


def test_colour_planes_move_together() -> None:
    image = np.zeros((3, 8, 8), dtype=np.float32)
    image[:, 2:4, 2:4] = 1.0
    moved = transformed(image, np.random.default_rng(1), 0.0)
    assert moved.shape == image.shape
    assert np.array_equal(moved[0], moved[1])


def test_the_background_is_found_or_given() -> None:
    assert AugmentMean()._background(skewed()) == 255.0
    assert AugmentMean(background=0.0)._background(skewed()) == 0.0
    assert AugmentMean(background=1.0)._background(skewed()) == 255.0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: AugmentMean(alpha=-1.0), "alpha must be a number of at least 0, not -1.0"),
        (lambda: AugmentZScore(tau_d=0.0), "tau_d must be a positive number, not 0.0"),
    ],
)
def test_wrong_parameters(make: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


def test_data_that_cannot_be_augmented() -> None:
    owner = np.zeros(4, dtype=np.int64)
    flat = from_arrays(np.zeros((4, 5), dtype=np.float32), np.arange(4), owner, test_fraction=0.0)
    with pytest.raises(InputError, match="samples of shape \\(5,\\) are none"):
        AugmentMean().prepare(flat, np.array([0]), 0)
    real = from_arrays(np.zeros((4, 5, 5), dtype=np.float32), np.linspace(0, 1, 4), owner, test_fraction=0.0)
    with pytest.raises(InputError, match="this data has none"):
        AugmentMean().prepare(real, np.array([0]), 0)
