from __future__ import annotations

import numpy as np

from fedgsp.plan import Random, Stratified, group_sums, objective_z

from .conftest import skewed


def test_each_rank_is_dealt_to_all_groups() -> None:
    kinds = np.repeat(np.arange(5), 4)  # one rank each, by cosine
    counts = np.array([[100, 5 * kind**2] for kind in range(5)])[kinds]
    labels = Stratified(n_groups=4, random_state=0).fit(counts).labels_
    for group in range(4):
        assert sorted(kinds[labels == group].tolist()) == [0, 1, 2, 3, 4]


def test_it_is_better_than_chance_on_kinds_of_clients() -> None:
    means = {
        kind: np.mean(
            [objective_z(group_sums(c, kind(n_groups=8, random_state=s).fit(c).labels_), "cpd").mean for s in range(20)]
        )
        for c in [skewed(80, 2)]
        for kind in (Stratified, Random)
    }
    assert means[Stratified] < 0.8 * means[Random]
