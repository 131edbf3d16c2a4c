"""Parts that lack what will be asked of them are refused when a method is made, by name and file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedgsp.client import SGD, Decay
from fedgsp.core.errors import InputError
from fedgsp.door import full_name, theirs
from fedgsp.method import Method
from fedgsp.methods import METHODS, named
from fedgsp.plan import ICG, Constant, Grouped, Log, Mediators, Random
from fedgsp.server import FusionServer, Mean
from tests.support import wrong_parts as m
from tests.support.wrong_parts import BASE, HERE, refused, run


def part(**parts: Any) -> Callable[[], Method]:
    return lambda: replace(BASE, **parts)


def grouped(growth: Any, grouper: Any) -> Callable[[], Method]:
    return lambda: replace(BASE, planner=Grouped(growth, grouper, kappa=1.0))


SCHEDULE: Any = Decay
MEAN: Any = Mean
FILLER: Any = Random

MISTAKES: dict[str, tuple[Callable[[], Method], str]] = {
    "the class of a server rule": (part(server=Mean), r"the server rule is the class Mean itself; .*: Mean\(\.\.\.\)"),
    "the class of a local rule": (part(local=SGD), "the local rule is the class SGD itself; make one of it: SGD"),
    "the class of one's own": (part(local=m.MyLocal), f"the local rule is the class MyLocal{HERE} itself"),
    "the class of a planner": (part(planner=Grouped), "the planner is the class Grouped itself"),
    "the class of a grouper": (grouped(Constant(2), ICG), "the grouper is the class ICG itself"),
    "the class of a filler": (lambda: replace(BASE, planner=Mediators(grouper=FILLER)), "the grouper is the class Random"),
    "the class of a growth function": (grouped(Log, ICG()), "the growth function is the class Log itself"),
    "the class of a schedule": (
        lambda: replace(BASE, local=SGD(schedule=SCHEDULE)),
        "the schedule of learning rates is the class",
    ),
    "a class inside a rule": (lambda: replace(BASE, server=FusionServer(MEAN)), "the server rule is the class Mean itself"),
    "a class in a part of one's own": (part(server=m.Holding(inside=Mean)), f"Holding{HERE}: inside is the class Mean itself"),
    "a function for a grouper": (
        grouped(Constant(2), m.by_turns),
        f"by_turns{HERE} cannot be the grouper: its class must be derived from fedgsp.plan.Grouper",
    ),
    "a function for a growth": (grouped(m.twice, ICG()), f"twice{HERE} cannot be the growth function: .* fedgsp.plan.Growth"),
    "a number for a growth": (grouped(3, ICG()), "^3 cannot be the growth function: its class must be"),
    "nothing for a planner": (part(planner=None), "^None cannot be the planner: .* fedgsp.plan.Planner"),
    "half a grouper": (grouped(Constant(2), m.BareGrouper()), f"BareGrouper{HERE} cannot be the grouper"),
    "a planner without a schedule": (part(planner=m.NoSchedule()), f"NoSchedule{HERE} cannot be the planner"),
    "a local rule from nowhere": (
        part(local=m.NoRule()),
        f"NoRule{HERE} cannot be the local rule: its class must be derived from fedgsp.client.SGD",
    ),
    "a server rule for a local one": (part(local=Mean()), "Mean cannot be the local rule"),
    "half a server rule": (
        part(server=m.NoServer()),
        f"NoServer{HERE} cannot be the server rule: .* fedgsp.server.ServerRule, Mean or Combine",
    ),
    "needs that are not": (part(server=m.Wordy()), f"the server rule Wordy{HERE}: needs must be one of 'sum', 'all'"),
    "a list that is wanted": (part(server=m.Listing()), rf"the server rule Listing{HERE}: 'wants' gave \['accuracy'\]"),
    "a list that is reported": (part(local=m.MyLocal(how="reports a list")), f"the local rule MyLocal{HERE}: 'reports' gave"),
    "an array for a parameter": (
        part(server=m.Holding()),
        f"Holding{HERE}: its parameter 'inside' is ndarray, which no config",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_refused_before_anything_is_written(mistake: str, tmp_path: Path) -> None:
    make, told = MISTAKES[mistake]
    found = refused(make, tmp_path / "run")
    assert re.search(told, found), found


@pytest.mark.parametrize("method", [Method, BASE.planner, 3, None])
def test_what_is_no_method(method: Any) -> None:
    with pytest.raises(InputError, match=r"a method is a name or a fedgsp\.Method of parts, not "):
        run(method)


@pytest.mark.parametrize("name", METHODS)
def test_parts_of_ours_are_known_as_such(name: str) -> None:
    method = named(name)
    assert not any(theirs(getattr(method, role)) for role in ("planner", "local", "server"))


def test_the_name_of_a_part_leads_to_what_is_not_ours() -> None:
    assert full_name(Mean()) == "Mean"
    assert re.fullmatch(f"Grouped with MyGrouper{HERE}", full_name(Grouped(Constant(2), m.MyGrouper())))
    assert re.fullmatch(f"MyPlanner{HERE}", full_name(m.MyPlanner()))
    assert theirs(FusionServer(m.MyServer()))
