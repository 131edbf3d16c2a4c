from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, norm

from fedgsp.core.errors import InputError
from fedgsp.plan import private_counts
from fedgsp.plan.privacy import gaussian_variance, noise


def fits(drawn: NDArray[np.int64], weight: NDArray[np.float64], reach: int) -> float:
    """The chance of a worse fit to probabilities proportional to `weight` on -reach..reach, with the tails in one cell."""
    share = weight / weight.sum()
    inside = np.abs(np.arange(len(weight)) - len(weight) // 2) <= reach
    seen = np.array([(drawn == x).sum() for x in range(-reach, reach + 1)])
    expected = np.append(share[inside], share[~inside].sum()) * len(drawn)
    return float(chisquare(np.append(seen, len(drawn) - seen.sum()), expected).pvalue)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_laplace_noise_has_its_distribution(epsilon: float) -> None:
    far = np.arange(-400, 401)
    drawn = noise(60_000, epsilon, 0.0, np.random.default_rng(0))
    assert fits(drawn, np.exp(-epsilon * np.abs(far)), round(4 / epsilon)) > 0.001


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (3.0, 1e-3), (20.0, 0.1)])
def test_gaussian_noise_is_a_rounded_normal_number(epsilon: float, delta: float) -> None:
    spread = math.sqrt(gaussian_variance(epsilon, delta))
    far = np.arange(-400, 401)
    drawn = noise(60_000, epsilon, delta, np.random.default_rng(0))
    assert fits(drawn, norm.cdf((far + 0.5) / spread) - norm.cdf((far - 0.5) / spread), math.ceil(2 * spread)) > 0.001


def test_the_gaussian_is_wide_enough() -> None:
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-5), (10.0, 1e-2)):
        rho = 1 / (2 * gaussian_variance(epsilon, delta))
        assert rho + 2 * math.sqrt(rho * math.log(1 / delta)) <= epsilon
        assert rho + 2 * math.sqrt(rho * math.log(1 / delta)) > 0.97 * epsilon  # and not wider than need be


def test_noise_is_repeatable_and_counts_stay_counts() -> None:
    counts = np.arange(600).reshape(100, 6) % 7
    first, again, other = (private_counts(counts, 0.5, rng=np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.shape == counts.shape
    assert first.dtype == np.int64
    assert first.min() == 0
    assert np.array_equal(private_counts(counts, 1000.0, rng=np.random.default_rng(0)), counts)


def test_real_noise_comes_from_opendp() -> None:
    pytest.importorskip("opendp")
    counts = np.full((100, 10), 1000)
    for delta, variance in ((0.0, 2 * math.exp(-1) / (1 - math.exp(-1)) ** 2), (1e-5, gaussian_variance(1.0, 1e-5))):
        drawn = private_counts(counts, 1.0, delta) - 1000
        assert 0.6 * variance < drawn.var() < 1.6 * variance


def test_without_opendp_there_is_no_real_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(InputError, match=r"^private counts: real noise comes from OpenDP, which is not installed"):
        private_counts(np.ones((2, 2), dtype=np.int64), 1.0)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sentence"),
    [
        (0.0, 0.0, r"private counts: epsilon must be between 0\.001 and 1000, not 0\.0\."),
        (float("nan"), 0.0, r"private counts: epsilon must be a finite number, not nan\."),
        (1.0, 1.0, r"private counts: delta must be 0, or at least 1e-15 and below 1, not 1\.0\."),
        (1.0, -0.1, r"private counts: delta must be 0, or at least 1e-15 and below 1, not -0\.1\."),
    ],
)
def test_wrong_parameters_are_refused(epsilon: float, delta: float, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}$"):
        private_counts(np.ones((2, 2), dtype=np.int64), epsilon, delta, np.random.default_rng(0))


def test_only_counts_can_be_made_private() -> None:
    with pytest.raises(InputError, match=r"^private counts: only whole numbers"):
        private_counts(np.ones((2, 2)), 1.0, rng=np.random.default_rng(0))  # type: ignore[arg-type]
