from __future__ import annotations

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.plan import GreedyKL, distributions, group_sums, kl

from .conftest import skewed


@pytest.mark.parametrize("target", ["global", "uniform"])
def test_each_client_is_the_best_of_those_left(target: str) -> None:
    """Astraea's loop, written out: no client that came later would have been better at that point."""
    counts = skewed(14, 5)
    goal = distributions(counts.sum(axis=0)) if target == "global" else np.full(5, 0.2)
    labels = GreedyKL(target=target, n_groups=4, random_state=0).fit(counts).labels_  # type: ignore[arg-type]
    left = set(range(14))
    for group in range(4):
        own = np.zeros(5)
        members = set(np.flatnonzero(labels == group).tolist())
        while members:
            scores = {k: float(kl(distributions(own + counts[k]), goal)) for k in left}
            best = min(scores, key=lambda k: scores[k])
            assert best in members
            own += counts[best]
            members.remove(best)
            left.remove(best)


def test_the_first_groups_are_the_best() -> None:
    counts = skewed(60, 6)
    sums = group_sums(counts, GreedyKL(n_groups=6, random_state=0).fit(counts).labels_)
    off = kl(distributions(sums), distributions(counts.sum(axis=0)))
    assert off[0] < off[-1] / 5


def test_twins_are_taken_in_random_order_and_empty_clients_last() -> None:
    counts = np.repeat([[3, 1]], 8, axis=0)
    assert len({tuple(GreedyKL(n_groups=2, random_state=seed).fit(counts).labels_) for seed in range(9)}) > 1
    counts[2] = 0
    assert {int(GreedyKL(n_groups=8, random_state=seed).fit(counts).labels_[2]) for seed in range(9)} == {7}


def test_a_wrong_target_is_refused() -> None:
    with pytest.raises(InputError, match=r"^GreedyKL: target cannot be 'gobal'; did you mean 'global'\?$"):
        GreedyKL(target="gobal")  # type: ignore[arg-type]
