"""What is read off a journal, and off a table, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fedgsp.run.metrics import HOLDOUT
from fedgsp.study.history import cut, worst_decile
from fedgsp.study.noise import Estimate
from fedgsp.study.paper.curves import loss_rise
from fedgsp.study.records import Trace
from fedgsp.study.tables import Column, Table, bytes_, bytes_unit, number, percent, time_unit_of
from fedgsp.study.targets import mean_or_none, reached, scaled, window_of


def entry(r: int, accuracy: float | None, loss: float = 1.0) -> dict[str, Any]:
    line: dict[str, Any] = {"round": r, "serial_steps_total": 10 * r, "bytes_total": 100 * r}
    if accuracy is not None:
        line |= {"accuracy": accuracy, "loss": loss, "holdout": {"accuracy": accuracy / 2, "loss": 2 * loss}}
        line["quantiles"] = {"accuracy": {"0.1": accuracy - 0.1}, "loss": {"0.9": loss + 1}}
    return line


def trace(*accuracies: float | None, losses: tuple[float, ...] = ()) -> Trace:
    history = [entry(r, a, losses[r - 1] if losses else 1.0) for r, a in enumerate(accuracies, start=1)]
    seconds = {"paper": [float(r) for r in range(1, len(history) + 1)]}
    return Trace("u", history, seconds, seconds)


RUN = trace(0.1, None, 0.3, 0.2, 0.4, 0.6)


def test_the_worst_decile_is_that_of_the_final_figure() -> None:
    assert worst_decile(RUN.history, "accuracy") == pytest.approx(0.5)
    assert worst_decile(RUN.history, "loss") == pytest.approx(2.0)
    long = trace(*[0.1] * 18, 0.5, 0.7)
    assert worst_decile(long.history, "accuracy") == pytest.approx(0.5), "0.4 in round 19, 0.6 in round 20"


def test_what_a_target_took() -> None:
    found = reached(RUN, 0.3)
    assert found is not None
    assert (found.rounds, found.serial_steps, found.bytes, found.seconds) == (3, 30, 300, {"paper": 3.0})
    assert reached(RUN, 0.9) is None
    there = reached(RUN, 0.3, HOLDOUT)
    assert there is not None
    assert there.rounds == 6, "held-out clients have half of it"
    assert reached(Trace("u", [], {}, {}, "diverged"), 0.1) is None
    assert mean_or_none([found, reached(RUN, 0.5)], "rounds") == 4.5
    assert mean_or_none([found, None], "rounds") is None


def test_the_scaled_target_is_fedavgs_whole_per_cent() -> None:
    assert scaled([trace(0.801, 0.801), trace(0.807, 0.807)], None) == 0.80
    assert scaled([trace(0.5)], 0.8) == 0.8
    assert scaled([Trace("u", [], {}, {}, "diverged")], None) is None


def test_budgets_are_cut_where_they_are_reached() -> None:
    history = [{"round": r, "serial_steps_total": 10 * r, "accuracy": r / 10} for r in range(1, 8)]
    assert cut(history, "serial_steps_total", 35) == (0.3, True), "three rounds are within it, of which the last is final"
    long = [{"round": r, "serial_steps_total": 10 * r, "accuracy": r / 10} for r in range(1, 41)]
    value, there = cut(long, "serial_steps_total", 305)
    assert (round(value, 9), there) == (2.9, True), "rounds 28, 29 and 30 of thirty"
    assert cut(long, "serial_steps_total", 1000)[1] is False


def test_a_rise_of_the_loss_is_one_of_means_not_of_noise() -> None:
    falling = trace(*[0.5] * 30, losses=tuple(float(31 - r) for r in range(1, 31)))
    assert loss_rise(falling) == (2.0, 2.0, 30)
    turning = trace(*[0.5] * 30, losses=(*[9.0] * 24, 3.0, 2.0, 1.0, 2.0, 3.0, 4.0))
    end, least, at = loss_rise(turning)
    assert (end, round(least, 9), at) == (3.0, round(5 / 3, 9), 28)


def test_a_table_says_which_rounds_its_figures_are_of() -> None:
    short, long = trace(*[0.5] * 9), trace(*[0.5] * 30)
    assert window_of([[long, long], [long]]) == "mean of rounds 28-30"
    assert window_of([[long], [short, Trace("u", [], {}, {}, "diverged")]]) == "mean of rounds 28-30 or round 9"


class TestTable:
    TABLE = Table(
        "t", "A title", (Column("method"), Column("accuracy %", percent), Column("rounds", number())),
        [("a|b", Estimate(0.5, 0.01, 3), 1200), ("c", Estimate(0.25, None, 1), None), ("d", "diverged", None)], "A note.",
    )  # fmt: skip

    def test_csv_has_every_digit_and_two_columns_for_an_estimate(self) -> None:
        assert self.TABLE.csv() == "method,accuracy %,accuracy % ±,rounds\na|b,0.5,0.01,1200\nc,0.25,,\nd,diverged,,\n"

    def test_markdown_is_for_people(self) -> None:
        lines = self.TABLE.markdown().splitlines()
        assert lines[0] == "**A title**"
        assert lines[4:7] == ["| a\\|b | 50.0 ± 1.0 | 1,200 |", "| c | 25.0 | - |", "| d | diverged | - |"]
        assert lines[-1] == "A note."

    def test_units(self) -> None:
        assert (bytes_(2_500_000), bytes_(3e9)) == ("2.5 MB", "3.00 GB")
        assert (bytes_unit(1e6), time_unit_of(1e4), time_unit_of(600), time_unit_of(1)) == (
            (1e6, "MB"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"),
        )  # fmt: skip
