"""The figures of a run, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedgsp.core.errors import InputError
from fedgsp.run.metrics import (
    HOLDOUT,
    best,
    figures,
    final,
    final_rounds,
    first_reaching,
    last,
    reaches,
    records,
    score_words,
    window,
    window_words,
)


def history(*scores: float | None) -> list[dict[str, Any]]:
    """A line a round; None where a round was not evaluated."""
    lines: list[dict[str, Any]] = []
    for round_, score in enumerate(scores, start=1):
        line: dict[str, Any] = {"round": round_, "train_loss": 0.1, "samples": 5, "quantiles": {}}
        if score is not None:
            line.update({"accuracy": score, "accuracy_plain": score / 2, "loss": 1 - score})
            line["holdout"] = {"accuracy": score / 4, "loss": 2 - score}
        lines.append(line)
    return lines


def run(rounds: int, every: int) -> list[dict[str, Any]]:
    """A run as the loop evaluates it, whose accuracy in round r is r / 1000."""
    return history(*(r / 1000 if r % every == 0 or r == rounds else None for r in range(1, rounds + 1)))


@pytest.mark.parametrize(
    ("rounds", "first"), [(1, 1), (5, 5), (9, 9), (10, 10), (19, 19), (20, 19), (29, 28), (60, 55), (100, 91), (500, 491)]
)
def test_the_window_is_a_tenth_of_the_rounds_between_one_and_ten(rounds: int, first: int) -> None:
    assert list(window(rounds)) == list(range(first, rounds + 1))


@pytest.mark.parametrize(
    ("rounds", "every", "judged", "mean"),
    [
        (1, 1, [1], 0.001),
        (5, 1, [5], 0.005),
        (5, 3, [5], 0.005),
        (9, 10, [9], 0.009),
        (10, 1, [10], 0.010),
        (19, 3, [19], 0.019),
        (20, 1, [19, 20], 0.0195),
        (20, 3, [20], 0.020),
        (20, 10, [20], 0.020),
        (100, 1, [91, 92, 93, 94, 95, 96, 97, 98, 99, 100], 0.0955),
        (100, 3, [93, 96, 99, 100], 0.097),  # 388 / 4
        (100, 10, [100], 0.100),
        (500, 1, [491, 492, 493, 494, 495, 496, 497, 498, 499, 500], 0.4955),
        (500, 3, [492, 495, 498, 500], 0.49625),  # 1985 / 4
        (500, 10, [500], 0.500),
    ],
)
def test_the_final_figure_is_the_mean_of_the_evaluations_in_the_window(
    rounds: int, every: int, judged: list[int], mean: float
) -> None:
    lines = run(rounds, every)
    assert list(final_rounds(lines)) == judged
    assert final(lines, "accuracy") == pytest.approx(mean, abs=1e-15)
    assert final(lines, "accuracy_plain") == pytest.approx(mean / 2, abs=1e-15)
    assert final(lines, "loss", HOLDOUT) == pytest.approx(2 - mean, abs=1e-15)


def test_a_run_that_was_stopped_between_evaluations_has_its_last_one() -> None:
    lines = run(100, 10)[:35]  # evaluated in rounds 10, 20 and 30; the window of 35 rounds is 33-35
    assert (final_rounds(lines), final(lines, "accuracy")) == ((30,), 0.030)
    assert score_words(lines, "accuracy") == "0.0300 (round 30), last evaluated round 30: 0.0300, best 0.0300 in round 30"


def test_a_longer_run_cut_to_fewer_rounds_is_judged_by_the_window_of_these() -> None:
    assert final(run(500, 1)[:20], "accuracy") == final(run(20, 1), "accuracy") == pytest.approx(0.0195)


def test_the_best_is_the_earliest_of_the_best_evaluations() -> None:
    lines = history(0.1, 0.9, None, 0.9, 0.5)
    top = best(lines, "accuracy")
    assert top is not None
    assert top[0] is lines[1]
    assert best(history(None), "accuracy") is None
    low = best(history(0.1, 0.9, 0.5), "loss")
    assert low is not None
    assert low[0]["round"] == 2


def test_records_are_the_evaluations_above_all_before() -> None:
    found = records(history(0.2, 0.1, None, 0.2, 0.4, 0.3, 0.5), "accuracy")
    assert [(entry["round"], value["accuracy"]) for entry, value in found] == [(1, 0.2), (5, 0.4), (7, 0.5)]


@pytest.mark.parametrize(
    ("target", "reached"), [(0.3, 3), (0.30001, 4), (0.8, 4), (0.81, None), (0.1, 1), (0.0, 1), (1.0, None)]
)  # fmt: skip
def test_the_target_is_reached_in_the_first_evaluated_round_at_or_above_it(target: float, reached: int | None) -> None:
    lines = history(0.1, None, 0.3, 0.8, 0.2)
    found = first_reaching(lines, target, "accuracy")
    assert (None if found is None else found["round"]) == reached
    assert figures(lines, "accuracy", target).reached == reached


def test_a_loss_reaches_a_target_from_above() -> None:
    lines = [{"round": 1, "loss": 3.0}, {"round": 2, "loss": 2.0}, {"round": 3, "loss": 1.0}]
    found = first_reaching(lines, 2.0, "loss")
    assert found is lines[1]
    assert first_reaching(lines, 0.5, "loss") is None


def test_nothing_reaches_no_target() -> None:
    assert reaches({"accuracy": 0.5}, 0.5, "accuracy")
    assert not reaches({"accuracy": 0.5}, 0.51, "accuracy")
    assert not reaches({"accuracy": 0.5}, None, "accuracy")
    assert not reaches({"accuracy": 0.5}, 0.1, None)
    assert not reaches({"round": 1}, 0.0, "accuracy")


def test_what_is_not_a_finite_number_is_no_evaluation() -> None:
    lines = history(0.2, 0.4, 0.3)
    lines[1]["accuracy"], lines[2]["accuracy"] = math.nan, math.inf
    assert (final(lines, "accuracy"), final_rounds(lines, "accuracy")) == (0.2, (1,))
    assert first_reaching(lines, 0.3, "accuracy") is None
    end, top = last(lines, "accuracy"), best(lines, "accuracy")
    assert end is not None
    assert end == top
    assert end[0] is lines[0]


def test_all_of_it_for_a_result() -> None:
    found = figures(history(*[0.1] * 18, 0.5, 0.3), "accuracy", 0.4)
    assert found.final == pytest.approx({"accuracy": 0.4, "accuracy_plain": 0.2, "loss": 0.6})
    assert found.final_rounds == (19, 20)
    assert found.last == pytest.approx({"round": 20, "accuracy": 0.3, "accuracy_plain": 0.15, "loss": 0.7})
    assert found.best == pytest.approx({"round": 19, "accuracy": 0.5, "accuracy_plain": 0.25, "loss": 0.5})
    assert found.as_dict()["target"] == {"accuracy": 0.4, "round": 19}


def test_without_a_score_the_best_has_the_least_loss_and_there_is_no_target() -> None:
    found = figures([{"round": 1, "loss": 3.0}, {"round": 2, "loss": 1.0}, {"round": 3, "loss": 2.0}], None, 0.5)
    assert found.best == {"round": 2, "loss": 1.0}
    assert found.reached is None


def test_nothing_evaluated() -> None:
    for lines in (history(), history(None, None)):
        found = figures(lines, "accuracy", 0.5)
        assert (found.final, found.final_rounds, found.last, found.best, found.reached) == ({}, (), None, None, None)
        assert score_words(lines, "accuracy") == "not evaluated"
        with pytest.raises(InputError, match="no round was evaluated by its accuracy"):
            final(lines, "accuracy")


def test_words() -> None:
    assert window_words((55, 56, 57, 58, 59, 60)) == "mean of rounds 55-60"
    assert window_words((93, 96, 99, 100)) == "mean of rounds 93, 96, 99 and 100"
    assert window_words((7,)) == "round 7"
    assert window_words(()) == "no evaluation"
    lines = history(*[0.1] * 17, 0.7, 0.5, 0.3)
    assert score_words(lines, "accuracy") == "0.4000 (mean of rounds 19-20), last round 0.3000, best 0.7000 in round 18"
