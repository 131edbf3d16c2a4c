from __future__ import annotations

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.plan import Balanced, Random, feature_profiles, group_sums, quantile_profiles


def test_targets_are_counted_by_quantile() -> None:
    profiles = quantile_profiles([0.0, 1.0, 2.0, 3.0, 10.0, 20.0, 30.0, 40.0], [0, 0, 0, 1, 1, 1, 3, 3], bins=4)
    assert profiles.tolist() == [[2, 1, 0, 0], [0, 1, 2, 0], [0, 0, 0, 0], [0, 0, 0, 2]]


def test_groups_of_feature_profiles_have_equal_feature_means() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 50, 80)
    means = rng.normal(size=(80, 4)) + 3 * rng.integers(0, 2, (80, 1))
    profiles = feature_profiles(means, sizes)
    assert profiles.shape == (80, 5)
    assert profiles.min() >= 0
    assert profiles.sum(axis=1) == pytest.approx(sizes)

    def spread(grouper: Balanced | Random) -> float:
        labels = grouper.fit(profiles).labels_
        weight = group_sums(sizes[:, None], labels)
        return float((group_sums(means * sizes[:, None], labels) / weight).std(axis=0).mean())

    assert spread(Balanced(n_groups=8, random_state=0)) < 0.2 * spread(Random(n_groups=8, random_state=0))


def test_what_cannot_be_profiled_is_refused() -> None:
    with pytest.raises(InputError, match=r"^quantile_profiles: targets and owner must be two lists"):
        quantile_profiles([1.0, 2.0], [0])
    with pytest.raises(InputError, match=r"^quantile_profiles: targets must be finite"):
        quantile_profiles([1.0, np.nan], [0, 1])
    with pytest.raises(InputError, match=r"^feature_profiles: means must be a table"):
        feature_profiles([[1.0], [2.0]], [1])
    with pytest.raises(InputError, match=r"^feature_profiles: means must be finite"):
        feature_profiles([[np.inf], [2.0]], [1, 1])
