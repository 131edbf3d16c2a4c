from __future__ import annotations

from typing import Any

import pytest

from fedgsp.run.report import figures, versions


def journal(*scores: float | None) -> list[dict[str, Any]]:
    """A line a round; None where a round was not evaluated."""
    lines: list[dict[str, Any]] = []
    for round_, score in enumerate(scores, start=1):
        line: dict[str, Any] = {"round": round_, "train_loss": 0.1, "samples": 5, "quantiles": {}}
        if score is not None:
            line.update({"accuracy": score, "accuracy_plain": score / 2, "loss": 1 - score})
        lines.append(line)
    return lines


def test_the_final_figure_is_the_mean_of_the_last_ten_evaluations() -> None:
    scores = [0.0, 0.0, *(0.5 + i / 100 for i in range(10))]
    found = figures(journal(*scores), "accuracy", None)
    assert found.final == pytest.approx({"accuracy": 0.545, "accuracy_plain": 0.2725, "loss": 0.455})


def test_rounds_without_evaluation_do_not_count() -> None:
    found = figures(journal(0.1, None, 0.3, None, None), "accuracy", None)
    assert found.final["accuracy"] == pytest.approx(0.2)


def test_the_best_evaluation_stands_beside_it() -> None:
    found = figures(journal(0.1, 0.9, 0.5), "accuracy", None)
    assert found.best == pytest.approx({"round": 2, "accuracy": 0.9, "accuracy_plain": 0.45, "loss": 0.1})


def test_without_a_score_the_best_has_the_least_loss() -> None:
    found = figures([{"round": 1, "loss": 3.0}, {"round": 2, "loss": 1.0}, {"round": 3, "loss": 2.0}], None, 0.5)
    assert found.best == {"round": 2, "loss": 1.0}
    assert found.reached is None


@pytest.mark.parametrize(("target", "reached"), [(0.3, 3), (0.30001, 4), (0.8, 4), (0.81, None), (0.1, 1)])
def test_the_target_is_reached_in_the_first_evaluated_round_at_or_above_it(target: float, reached: int | None) -> None:
    assert figures(journal(0.1, None, 0.3, 0.8, 0.2), "accuracy", target).reached == reached


def test_nothing_evaluated() -> None:
    for lines in (journal(), journal(None, None)):
        found = figures(lines, "accuracy", 0.5)
        assert (found.final, found.best, found.reached) == ({}, None, None)


def test_versions_name_what_produced_the_numbers() -> None:
    assert set(versions()) == {"fedgsp", "python", "torch", "numpy", "system"}
