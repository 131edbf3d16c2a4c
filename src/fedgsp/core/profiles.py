"""What the server may know of the clients when it plans: one non-negative vector each, usually class counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IGNORED = -100
"""The label of a position that counts for nothing: padding. Torch's losses leave out the same number."""


@dataclass(frozen=True, repr=False)
class Profiles:
    """The clients that are there this round, and what they say of their data.

    `clients` (K,) are client numbers, `counts` (K, F) the class counts of their training samples (or any non-negative
    vector), `sizes` (K,) how many training samples each has. `known` (K,) says whose counts are known; None means all: a
    client that tells nothing of its data is spread evenly at random.
    """

    clients: NDArray[np.int64]
    counts: NDArray[np.int64] | NDArray[np.float64]
    sizes: NDArray[np.int64]
    known: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if self.counts.ndim != 2 or not len(self.clients) == len(self.counts) == len(self.sizes):
            raise ValueError("profiles need one row of counts and one size for every client")

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        return f"Profiles({len(self)} clients, counts of {self.counts.shape[1]}, {int(self.sizes.sum())} training samples)"
