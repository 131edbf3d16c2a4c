"""A grid that is widened: the best is inside, with as few runs as that takes, and a limit is kept."""

from __future__ import annotations

from typing import Any

import pytest

from fedgsp.methods import named
from fedgsp.run.config import RunConfig
from fedgsp.study.climb import beyond, climb
from fedgsp.study.grid import Point
from fedgsp.study.tune import Tuning


class Hill:
    """Runs whose accuracy is highest at some values, and lower by how far they are from these in orders of magnitude."""

    def __init__(self, top: dict[str, float], by_seed: dict[int, dict[str, float]] | None = None) -> None:
        self.top, self.by_seed, self.ran = top, by_seed or {}, list[tuple[str, int]]()

    def __call__(self, point: Point, config: RunConfig) -> Any:
        top = self.by_seed.get(config.run.seed, self.top)
        ratios = [point.values[name] / value for name, value in top.items()]
        self.ran.append((point.label, config.run.seed))
        if point.values["lr"] > 9:
            return "training diverged"
        accuracy = 0.9 - sum(abs(1 - ratio) if ratio < 1 else abs(1 - 1 / ratio) for ratio in ratios) / 10
        return [{"round": 1, "accuracy": accuracy, "loss": 1 - accuracy, "metrics": {}, "evaluated": True}]


def climbed(hill: Hill, *grid: str, method: str = "fedavg", **options: Any) -> Tuning:
    return climb(RunConfig(method=named(method)), grid or ("lr=0.003,0.01,0.03",), hill, **options)


def test_values_beyond_the_edge_are_tried_until_the_best_is_inside() -> None:
    hill = Hill({"lr": 0.3})
    found = climbed(hill)
    assert found.best.point.values == {"lr": 0.3}
    assert found.axes[0].values == (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    assert found.advice == ()
    assert len(hill.ran) == 6


def test_a_grid_whose_best_is_inside_is_left_alone() -> None:
    hill = Hill({"lr": 0.01})
    assert climbed(hill).axes[0].values == (0.003, 0.01, 0.03)
    assert len(hill.ran) == 3


def test_a_limit_is_kept_and_said() -> None:
    found = climbed(Hill({"lr": 1e-9}), limit=2)
    assert found.axes[0].values == (0.0003, 0.001, 0.003, 0.01, 0.03)
    assert found.advice == ("the best lr is the smallest tried (0.0003): widen the grid there.",)


def test_what_diverges_is_an_edge() -> None:
    found = climbed(Hill({"lr": 30}), "lr=1,3")
    assert found.best.point.values == {"lr": 9}
    assert found.advice == ()


def test_on_two_axes_only_neighbours_of_the_best_are_added() -> None:
    hill = Hill({"lr": 0.1, "mu": 0.001})
    found = climbed(hill, "lr=0.01,0.03", "mu=0.01,0.1", method="fedprox")
    assert found.best.point.values == {"lr": 0.09, "mu": 0.001}
    assert found.advice == ()
    assert len(hill.ran) == len(set(hill.ran)) < 4 * 4


def test_the_best_and_its_neighbours_have_every_seed() -> None:
    hill = Hill({"lr": 0.01}, {0: {"lr": 0.003}})
    found = climbed(hill, "lr=0.001,0.003,0.01,0.03,0.1", seeds=range(3))
    assert found.best.point.values == {"lr": 0.01}, "by the mean of three seeds, not by the first"
    runs = {outcome.point.values["lr"]: outcome.runs for outcome in found.outcomes}
    assert runs == {0.001: 3, 0.003: 3, 0.01: 3, 0.03: 3, 0.1: 1}


def test_where_all_diverged_nothing_is_added() -> None:
    assert len(climbed(Hill({"lr": 1}), "lr=10,100").outcomes) == 2


@pytest.mark.parametrize(
    ("ladder", "up", "value"),
    [([0.00316, 0.01, 0.0316], True, 0.1), ([0.1, 0.2], False, 0.05), ([5, 10], True, 20), ([1, 3], False, None),
     ([0.1], True, None), ([0, 1], True, None)],
)  # fmt: skip
def test_the_next_value(ladder: list[float], up: bool, value: float | None) -> None:
    assert beyond(ladder, up=up) == value
