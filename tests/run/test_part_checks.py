"""What planners, groupers, growth functions and server rules of the user's own give: checked, with name and file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.method import Method
from fedgsp.plan import ICG, Constant, Grouped, Mediators
from fedgsp.run.part_checks import state_misfit
from tests.support import tiny
from tests.support import wrong_parts as m
from tests.support.wrong_parts import BASE, DATA, HERE, failed, refused, run


def grouped(growth: Any = None, grouper: Any = None) -> Method:
    return replace(BASE, planner=Grouped(growth or Constant(2), grouper or ICG(), kappa=1.0))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("too few", r": 'assign' gave labels of shape \(7,\) for 8 clients; it gives one for each client"),
        ("too many", r": 'assign' gave labels of shape \(9,\) for 8 clients"),
        ("a table", r": 'assign' gave labels of shape \(8, 1\)"),
        ("nothing", r": 'assign' gave labels of shape \(\) for 8 clients"),
        ("floats", ": 'assign' gave labels of type float64; they are whole numbers, and -1 for a client in no group"),
        ("texts", ": 'assign' gave labels of type <U"),
        ("above", " gave the label 2 for 2 groups; labels are 0 to 1, or -1 for nobody's"),
        ("below", " gave the label -2 for 2 groups"),
        ("nobody", " put none of the 8 clients into a group"),
        ("empty group", " does not keep to its schedule in round 1: 1 groups, where .*'shape'.* says 2"),
        ("uneven", " does not keep to its schedule in round 1: 7 clients in the longest chain, .* says 4; .* about=True"),
        ("shapeless", " foretells groups that cannot be .* 'shape' gives a GroupShape"),
        ("odd shape", r" foretells groups that cannot be \(shortest 4\.0, "),
        ("drawn never", " draws the groups of round 1 in round 0"),
        ("raises", r" failed before round 1: IndexError.* \(wrong_parts\.py:\d+, in \S+\)\."),
    ],
)
def test_groupers(how: str, told: str, tmp_path: Path) -> None:
    found = refused(grouped(grouper=m.MyGrouper(how=how)), tmp_path / "run")
    assert re.match(f"the (grouper|planner Grouped with) MyGrouper{HERE}{told}", found), found


def test_a_filler_that_ignores_the_sizes(tmp_path: Path) -> None:
    planner = Mediators(grouper=m.MyFiller(how="all in one"), kappa=1.0, gamma=4)
    found = refused(replace(BASE, planner=planner), tmp_path / "run")
    assert re.match(f"the grouper MyFiller{HERE}: 'fill' did not make groups of the sizes that were asked for", found), found


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("float", "says 2.0 groups in round 1; 'groups' gives a whole number from 1 to the number of clients, here 8"),
        ("negative", "says -1 groups in round 1"),
        ("zero", "says 0 groups in round 1"),
        ("too many", "says 9 groups in round 1"),
        ("none", "says None groups in round 1"),
        ("wanted float", "wants 2.5 groups in round 1"),
        ("late", "says 0 groups in round 3"),
    ],
)
def test_growth_functions(how: str, told: str, tmp_path: Path) -> None:
    found = refused(grouped(growth=m.MyGrowth(how)), tmp_path / "run")
    assert re.match(f"the growth function MyGrowth{HERE} {told}", found), found


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("no plan", " gave NoneType in round 1, not a Plan of Chains"),
        ("a list", " gave list in round 1, not a Plan of Chains"),
        ("lists for chains", " gave Plan in round 1, not a Plan of Chains"),
        ("no chains", " gave a plan without chains in round 1"),
        (
            "empty chain",
            r" failed before round 1: ValueError: a chain needs at least .* \(wrong_parts\.py:\d+, in \S+\)\.",
        ),
        ("client that is not", " put the client 99 into chain 1 of round 1, which is not there"),
        ("client that is no number", " put the client 0.5 into chain 1 of round 1"),
        ("twice in a chain", " put a client twice into chain 0 of round 1; to walk a chain several times give it passes"),
        ("fewer groups than chains", " says 1 groups and 0 clients left out in round 1, with 2 chains"),
        ("more chains than said", " does not keep to its schedule in round 1: 8 groups, .* says 2"),
        ("longer chains than said", " does not keep to its schedule in round 1: 8 clients in the longest chain, .* says 4"),
        ("passes not said", " does not keep to its schedule in round 1: 2 passes, .* says 1"),
        ("no schedule", ": 'schedule' gave NoneType for round 1, not RoundSizes"),
        ("float schedule", ": 'schedule' says sampled 2.0 for round 1, not a whole number"),
        ("impossible", ": 'schedule' cannot be right for round 1 and 8 clients: 3 of 2 groups"),
        ("raises", r" failed before round 1: IndexError.* \(wrong_parts\.py:\d+, in \S+\)\."),
    ],
)
def test_planners(how: str, told: str, tmp_path: Path) -> None:
    found = refused(replace(BASE, planner=m.MyPlanner(how)), tmp_path / "run")
    assert re.match(f"the planner MyPlanner{HERE}{told}", found), found


def test_a_client_in_two_chains_is_refused_only_where_it_keeps_a_state(tmp_path: Path) -> None:
    method = replace(BASE, planner=m.MyPlanner("in two chains"))
    run(method)
    found = refused(replace(method, local=m.MyLocal(how="initial_client_state")), tmp_path / "run")
    assert re.match(f"the planner MyPlanner{HERE} put client 0 into two chains of round 1; where clients keep", found), found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("how", "told"), [("no chains", "gave a plan without chains in round 2"), ("raises", "failed in round 2")]
)
def test_a_mistake_of_round_2_costs_round_2_only(how: str, told: str, workers: int, tmp_path: Path) -> None:
    found = failed(replace(BASE, planner=m.MyPlanner(how, late=True)), tmp_path / "run", workers=workers)
    assert re.match(f"the planner MyPlanner{HERE} {told}", found), found
    assert json.loads((tmp_path / "run/result.json").read_text())["rounds"] == 1
    assert len((tmp_path / "run/journal.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("init gives nothing", "'init' gave NoneType, not a ServerState"),
        ("init forgets the model", "'init' gave a state whose model 'global' has no tensor 'weight'"),
        ("views a name", "'init' gave a state of which 'views' gives tuple, and not one View or more"),
        ("views nothing", "'init' gave a state of which 'views' gives tuple, and not one View or more"),
        ("views what is not", "'init' gave a state of which 'views' evaluates the model 'best', which is not there"),
        ("views twice", "'init' gave a state of which 'views' shows two models to one client"),
    ],
)
def test_server_rules_before_round_1(how: str, told: str, tmp_path: Path) -> None:
    found = refused(replace(BASE, server=m.MyServer(how)), tmp_path / "run")
    assert re.match(f"the server rule MyServer{HERE}: {told}", found), found


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("start gives nothing", ": 'start' gave NoneType; it gives an update, derived from fedgsp.server.Update"),
        ("route gives nothing", ": 'route' must give the plan of round 1 with its chains"),
        ("routes nowhere", ": 'route' starts a chain of round 1 from the model 'elsewhere', which is not there"),
        ("add raises", r" failed in round 1: AttributeError.* \(wrong_parts\.py:\d+, in \S+\)\."),
        ("raises", r" failed at the end of round 1: KeyError.* \(wrong_parts\.py:\d+, in \S+\)\."),
        ("nothing", ": 'finish' gave in round 1 NoneType, not a ServerState"),
        ("a model", ": 'finish' gave in round 1 dict, not a ServerState"),
        ("no models", ": 'finish' gave in round 1 a state without models"),
        ("tensor missing", ": .* a state whose model 'global' has no tensor 'weight', which the model has"),
        ("tensor more", ": .* a state whose model 'global' has a tensor 'more', which the model has not"),
        ("shape", r": .* a tensor 'weight' of shape \(12,\), and the model's is of shape \(3, 4\)"),
        ("type", ": .* a tensor 'weight' of type float64, and the model's is float32"),
        ("array", ": .* has ndarray in place of the tensor 'weight'"),
        ("elsewhere", ": .* a tensor 'weight' that is float32 on meta"),
        ("extra tensor", ": .* extra does not survive JSON, so it would not be the same after a resume"),
        ("extra keys", ": .* extra does not survive JSON"),
        ("extra tuple", ": .* extra does not survive JSON"),
        ("flat slot", ": .* a state whose slots 'weight' are not a dict of tensors by name"),
        ("shared list", ": .* a state whose shared are not a dict of tensors by name"),
        ("odd name", r": .* a state with the name 'a\|b'"),
    ],
)
def test_server_rules_in_round_1(how: str, told: str, tmp_path: Path) -> None:
    found = failed(replace(BASE, server=m.MyServer(how)), tmp_path / "run")
    assert re.match(f"the server rule MyServer{HERE}{told}", found), found
    assert json.loads((tmp_path / "run/result.json").read_text())["rounds"] == 0


def test_a_rule_over_all_results_that_gives_nothing(tmp_path: Path) -> None:
    found = failed(replace(BASE, server=m.HalfMean()), tmp_path / "run")
    assert re.match(f"the server rule HalfMean{HERE}: what 'combine' returned in round 1 is NoneType, not a dict", found), found


RIGHT = {
    "a grouper and a growth": grouped(m.MyGrowth(), m.MyGrouper()),
    "a filler": replace(BASE, planner=Mediators(grouper=m.MyFiller(), kappa=1.0, gamma=4)),
    "a planner": replace(BASE, planner=m.MyPlanner()),
    "a planner that says another round": replace(BASE, planner=m.MyPlanner("another round")),
    "a planner with numpy's numbers": replace(BASE, planner=m.MyPlanner("numpy numbers")),
    "a server rule that says no round": replace(BASE, server=m.MyServer()),
    "a server rule that says another round": replace(BASE, server=m.MyServer("round 9")),
    "a state with one tensor in two places": replace(BASE, server=m.MyServer("same memory")),
}


@pytest.mark.parametrize("what", RIGHT)
def test_the_loop_counts_the_rounds_of_whatever_is_right_and_a_resumed_journal_goes_on(what: str, tmp_path: Path) -> None:
    method, out = RIGHT[what], tmp_path / "run"
    first = run(method, out)
    assert (first.status, first.rounds, first.state.round) == ("finished", 3, 3)
    longer = fedgsp.resume(out, method=method, data=DATA, model=tiny.linear, rounds=5, workers=0)
    assert [json.loads(line)["round"] for line in (out / "journal.jsonl").read_text().splitlines()] == [1, 2, 3, 4, 5]
    assert [json.loads(line)["round"] for line in (out / "plans.jsonl").read_text().splitlines()[1:]] == [1, 2, 3, 4, 5]
    assert longer.state.digest() == run(method, rounds=5).state.digest()
    assert fedgsp.replay(out, method=method, data=DATA, model=tiny.linear, workers=0).differs is None


@pytest.mark.parametrize("name", ["fedgsp", "fedadam", "scaffold", "feddyn", "fedexp", "feddc", "ida-intrac", "cfl", "fd"])
def test_the_states_of_our_own_rules_would_pass(name: str) -> None:
    result = run(name)
    assert state_misfit(result.state, result.run.initial_model) is None


PARTS = """
from dataclasses import dataclass
import numpy as np
from fedgsp.client import SGD
from fedgsp.plan import Grouper, GroupShape
from fedgsp.server import Mean

@dataclass(frozen=True)
class BySize(Grouper):
    def assign(self, counts, n_groups, rng):
        return counts.sum(axis=1) / n_groups

    def shape(self, clients, n_groups):
        return GroupShape(clients // n_groups, -(-clients // n_groups), clients)

@dataclass(frozen=True, kw_only=True)
class OneValue(SGD):
    def objective(self, ctx, x, y):
        return ctx.task.loss(ctx.model(x), y).mean()

@dataclass(frozen=True)
class Lost(Mean):
    def step(self, state, mean):
        return mean
"""
BY_SIZE = 'planner = {kind = "grouped", growth = {kind = "constant", count = 2}, grouper = {kind = "rules:BySize"}}'


@pytest.mark.parametrize(
    ("part", "code", "told"),
    [
        (BY_SIZE, 2, "the grouper BySize (rules.py:8): 'assign' gave labels of type float64"),
        ('local = {kind = "rules:OneValue"}', 2, "the local rule OneValue (rules.py:16): 'objective' gave one value"),
        ('local = {kind = "rules:Lost"}', 2, "Lost (rules.py:21) cannot be the local rule"),
        ('server = {kind = "rules:Lost"}', 1, "the server rule Lost (rules.py:21): 'step' gave dict, not a ServerState"),
    ],
)
def test_on_the_command_line(part: str, code: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(PARTS)
    tiny.write_npz(tmp_path / "data.npz")
    sections = '[run]\nrounds = 2\nworkers = 0\n[data]\nsource = "npz:data.npz"\n[model]\nname = "tests.support.tiny:linear"\n'
    (tmp_path / "mine.toml").write_text(f'{sections}[method]\nname = "fedgsp"\n{part}\n')
    done = tiny.cli("run", "mine.toml", "--trust", "--out", "out", cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert (tmp_path / "out").exists() == (code == 1)
