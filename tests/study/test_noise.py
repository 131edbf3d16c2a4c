"""Intervals and tests, against values worked out by hand and by scipy."""

from __future__ import annotations

import pytest
from scipy.stats import ttest_rel

from fedgsp.study.noise import Estimate, differences, sentence


def test_the_interval_of_three_values() -> None:
    # mean 2, standard deviation 1, t(0.975, 2) = 4.302653: half-width 4.302653 / sqrt(3)
    found = Estimate.of([1.0, 2.0, 3.0])
    assert (found.mean, found.n) == (2.0, 3)
    assert found.half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert Estimate.of([5.0]) == Estimate(5.0, None, 1)


def test_differences_are_paired_over_common_seeds() -> None:
    values = {"a": {0: 0.5, 1: 0.7, 2: 0.9, 9: 0.1}, "b": {0: 0.4, 1: 0.6, 2: 0.8001}}
    (gap,) = differences(values)
    assert gap.estimate.n == 3
    assert gap.estimate.mean == pytest.approx(0.09996667)
    assert gap.clear
    assert ttest_rel([0.5, 0.7, 0.9], [0.4, 0.6, 0.8001]).pvalue < 0.05
    unpaired = {"a": {0: 0.5, 1: 0.7}, "b": {2: 0.4}}
    assert differences(unpaired) == []


def test_holms_correction() -> None:
    """One pair of p = 0.03 is clear alone, and not among three pairs whose others are noise."""
    noisy = {"a": {0: 0.50, 1: 0.52, 2: 0.48}, "b": {0: 0.40, 1: 0.47, 2: 0.39}, "c": {0: 0.47, 1: 0.41, 2: 0.48}}
    p = ttest_rel(list(noisy["a"].values()), list(noisy["b"].values())).pvalue
    assert 0.05 / 3 < p < 0.05
    assert [gap.clear for gap in differences({name: noisy[name] for name in "ab"})] == [True]
    assert not any(gap.clear for gap in differences(noisy))
    two = differences(noisy, "a")
    assert [(gap.first, gap.second) for gap in two] == [("a", "b"), ("a", "c")]


def test_equal_differences_and_none_at_all() -> None:
    same = {"a": {0: 0.5, 1: 0.6}, "b": {0: 0.25, 1: 0.35}, "c": {0: 0.5, 1: 0.6}}
    assert [gap.clear for gap in differences(same)] == [True, False, True]


class TestSentence:
    def test_what_is_clear_and_what_is_not(self) -> None:
        values = {"good": {0: 0.80, 1: 0.81, 2: 0.80}, "bad": {0: 0.5, 1: 0.51, 2: 0.51}, "near": {0: 0.79, 1: 0.80, 2: 0.82}}
        said = sentence(differences(values), "accuracy")
        assert "paired over 3 seeds, Student's t" in said
        assert "Holm" in said
        assert "good over bad by 29.7 ± 1.43 points" in said
        assert "near over bad by" in said
        assert said.endswith("The other difference is not.")

    def test_nothing_is_clear(self) -> None:
        assert "No difference in loss" in sentence(differences({"a": {0: 1.0, 1: 2.0}, "b": {0: 2.0, 1: 1.0}}), "loss")

    def test_one_seed_cannot_say(self) -> None:
        assert "With one seed it cannot be said" in sentence(differences({"a": {0: 0.1}, "b": {0: 0.9}}), "accuracy")

    def test_nothing_in_common(self) -> None:
        assert "nothing to compare" in sentence([], "accuracy")
