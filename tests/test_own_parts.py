"""A part of one's own takes a few lines: each is counted, made and trained with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import tiny

START = """
from dataclasses import dataclass, replace
import torch
import fedgsp
from fedgsp.client import SGD
from fedgsp.plan import Grouped, Grouper, GroupShape, Growth, ICG, Planner, Random, Singletons
from fedgsp.server import Mean
plain = fedgsp.named("fedavg")
"""

PARTS = {
    "local rule": (5, """
@dataclass(frozen=True, kw_only=True)
class Clipped(SGD):
    most: float = 1.0
    def adjust(self, ctx):
        torch.nn.utils.clip_grad_norm_(ctx.model.parameters(), self.most)
method = replace(plain, local=Clipped(lr=0.1, most=0.5))
"""),
    "server rule": (5, """
@dataclass(frozen=True)
class HalfWay(Mean):
    def step(self, state, mean):
        half = {k: torch.lerp(old.double(), mean[k], 0.5).to(old.dtype) for k, old in state.model.items()}
        return replace(state, models={"global": half})
method = replace(plain, server=HalfWay())
"""),
    "grouper": (6, """
@dataclass(frozen=True)
class BySize(Grouper):
    def assign(self, counts, n_groups, rng):
        return counts.sum(axis=1).argsort().argsort() % n_groups
    def shape(self, clients, n_groups):
        return GroupShape(clients // n_groups, -(-clients // n_groups), clients)
method = replace(plain, planner=Grouped(Singletons(), BySize(), kappa=0.5))
"""),
    "planner": (8, """
@dataclass(frozen=True)
class Turns(Planner):
    first: Planner
    then: Planner
    def plan(self, round_, profiles, seeds):
        return (self.first if round_ % 2 else self.then).plan(round_, profiles, seeds)
    def schedule(self, round_, clients):
        return (self.first if round_ % 2 else self.then).schedule(round_, clients)
method = replace(plain, planner=Turns(plain.planner, fedgsp.named("naive-gsp").planner))
"""),
    "growth function": (5, """
@dataclass(frozen=True)
class Doubling(Growth):
    start: int = 2
    def wanted(self, round_):
        return min(self.start * 2 ** (round_ - 1), 10**9)
method = replace(plain, planner=Grouped(Doubling(), ICG(), kappa=1.0))
"""),
    "model": (2, """
def model(shape, classes):
    return torch.nn.Sequential(torch.nn.Linear(shape[0], 8), torch.nn.ReLU(), torch.nn.Linear(8, classes))
"""),
    "task": (5, """
task = fedgsp.Task(
    "margin", score="right",
    loss=lambda out, y: torch.nn.functional.multi_margin_loss(out, y, reduction="none"),
    metrics={"right": lambda out, y: (out.argmax(1) == y).float()},
)
"""),
}  # fmt: skip
"""What it takes (lines, without the line that puts it in place), and the code."""


@pytest.mark.parametrize("part", PARTS)
def test_lines_that_a_part_takes(part: str) -> None:
    lines, code = PARTS[part]
    written = [line for line in code.strip().splitlines() if not line.startswith("method = ")]
    assert len(written) == lines
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(START + code, part, "exec", dont_inherit=True), space)
    result = space["fedgsp"].train(
        space.get("method", space["plain"]), tiny.federation(), space.get("model", tiny.linear), task=space.get("task"),
        rounds=6, workers=0, lr=0.3,
    )  # fmt: skip
    assert result.status == "finished"
    assert min(entry["loss"] for entry in result.history[1:]) < result.history[0]["loss"], "it learns"
    if part == "growth function":
        assert [entry["groups"] for entry in result.history[:3]] == [2, 4, 8]
    if part == "task":
        assert result.score_name == "right"
