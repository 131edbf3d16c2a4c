"""Skewed federations for the planning tests: made up (always there) and real (skipped where absent)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedgsp.core.profiles import Profiles

FEMNIST = next(
    (found for up in Path(__file__).resolve().parents[3:] if (found := up / "shared" / "femnist" / "femnist.npz").exists()),
    Path("../shared/femnist/femnist.npz"),
)


def skewed(clients: int, classes: int, seed: int = 0) -> NDArray[np.int64]:
    """Class counts of clients that each hold mostly a few classes."""
    rng = np.random.default_rng(seed)
    mixtures = rng.dirichlet(np.full(classes, 0.3), size=clients)
    return np.stack([rng.multinomial(int(rng.integers(20, 200)), mixture) for mixture in mixtures]).astype(np.int64)


def profiles_of(counts: NDArray[np.int64]) -> Profiles:
    """Profiles whose client numbers are not row numbers, so that a mix-up shows."""
    return Profiles(np.arange(len(counts), dtype=np.int64) * 7 + 1000, counts, counts.sum(axis=1))


@pytest.fixture(scope="session")
def counts_60() -> NDArray[np.int64]:
    """60 skewed clients, 6 classes."""
    return skewed(60, 6)


@pytest.fixture(scope="session")
def profiles_60(counts_60: NDArray[np.int64]) -> Profiles:
    """The same as the planner sees them."""
    return profiles_of(counts_60)


@pytest.fixture(scope="session")
def profiles_368() -> Profiles:
    """The paper's number of clients."""
    return profiles_of(skewed(368, 10))


@pytest.fixture(scope="session")
def femnist_counts() -> NDArray[np.int64]:
    """Class counts of 368 real writers."""
    if not FEMNIST.exists():
        pytest.skip(f"the real FEMNIST writers are not here: {FEMNIST}")
    with np.load(FEMNIST) as data:
        counts = np.zeros((len(data["writers"]), 62), dtype=np.int64)
        np.add.at(counts, (data["writer_index"], data["labels"]), 1)
    enough = np.flatnonzero(counts.sum(axis=1) >= 20)
    chosen: NDArray[np.int64] = counts[np.sort(np.random.default_rng(0).permutation(enough)[:368])]
    return chosen
