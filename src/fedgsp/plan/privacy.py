"""Private profiles: a client adds noise to its class counts before it sends them, and grouping works on that.

What is protected is one sample of a client: with or without it one count differs by one, so the sensitivity is 1 in L1 and in
L2. (To protect a sample's *label*, where one count falls and another rises, halve epsilon.) The noise is whole-numbered, as
noise on floats leaks through its rounding (Mironov 2012):

* discrete Laplace, P(x) ~ exp(-epsilon |x|): epsilon-differentially private;
* discrete Gaussian, P(x) ~ exp(-x^2 / 2 s^2): rho-zCDP with rho = 1 / 2 s^2, hence (epsilon, delta)-private for
  epsilon = rho + 2 sqrt(rho ln(1 / delta)) (Bun and Steinke 2016; Canonne, Kamath and Steinke 2020).

Two sources of noise, for two uses. A *study* needs the same noise again for the same seed: `noise` samples exactly (Canonne
et al., Alg. 1-3: whole numbers only, no logarithm, no float) from a NumPy generator. A *deployment* needs noise that nobody
can predict, from a vetted library: `private_counts` without a generator uses OpenDP, which draws from the system and takes no
seed.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.plan.checks import require_real
from fedgsp.plan.exact import as_written

Wholes = NDArray[np.int64]
Flags = NDArray[np.bool_]
FINEST = 10**6
"""Epsilon is rounded down to six digits (more private), so that whole numbers stay far below 2^63."""


def private_counts(
    counts: NDArray[np.int64], epsilon: float, delta: float = 0.0, rng: np.random.Generator | None = None
) -> Wholes:
    """`counts` (K, F) with noise, then set to 0 where negative: discrete Laplace for delta = 0, else discrete Gaussian.

    Cutting at 0 costs no privacy, as it looks at nothing but the noised counts, and groups get slightly better by it. With
    `rng` the noise is simulated and repeatable; without, it comes from OpenDP and is fit for use (see the module).
    """
    _checked(epsilon, delta)
    if np.asarray(counts).dtype.kind not in "bui":
        raise InputError("private counts: only whole numbers can be made private, as class counts are.")
    values = np.asarray(counts, dtype=np.int64)
    if rng is not None:
        noised = values.ravel() + noise(values.size, epsilon, delta, rng)
    else:
        noised = np.asarray(_vetted(epsilon, delta)(values.ravel().tolist()), dtype=np.int64)
    return np.asarray(np.maximum(noised, 0)).reshape(values.shape)


def noise(size: int, epsilon: float, delta: float, rng: np.random.Generator) -> Wholes:
    """(size,) whole numbers: exact draws of the discrete Laplace (delta = 0) or Gaussian distribution."""
    _checked(epsilon, delta)
    if delta == 0:
        rate = Fraction(floor(as_written(epsilon) * FINEST), FINEST)
        return _discrete_laplace(size, rate.numerator, rate.denominator, rng)
    return _discrete_gaussian(size, gaussian_variance(epsilon, delta), rng)


def gaussian_variance(epsilon: float, delta: float) -> Fraction:
    """s^2 for (epsilon, delta), from epsilon = rho + 2 sqrt(rho ln(1/delta)), rounded up to a simple fraction."""
    at_delta = log(1 / delta)
    rho = (sqrt(at_delta + epsilon) - sqrt(at_delta)) ** 2
    variance = 1 / (2 * rho)
    steps = 256 if variance < 100 else 16 if variance < 10_000 else 1
    return Fraction(ceil(variance * steps * (1 + 1e-12)), steps)


def _checked(epsilon: float, delta: float) -> None:
    if not 0.001 <= require_real("private counts", "epsilon", epsilon) <= 1000:
        raise InputError(f"private counts: epsilon must be between 0.001 and 1000, not {epsilon!r}.")
    if not (require_real("private counts", "delta", delta) == 0 or 1e-15 <= delta < 1):
        raise InputError(f"private counts: delta must be 0, or at least 1e-15 and below 1, not {delta!r}.")


def _vetted(epsilon: float, delta: float) -> Callable[[list[int]], Any]:
    try:
        import opendp.prelude as dp
    except ImportError:
        raise InputError(
            "private counts: real noise comes from OpenDP, which is not installed (pip install 'fedgsp[privacy]'); "
            "give a seed to simulate it."
        ) from None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if delta == 0:
        measured: Any = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=1 / epsilon)
    else:
        measured = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=sqrt(gaussian_variance(epsilon, delta)))
    return lambda values: measured(values)


def _happens(numerator: Wholes, denominator: Wholes, rng: np.random.Generator) -> Flags:
    """True with probability exp(-numerator / denominator), exactly, for ratios of at least 0 (Canonne et al., Alg. 1)."""
    whole, part = np.divmod(numerator, denominator)
    true = _happens_below_one(part, denominator, rng)
    waiting = np.flatnonzero(true & (whole > 0))
    while len(waiting):  # exp(-3.2) = exp(-1)^3 exp(-0.2)
        ones = np.ones(len(waiting), dtype=np.int64)
        true[waiting] = _happens_below_one(ones, ones, rng)
        whole[waiting] -= 1
        waiting = waiting[true[waiting] & (whole[waiting] > 0)]
    return true


def _happens_below_one(numerator: Wholes, denominator: Wholes, rng: np.random.Generator) -> Flags:
    """The same for ratios x of at most 1: count k = 1, 2, .. while a coin of chance x / k falls; true if k ends odd."""
    ended = np.empty(len(numerator), dtype=np.int64)
    waiting, turn = np.arange(len(numerator)), 1
    while len(waiting):
        fell = rng.integers(0, denominator[waiting] * turn) < numerator[waiting]
        ended[waiting[~fell]] = turn
        waiting, turn = waiting[fell], turn + 1
    return np.asarray(ended % 2 == 1)


def _discrete_laplace(size: int, s: int, t: int, rng: np.random.Generator) -> Wholes:
    """P(x) ~ exp(-|x| s / t), exactly (Canonne et al., Alg. 2)."""
    drawn = np.empty(size, dtype=np.int64)
    waiting = np.arange(size)
    while len(waiting):
        rest = rng.integers(0, t, len(waiting))
        kept = _happens(rest, np.full(len(waiting), t), rng)
        times = np.zeros(len(waiting), dtype=np.int64)  # geometric: how often exp(-1) happens in a row
        going = np.flatnonzero(kept)
        while len(going):
            ones = np.ones(len(going), dtype=np.int64)
            going = going[_happens_below_one(ones, ones, rng)]
            times[going] += 1
        magnitude = (rest + t * times) // s
        negative = rng.integers(0, 2, len(waiting)) == 1
        kept &= ~(negative & (magnitude == 0))  # zero has only one sign
        drawn[waiting[kept]] = np.where(negative, -magnitude, magnitude)[kept]
        waiting = waiting[~kept]
    return drawn


def _discrete_gaussian(size: int, variance: Fraction, rng: np.random.Generator) -> Wholes:
    """P(x) ~ exp(-x^2 / 2 variance), exactly: discrete Laplace, of which some are rejected (Canonne et al., Alg. 3)."""
    scale = floor(sqrt(variance)) + 1
    p, q = variance.numerator, variance.denominator
    drawn = np.empty(size, dtype=np.int64)
    waiting = np.arange(size)
    while len(waiting):
        candidate = _discrete_laplace(len(waiting), 1, scale, rng)
        off = (np.abs(candidate) * scale * q - p) ** 2  # (|y| - variance / scale)^2 / (2 variance), as whole numbers
        kept = _happens(off, np.full(len(waiting), 2 * p * q * scale**2), rng)
        drawn[waiting[kept]] = candidate[kept]
        waiting = waiting[~kept]
    return drawn
