from __future__ import annotations

import time

import numpy as np

from fedgsp.plan import Balanced, balanced_within, group_sums, objective_z

from .conftest import skewed


def test_more_time_gives_better_groups_and_little_time_is_kept() -> None:
    counts = skewed(120, 8)
    found = []
    for seconds in (0.0, 0.6):
        began = time.monotonic()
        labels = balanced_within(counts, 11, seconds, 3, Balanced())
        assert time.monotonic() - began < seconds + 2
        sizes = np.bincount(labels)
        assert sizes.max() - sizes.min() <= 1
        found.append(objective_z(group_sums(counts, labels), "cpd").mean)
    assert found[1] < found[0]
