"""Clients that tell nothing of their data: they are spread evenly at random over the groups that the others form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.profiles import Profiles
from fedgsp.plan.given import checked_labels
from fedgsp.plan.groupers import NOBODY, Fixed, Grouper, Random

Labels = NDArray[np.int64]


def assigned(grouper: Grouper, profiles: Profiles, groups: int, rng: np.random.Generator) -> Labels:
    """Labels (K,): `grouper`'s for those whose counts are known, the others dealt evenly at random.

    Where too few are known to form that many groups, everybody is dealt. A grouper that does not look at the data is not
    disturbed: it gives the same groups whether or not clients tell.
    """
    if profiles.known is None or _blind(grouper):
        return checked_labels(grouper, grouper.assign(profiles.counts, groups, rng), len(profiles), groups)
    labels = np.full(len(profiles), NOBODY, dtype=np.int64)
    known, others = np.flatnonzero(profiles.known), np.flatnonzero(~profiles.known)
    if len(known) >= groups:
        labels[known] = checked_labels(grouper, grouper.assign(profiles.counts[known], groups, rng), len(known), groups)
    else:
        others = np.arange(len(profiles))
    labels[others] = dealt(len(others), groups, rng)
    return labels


def dealt(count: int, groups: int, rng: np.random.Generator) -> Labels:
    """Labels (count,): every group gets as many, or one more, in a random order and at random."""
    turns = -(-count // groups)
    order = np.concatenate([np.empty(0, dtype=np.int64), *(rng.permutation(groups) for _ in range(turns))])[:count]
    return rng.permutation(order)


def shares(sizes: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
    """How many of `count` clients go to each group of the given sizes: evenly, as far as there is room, and at random."""
    room = np.asarray(sizes, dtype=np.int64)
    given = np.zeros(len(room), dtype=np.int64)
    for _ in range(count):
        open_ = np.flatnonzero(given < room)
        least = open_[given[open_] == given[open_].min()]
        given[rng.choice(least)] += 1
    return [int(n) for n in given]


def _blind(grouper: Grouper) -> bool:
    """Whether a grouper looks at the number of clients only."""
    return isinstance(grouper.grouper if isinstance(grouper, Fixed) else grouper, Random)
