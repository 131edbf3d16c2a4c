from __future__ import annotations

import pytest

from fedgsp.methods import decode_method, named
from fedgsp.parts import decode, encode, kinds
from fedgsp.plan import Balanced, GreedyKL


@pytest.mark.parametrize("part", [Balanced(effort=2.0), GreedyKL(target="uniform")])
def test_groupers_are_spelled_in_config_files(part: Balanced | GreedyKL) -> None:
    assert decode("grouper", encode(part), "grouper") == part


@pytest.mark.parametrize("name", ["fedgsp", "fedgsp-balanced"])
def test_rows_with_other_groupers_differ_in_nothing_else(name: str) -> None:
    method, paper = named(name), named("fedgsp")
    assert decode_method(method.encode()) == method
    ours, theirs = method.encode(), paper.encode()
    assert ours["planner"].pop("grouper")["kind"] in kinds("grouper")
    theirs["planner"].pop("grouper")
    assert {**ours, "name": ""} == {**theirs, "name": ""}
