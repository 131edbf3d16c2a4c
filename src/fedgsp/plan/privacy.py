"""Private profiles: a client adds noise to its class counts before it sends them, and grouping works on that.

What is protected is one sample of a client: with or without it one count differs by one, so the sensitivity is 1 in L1 and in
L2. (To protect a sample's *label*, where one count falls and another rises, halve epsilon.) The noise is whole-numbered, as
noise on floats leaks through its rounding (Mironov 2012):

* discrete Laplace, P(x) ~ exp(-epsilon |x|): epsilon-differentially private;
* discrete Gaussian, P(x) ~ exp(-x^2 / 2 s^2): rho-zCDP with rho = 1 / 2 s^2, hence (epsilon, delta)-private for
  epsilon = rho + 2 sqrt(rho ln(1 / delta)) (Bun and Steinke 2016; Canonne, Kamath and Steinke 2020).

Two sources of noise, for two uses. A *deployment* needs noise that nobody can predict, from a vetted library: `private_counts`
without a generator uses OpenDP, which draws from the system and takes no seed. A *study* needs the same noise again for the
same seed: with a NumPy generator it is simulated, the Laplace noise as the difference of two geometric numbers (which has its
distribution), the Gaussian noise as a rounded normal number (which nearly has). Simulated noise protects nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.params import require_real

Wholes = NDArray[np.int64]


def private_counts(
    counts: NDArray[np.int64], epsilon: float, delta: float = 0.0, rng: np.random.Generator | None = None
) -> Wholes:
    """Class counts with noise: discrete Laplace for delta = 0, else discrete Gaussian; set to 0 where negative.

    Cutting at 0 costs no privacy, as it looks at nothing but the noised counts, and groups get slightly better by it.

    Args:
        counts: Class counts (K, F), whole numbers.
        epsilon: How much one sample may show, from 0.001 (private) to 1000.
        delta: How often it may show more; 0, or from 1e-15 up to 1.
        rng: Simulate the noise from this generator, repeatably, for studies. Without it the noise comes from OpenDP and is fit
            for use.

    Returns:
        Counts (K, F) of the same shape.

    Raises:
        InputError: If the parameters or counts cannot be used, or OpenDP is needed and not installed.

    Example:
        >>> private_counts(np.array([[100, 0]]), epsilon=1.0, rng=np.random.default_rng(0)).shape
        (1, 2)
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


def private_vector(values: NDArray[np.int64], epsilon: float, delta: float, *, l1: float, l2: float) -> Wholes:
    """Whole numbers with OpenDP's noise, as they come: some may be negative.

    Args:
        values: (n,) whole numbers.
        epsilon: As in `private_counts`.
        delta: As in `private_counts`; 0: discrete Laplace noise, which `l1` counts for, else Gaussian, which `l2` counts for.
        l1: By how much all values together can change at most for what is protected.
        l2: The same as a Euclidean distance.

    Returns:
        (n,) whole numbers.

    Raises:
        InputError: If the parameters cannot be used, or OpenDP is not installed.
    """
    _checked(epsilon, delta)
    return np.asarray(_vetted(epsilon, delta, l1, l2)(values.tolist()), dtype=np.int64)


def noise(size: int, epsilon: float, delta: float, rng: np.random.Generator) -> Wholes:
    """(size,) simulated whole numbers: discrete Laplace (delta = 0) or a rounded Gaussian."""
    _checked(epsilon, delta)
    if delta == 0:
        return rng.geometric(1 - exp(-epsilon), size) - rng.geometric(1 - exp(-epsilon), size)
    return np.rint(rng.normal(0.0, sqrt(gaussian_variance(epsilon, delta)), size)).astype(np.int64)


def gaussian_variance(epsilon: float, delta: float) -> float:
    """s^2 for (epsilon, delta), from epsilon = rho + 2 sqrt(rho ln(1/delta)), rounded up."""
    rho = (sqrt(log(1 / delta) + epsilon) - sqrt(log(1 / delta))) ** 2
    return (1 + 1e-9) / (2 * rho)


def _checked(epsilon: float, delta: float) -> None:
    if not 0.001 <= require_real("private counts", "epsilon", epsilon) <= 1000:
        raise InputError(f"private counts: epsilon must be between 0.001 and 1000, not {epsilon!r}.")
    if not (require_real("private counts", "delta", delta) == 0 or 1e-15 <= delta < 1):
        raise InputError(f"private counts: delta must be 0, or at least 1e-15 and below 1, not {delta!r}.")


def _vetted(epsilon: float, delta: float, l1: float = 1.0, l2: float = 1.0) -> Callable[[list[int]], Any]:
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
        measured: Any = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=l1 / epsilon)
    else:
        measured = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=l2 * sqrt(gaussian_variance(epsilon, delta)))
    return lambda values: measured(values)
