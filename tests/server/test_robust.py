"""Robust server rules, worked out by hand; a minority cannot break them, and no worker count changes a bit."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgsp.core.errors import InputError
from fedgsp.core.state import ServerState, Setting
from fedgsp.core.tensors import Tensors
from fedgsp.server import CentredClipping, ClippedMean, Combine, GeometricMedian, Krum, Median, TrimmedMean
from tests.support.small_federations import aggregate, vector

ROBUST: list[Combine] = [
    Median(),
    TrimmedMean(share=0.3),
    Krum(share=0.3),
    Krum(share=0.3, keep=1),
    GeometricMedian(),
    ClippedMean(),
    CentredClipping(),
]


def numbers(value: Any) -> Tensors:
    return vector(*value) if isinstance(value, list) else vector(value)


def after(rule: Combine, *values: Any, begin: Any = 0.0, samples: list[int] | None = None) -> list[float]:
    """What becomes of models with these numbers."""
    models = [numbers(value) for value in values]
    state = aggregate(rule, rule.init(numbers(begin), Setting()), models, samples or [1] * len(models))
    return [round(x, 6) for x in state.model["w"].flatten().tolist()]


def test_the_median_is_the_middle_or_the_mean_of_the_two() -> None:
    assert after(Median(), 1.0, 9.0, 2.0) == [2.0]
    assert after(Median(), 1.0, 9.0, 2.0, 4.0) == [3.0]
    assert after(Median(), 1.0, 9.0, 2.0, samples=[1, 1000, 1]) == [2.0], "announced samples count nothing"


def test_a_trimmed_mean_drops_as_many_at_each_side() -> None:
    assert after(TrimmedMean(share=0.2), 1.0, 100.0, 2.0, 6.0, -50.0) == [3.0]
    assert after(TrimmedMean(share=0.1), 0.0, 3.0, 90.0) == [3.0], "at least one of three"
    assert after(TrimmedMean(share=0.0), 1.0, 2.0, 6.0) == [3.0]
    assert after(TrimmedMean(share=0.4), 1.0, 2.0) == [1.5], "of two nothing can be dropped"


def test_krum_takes_the_model_nearest_to_its_neighbours() -> None:
    # n = 5, f = 1: two neighbours each. 1.375 has 1.25 and 1.5 at .125, sum of squares .03125, the least.
    assert after(Krum(share=0.2, keep=1), 1.0, 1.5, 1.25, 1.375, 90.0) == [1.375]
    # Multi-Krum keeps n - f = 4 of them: (1 + 1.5 + 1.25 + 1.375) / 4
    assert after(Krum(share=0.2), 1.0, 1.5, 1.25, 1.375, 90.0) == [1.28125]
    assert after(Krum(share=0.4), 7.0) == [7.0]
    assert after(Krum(share=0.4), 6.0, 8.0) == [7.0]


def test_the_geometric_median_of_numbers_is_their_median() -> None:
    assert after(GeometricMedian(steps=60), 0.0, 1.0, 50.0)[0] == pytest.approx(1.0, abs=1e-3)
    # With samples as weights the first has more than half, so it is the median.
    assert after(GeometricMedian(steps=60, weights="samples"), 0.0, 1.0, 50.0, samples=[9, 1, 1])[0] == pytest.approx(
        0, abs=1e-3
    )


def test_clipped_updates_are_cut_to_the_median_length() -> None:
    # lengths 1, 2, 10: the bound is 2, so (1 + 2 + 2) / 3
    assert after(ClippedMean(), 1.0, 2.0, 10.0) == [round(5 / 3, 6)]
    assert after(ClippedMean(norm=3.0), 1.0, 2.0, 10.0) == [2.0]
    assert after(ClippedMean(norm=3.0, weights="samples"), 1.0, 2.0, 10.0, samples=[2, 1, 1]) == [1.75]
    # (3, 4) has length 5 and becomes (.6, .8); the other keeps its length 1
    assert after(ClippedMean(norm=1.0), [3.0, 4.0], [0.0, 1.0], begin=[0.0, 0.0]) == [0.3, 0.9]


def test_centred_clipping_goes_on_from_the_last_update() -> None:
    rule = CentredClipping(norm=1.0)
    state = rule.init(vector(0.0), Setting())
    state = aggregate(rule, state, [vector(1.0), vector(1.0), vector(9.0)], [1, 1, 1])
    assert state.model["w"].item() == 1.0, "around 0, all three are cut to 1"
    state = aggregate(rule, state, [vector(2.0), vector(2.0), vector(-9.0)], [1, 1, 1])
    # The center is 1 + 1 = 2: two are there, the third is cut to 1 below it.
    assert state.model["w"].item() == pytest.approx(2 - 1 / 3)


@pytest.mark.parametrize("rule", ROBUST, ids=lambda rule: f"{type(rule).__name__}{getattr(rule, 'keep', '')}")
@pytest.mark.parametrize("wrong", [math.inf, -math.inf, math.nan, 1e30, -1e9])
def test_a_minority_cannot_break_a_rule(rule: Combine, wrong: float) -> None:
    """Two of seven: the result stays among what honest chains hand on."""
    honest = [1.0, 1.1, 0.9, 1.05, 0.95]
    [value] = after(rule, *honest, wrong, wrong, begin=0.8)
    assert 0.7 <= value <= 1.3


@pytest.mark.parametrize("rule", ROBUST, ids=lambda rule: f"{type(rule).__name__}{getattr(rule, 'keep', '')}")
@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=6), st.integers(1, 5))
def test_equal_models_are_what_comes_out(rule: Combine, numbers: list[float], models: int) -> None:
    made = after(rule, *[numbers] * models, begin=[0.0] * len(numbers))
    assert made == pytest.approx([round(x, 6) for x in numbers], abs=2e-6)


def test_what_nobody_trains_becomes_its_median() -> None:
    def model(w: float, mean: float) -> Tensors:
        return {"w": torch.tensor([w]), "mean": torch.tensor([mean])}

    for rule in (GeometricMedian(), ClippedMean(), CentredClipping()):
        state = ServerState(0, {"global": model(0.0, 0.0)}, trained=frozenset({"w"}))
        state = aggregate(rule, state, [model(1.0, 5.0), model(1.0, 6.0), model(1.0, 1e30)], [1, 1, 1])
        assert state.model["mean"].item() == 6.0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TrimmedMean(share=0.5), "below 0.5"),
        (lambda: Krum(share=-0.1), "at least 0"),
        (lambda: Krum(keep=-1), "keep"),
        (lambda: GeometricMedian(steps=0), "steps"),
        (lambda: ClippedMean(norm=-1.0), "norm"),
        (lambda: CentredClipping(steps=0), "steps"),
        (lambda: ClippedMean(weights="other"), "weights"),  # type: ignore[arg-type]
    ],
)
def test_senseless_parameters_are_refused(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()


@pytest.mark.parametrize("rule", ROBUST, ids=lambda rule: type(rule).__name__)
def test_every_rule_says_its_paper_its_breakdown_point_and_its_cost(rule: Combine) -> None:
    told = sys.modules[type(rule).__module__].__doc__ or ""
    assert re.search(r"(19|20)\d\d\)", told), "the paper's year"
    assert "Breakdown point:" in told
    assert "Cost:" in told
