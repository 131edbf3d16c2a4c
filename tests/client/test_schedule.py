from __future__ import annotations

from typing import Any

import pytest

import fedgsp
from fedgsp.client import SGD, Piecewise
from fedgsp.core.errors import InputError
from fedgsp.cost import FLEETS, paper_costs_of, planned_cost, run_cost
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.plan import Grouped, Random, Singletons
from fedgsp.run.forecast import expected_steps
from fedgsp.run.reader import RunReader, read_log
from fedgsp.server import Mean
from tests.support.hand_computed import START, THREE, slope, trained
from tests.support.small_federations import images


def test_rounds_against_the_schedule_written_out() -> None:
    """Three epochs in round 1, one from round 2, two from round 4; the learning rate halves in round 3."""
    w = START
    for epochs, lr in ((3, 0.1), (1, 0.1), (1, 0.05), (2, 0.05)):
        moved = 0.0
        for x, y, n in THREE:
            one = w
            for _ in range(n * epochs):
                one -= lr * slope(x, y, one)
            moved += n * (one - w)
        w += moved / sum(n for *_, n in THREE)
    rule = SGD(lr=0.1, batch_size=1, epochs=3, epochs_by_round=((2, 1), (4, 2)), schedule=Piecewise(((3, 0.5),)))
    assert trained(rule, Mean(), rounds=4) == pytest.approx(w, abs=1e-6)


def test_steps_are_foretold_and_costed_round_by_round(tmp_path: Any) -> None:
    """Rounds of 2, 1 and 1 epochs: four times the steps of a round of one, and four times its computing."""
    data = images(clients=6, each=20)
    method = Method(Grouped(Singletons(), Random(), kappa=1.0), SGD(epochs_by_round=((1, 2), (2, 1))), Mean())
    result = fedgsp.train(method, data, rounds=3, workers=0, out=tmp_path / "run")
    steps = [entry["steps"] for entry in result.history]
    assert steps[0] == 2 * steps[1] == 2 * steps[2]
    assert expected_steps(method, 3, data.train.sizes) == sum(steps)
    reader = RunReader(tmp_path / "run")
    assert [reader.epochs_in(r) for r in (1, 2, 3)] == [2, 1, 1]
    events, fleet = list(read_log(tmp_path / "run", "events")), FLEETS["paper"]
    costs = [run_cost(events, fleet, 1e6, method.local.epochs_in, rounds).computing for rounds in (1, 2, 3)]
    assert costs[0] == pytest.approx(2 * (costs[1] - costs[0])) == pytest.approx(2 * (costs[2] - costs[1]))
    rows = [method.planner.schedule(r, 6) for r in (1, 2, 3)]
    planned = planned_cost(rows, fleet, 1e6, method.local.epochs_in, 16.0, 100.0).computing
    assert planned == pytest.approx(4 * planned_cost(rows[:1], fleet, 1e6, 1, 16.0, 100.0).computing)


def test_the_papers_formulas_are_only_for_what_they_are_about() -> None:
    assert paper_costs_of(named("fedgsp"), 40, 3) is not None
    assert paper_costs_of(named("chains-then-adam"), 40, 3) is None
    assert paper_costs_of(named("cyclic-fl"), 40, 3) is None


@pytest.mark.parametrize(
    ("pieces", "sentence"),
    [
        (((0, 1),), "a round of epochs_by_round must be a whole number of at least 1"),
        (((2, 1), (2, 3)), r"the rounds of epochs_by_round must increase, not \[2, 2\]"),
        (((1, 0),), "epochs_by_round must be a whole number of at least 1, not 0"),
        ((3,), r"must be pairs \(from round, value\)"),
    ],
)
def test_pieces_that_make_no_sense(pieces: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        SGD(epochs_by_round=pieces)


def test_factors_must_be_positive() -> None:
    with pytest.raises(InputError, match="needs positive factors"):
        Piecewise(((1, 0.0),))
