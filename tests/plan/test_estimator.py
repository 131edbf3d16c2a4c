"""Groupers as scikit-learn's own checks see them; the package itself does without scikit-learn."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedgsp.core.errors import InputError
from fedgsp.plan import ICG, Balanced, Fixed, GreedyKL, Random, Stratified

COUNTS = np.array([[9, 0, 1], [0, 9, 2], [8, 1, 0], [1, 8, 3], [5, 5, 5], [2, 2, 9]])
MIXTURES = "groups are to be alike, so like clients are put into different ones: the contrary of a cluster"
EXPECTED = {
    "check_clustering": MIXTURES,
    "check_do_not_raise_errors_in_init_or_set_params": "parts are checked where they are made, not when they are used",
    "check_pipeline_consistency": "scikit-learn 1.9's Pipeline hangs an attribute on its steps, and parts are frozen",
}


@parametrize_with_checks([ICG(n_groups=2)], expected_failed_checks=lambda estimator: EXPECTED)
def test_as_far_as_clusterers_do(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [Random(n_groups=2), Balanced(n_groups=2), Stratified(n_groups=2), GreedyKL(n_groups=2)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_all_other_groupers_do_too(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("cls", [ICG, Random, Balanced, Stratified, GreedyKL])
def test_fit_returns_itself_and_any_table_gives_the_same_groups(cls: Any) -> None:
    grouper = cls(n_groups=2, random_state=3)
    assert grouper.fit(COUNTS) is grouper
    labels = grouper.labels_.tolist()
    frame = pd.DataFrame(COUNTS, columns=["a", "b", "c"])
    for table in (COUNTS.tolist(), COUNTS.astype(np.uint8), csr_matrix(COUNTS), frame):
        assert clone(grouper).fit_predict(table).tolist() == labels
    assert clone(grouper).fit(frame).feature_names_in_.tolist() == ["a", "b", "c"]
    rng = np.random.default_rng(3)
    assert cls(n_groups=2).assign(COUNTS, 2, rng).tolist() == labels, "fit draws as a run with that generator does"


def test_every_kind_of_random_state() -> None:
    def labels(state: Any) -> list[int]:
        found: list[int] = Random(n_groups=3, random_state=state).fit(COUNTS).labels_.tolist()
        return found

    assert labels(7) == labels(np.int64(7)) == labels(np.random.default_rng(7))
    assert labels(np.random.RandomState(5)) == labels(np.random.RandomState(5))
    legacy = np.random.RandomState(5)
    assert len({tuple(labels(legacy)) for _ in range(5)}) > 1, "a RandomState goes on, as scikit-learn's do"
    assert sorted(labels(None)) == [0, 0, 1, 1, 2, 2]


def test_parameters_of_a_grouper_inside_another() -> None:
    outer = Fixed(ICG(tau=4), n_groups=2, random_state=0)
    assert outer.get_params()["grouper__tau"] == 4
    inner = outer.grouper
    assert outer.set_params(grouper__tau=7, n_groups=3) is outer
    assert (outer.get_params()["grouper__tau"], outer.n_groups) == (7, 3)
    assert isinstance(inner, ICG)
    assert inner.tau == 4, "the part that another method may have is left alone"
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        outer.set_params(nonsense=1)
    with pytest.raises(InputError, match="tau must be a whole number"):
        outer.set_params(grouper__tau=0)


def test_grouping_needs_no_scikit_learn() -> None:
    code = (
        "import sys; from fedgsp.plan import ICG; g = ICG(n_groups=2).fit([[1, 0], [0, 1]]); g.get_params();"
        "assert not {'sklearn', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
