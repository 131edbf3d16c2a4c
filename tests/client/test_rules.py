from __future__ import annotations

import math
from typing import Any

import pytest

from fedgsp.client import SGD, Cosine, Decay, LearningRateSchedule, Steady
from fedgsp.core.errors import InputError

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Steady(), {1: 1.0, 2: 1.0, 1000: 1.0}),
        (Decay(), {1: 1.0, 2: 0.99, 3: 0.9801, 101: 0.36603234127322950}),
        (Decay(rate=0.5, every=2, floor=0.2), {1: 1.0, 2: 1.0, 3: 0.5, 4: 0.5, 5: 0.25, 6: 0.25, 7: 0.2, 900: 0.2}),
        (Decay(rate=1.0), {1: 1.0, 50: 1.0}),
        (Cosine(4), {1: 1.0, 2: 0.8535533905932737, 3: 0.5, 4: 0.1464466094067262, 5: 0.0, 9: 0.0}),
        (Cosine(2, floor=0.1), {1: 1.0, 2: 0.55, 3: 0.1, 30: 0.1}),
        (Cosine(1), {1: 1.0, 2: 0.0}),
    ],
)
def test_schedules(schedule: LearningRateSchedule, factors: dict[int, float]) -> None:
    assert {r: schedule.factor(r) for r in factors} == pytest.approx(factors, abs=1e-12)


@pytest.mark.parametrize(
    "parameters",
    [{"rate": 0.0}, {"rate": 1.1}, {"rate": NAN}, {"every": 0}, {"floor": -0.1}, {"floor": 1.1}, {"floor": NAN}],
)
def test_bad_decays(parameters: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"a decay needs 0 < rate <= 1, every >= 1 and 0 <= floor <= 1, not Decay"):
        Decay(**parameters)


@pytest.mark.parametrize("parameters", [{"rounds": 0}, {"rounds": 5, "floor": 2.0}, {"rounds": 5, "floor": NAN}])
def test_bad_cosines(parameters: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"a cosine schedule needs rounds >= 1 and 0 <= floor <= 1, not Cosine"):
        Cosine(**parameters)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"lr": NAN}, "the learning rate must be a positive number, not nan."),
        ({"lr": INF}, "the learning rate must be a positive number, not inf."),
        ({"lr": 0.0}, "the learning rate must be a positive number, not 0.0."),
        ({"lr": -0.1}, "the learning rate must be a positive number, not -0.1."),
        ({"batch_size": 0}, "the batch size must be at least 1, not 0."),
        ({"epochs": 0}, "local epochs must be at least 1, not 0."),
        ({"momentum": 1.0}, "momentum must be from 0 up to 1, not 1.0."),
        ({"momentum": -0.1}, "momentum must be from 0 up to 1, not -0.1."),
        ({"momentum": NAN}, "momentum must be from 0 up to 1, not nan."),
        ({"weight_decay": -1.0}, "weight decay must not be negative, not -1.0."),
        ({"weight_decay": NAN}, "weight decay must not be negative, not nan."),
    ],
)
def test_bad_hyper_parameters(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        SGD(**parameters)
    assert str(caught.value) == told
