from __future__ import annotations

from dataclasses import replace

import pytest

import fedgsp
from fedgsp.core.errors import RunWarning, in_options
from fedgsp.methods import METHODS, named
from fedgsp.plan import ICG, Grouped, Log, OfLength, Planner, Proportional, Random, WithPool
from fedgsp.run.plan_notes import plan_notes
from tests.support.small_federations import images


def test_single_clients_from_a_round_on() -> None:
    """40 clients: 10 groups of 4 in round 1, 20 of 2 in round 2, 30 in round 3, which leave one client for each."""
    (single,) = plan_notes(named("fedgsp").planner, 60, 40)
    assert single.startswith(
        "from round 3 on every group is a single client, and this is FedAvg: the growth function asks for 30 groups in round "
        "3, and 40 clients train, too few for two in each of 30; the growth `OfLength(4)` keeps chains"
    )


def test_never_a_chain() -> None:
    notes = plan_notes(named("fedgsp").planner, 60, 15)
    assert notes[0].startswith("no two clients ever train in a chain, and this is FedAvg: the growth function asks for 10")


def test_many_left_out_for_long() -> None:
    """100 clients by round 13: 60 groups of one, and 40 clients in none, until there are 100 groups."""
    notes = plan_notes(named("fedgsp").planner, 40, 100)
    assert any("are in no group and sit out, up to 40 of 100" in note for note in notes)
    assert any("`ICG(leftovers='deal')` puts them into groups" in note for note in notes)
    dealt = Grouped(Log(2, 10), ICG(leftovers="deal"), kappa=0.3)
    assert not any("in no group" in note for note in plan_notes(dealt, 40, 100))
    typed = [in_options(note) for note in notes]
    assert any("--set method.planner.grouper.leftovers=deal puts them into groups" in note for note in typed)


def test_left_out_for_good() -> None:
    (note,) = plan_notes(named("naive-gsp-icg").planner, 60, 368)
    assert note.startswith("8 of 368 clients are in no group and never train, since the groups are formed once; `ICG(leftovers")
    assert "grouper.grouper.leftovers=deal" in in_options(note)
    assert plan_notes(named("naive-gsp-icg").planner, 60, 370) == ()
    assert plan_notes(named("naive-gsp").planner, 60, 368) == ()


def test_at_the_papers_size_only_late_rounds_leave_many_out() -> None:
    for name in METHODS:
        notes = plan_notes(named(name).planner, 60, 368)
        assert notes == () or name == "naive-gsp-icg", (name, notes)
    (note,) = plan_notes(named("fedgsp").planner, 500, 368)  # 130 groups of two
    assert "up to 108 of 368" in note


@pytest.mark.parametrize("growth", [OfLength(4), OfLength(4, halve_every=5), Proportional(Log(2, 10))])
@pytest.mark.parametrize("clients", [15, 40, 100])
def test_what_the_notes_advise_has_chains(growth: OfLength | Proportional, clients: int) -> None:
    planner = Grouped(growth, ICG(leftovers="deal"), kappa=0.3)
    assert plan_notes(planner, 60, clients) == ()
    assert planner.schedule(1, clients).longest >= 4


@pytest.mark.parametrize("planner", [named("fedavg").planner, named("cyclic-fl").planner, named("cwt").planner])
def test_who_is_alone_by_design_is_not_told_so(planner: Planner) -> None:
    assert plan_notes(planner, 60, 15) == ()


def test_a_pool_is_nobody() -> None:
    assert plan_notes(WithPool(Grouped(Log(2, 10), Random())), 60, 16) == plan_notes(Grouped(Log(2, 10), Random()), 60, 15)


def test_python_is_told() -> None:
    with pytest.warns(RunWarning, match="no two clients ever train in a chain"):
        fedgsp.train("fedgsp", images(clients=6, each=8), rounds=1, workers=0)
    method = replace(named("fedgsp"), planner=Grouped(OfLength(3), ICG(), kappa=1.0))
    assert fedgsp.train(method, images(clients=6, each=8), rounds=1, workers=0).run.notes == ()
