"""From what was typed to a deployment: planners that fit a handful of sites."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr")

from fedgsp.deploy.options import fitted
from fedgsp.methods import named


def test_a_handful_of_sites_all_train_and_begin_in_groups_of_about_three() -> None:
    planner = fitted(named("fedgsp"), 6)
    assert planner is not None
    assert planner["kappa"] == 1.0
    assert planner["growth"] == {"kind": "log", "alpha": 2.0, "beta": 2}
    assert planner["grouper"] == {"kind": "icg", "tau": 10, "distance": "squared"}
    everybody = fitted(named("fedavg"), 6)
    assert everybody is not None
    assert (everybody["kappa"], everybody["growth"]) == (1.0, {"kind": "singletons"})


def test_two_sites_are_one_chain() -> None:
    planner = fitted(named("fedgsp"), 2)
    assert planner is not None
    assert planner["growth"]["beta"] == 1


def test_many_sites_and_planners_of_another_kind_are_left_as_they_are() -> None:
    assert fitted(named("fedgsp"), 100) is None
    assert fitted(named("cwt"), 6) is None
