"""Random numbers that are the same bytes on every machine and with every numpy.

numpy promises a stable stream of *raw bits* for a bit generator, but not for the distributions made of them, and the
C library's ``log`` or ``cos`` may differ in the last bit between machines. So everything here is made from raw words
of Philox, a keyed counter generator, with integer operations and exactly rounded float arithmetic only.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


class Stream(IntEnum):
    """Streams of random numbers: one for each purpose, so that one may change without moving the others."""

    LABELS = 0
    STYLE = 1
    HABITS = 2
    SAMPLES = 3


def words(seed: int, writer: int, stream: Stream, count: int) -> Words:
    """The first ``count`` 64-bit words of the stream of this (seed, writer, stream)."""
    key = np.array([seed, writer * 16 + int(stream)], dtype=np.uint64)
    raw: Words = np.random.Philox(key=key).random_raw(count)
    return raw


def uniform(raw: Words) -> Floats:
    """One number in [0, 1) from each word: its top 53 bits, as an exact binary fraction."""
    top: Floats = (raw >> np.uint64(11)).astype(np.float64)
    return top * 2.0**-53


def bell(raw: Words) -> Floats:
    """One bell-shaped number from each word: mean 0, standard deviation 1, never beyond 3.5.

    It is the sum of the word's four 16-bit quarters; the bounded tails keep a glyph from being torn apart.
    """
    low = np.uint64(0xFFFF)
    quarters = (raw & low) + ((raw >> np.uint64(16)) & low) + ((raw >> np.uint64(32)) & low) + (raw >> np.uint64(48))
    centred: Floats = quarters.astype(np.float64) - 131070.0
    return centred * (1.0 / 37837.22723)
