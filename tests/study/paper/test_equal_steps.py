from __future__ import annotations

from typing import Any

from fedgsp.study.noise import Estimate
from fedgsp.study.paper.equal_steps import equal_steps
from fedgsp.study.paper.fleets import front
from fedgsp.study.records import Trace


def trace(steps: int, accuracies: list[float]) -> Trace:
    history: list[dict[str, Any]] = [
        {"round": r, "serial_steps_total": steps * r, "accuracy": accuracy, "loss": 1.0}
        for r, accuracy in enumerate(accuracies, start=1)
    ]
    return Trace("unit", history, {}, {})


def test_the_thriftiest_sets_the_budget_and_others_are_cut_to_it() -> None:
    """10 steps a round for four rounds: 40. The one of 20 a round has two rounds, the one of 50 none."""
    runs = {
        "short": [trace(10, [0.1, 0.2, 0.3, 0.4])],
        "long": [trace(20, [0.3, 0.5, 0.7, 0.9])],
        "longer": [trace(50, [0.9, 0.9, 0.9, 0.9])],
        "gone": [Trace("unit", [], {}, {}, "diverged")],
    }
    table = equal_steps("growth", runs)
    assert table.title == "At equal serial steps: the first 40"
    cells = {row[0]: row[1:] for row in table.rows}
    assert isinstance(cells["short"][0], Estimate)
    assert (cells["short"][0].mean, cells["short"][1].mean) == (0.4, 4.0)
    assert (cells["long"][0].mean, cells["long"][1].mean) == (0.5, 2.0)
    assert cells["longer"] == (None, None)
    assert "gone" not in cells


def test_the_front_has_nobody_who_is_beaten_in_both() -> None:
    assert front({"a": (1.0, 5.0), "b": (2.0, 4.0), "c": (2.0, 5.0), "d": (3.0, 1.0)}) == ["a", "b", "d"]
