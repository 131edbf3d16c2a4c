"""Hostile sites, field by field: lies in every message, structured and drawn, through the real server over an in-process Grid.

Four of nine sites lie in all they say. After each run: it came to its end, nobody honest was skipped, memory grew by less than
a limit, and a replay from the honest samples has the same bits, so that nothing of the lies is in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from fedgsp.method import Method
from fedgsp.plan import ICG, Constant, Grouped
from tests.support import grid_deployments, hostile, tiny
from tests.support.flower_grid import Node

SITES, LIARS = 9, (1, 3, 4, 7)
Lies = dict[str, list[hostile.Change]]


def one_a_chain(name: str) -> Method:
    """All sites, one a chain, so that each lie is an answer of its own."""
    return replace(grid_deployments.method(name), planner=Grouped(Constant(SITES), ICG(), kappa=1.0))


def honest_facts(folder: Path, method: Method) -> dict[str, dict[str, Any]]:
    """What an honest site says, by the kind of message."""
    found: dict[str, dict[str, Any]] = {}

    def look(at: Node, message: Message, content: RecordDict) -> RecordDict:
        found[message.metadata.message_type] = hostile.facts_of(content)
        return content

    there = grid_deployments.deployment(folder, method, clients=SITES, model=tiny.NORMED, rounds=1)
    there.grid.tamper = look
    there.serve()
    return found


def withstands(folder: Path, method: Method, lies: Lies, **settings: Any) -> int:
    """A run in which each message of the liars is a lie of its own, checked; how many lies it was."""
    rounds = -(-max(map(len, lies.values())) // len(LIARS))
    there = grid_deployments.deployment(
        folder, method, clients=SITES, rounds=rounds, model=tiny.NORMED,
        settings={
            "profile_every": 1 if "query.hello" in lies else 0, "sites": SITES - len(LIARS), "in_flight": SITES, **settings
        },
    )  # fmt: skip
    used: list[str] = []
    turns = {kind: iter(own) for kind, own in lies.items()}
    there.grid.tamper = hostile.in_turn(turns, [100 + client for client in LIARS], used)
    before = hostile.peak_mb()
    result = there.serve()
    assert hostile.peak_mb() - before < hostile.MEMORY_MB
    hostile.check_withstood(there, result, LIARS)
    return len(used)


def structured(facts: dict[str, dict[str, Any]], kind: str) -> list[hostile.Change]:
    """Every field of a kind of message with every odd value, and for answers to `train` every record of tensors too."""
    tensors = ("model", "sent") if kind == "train" else ()
    return [*hostile.structured(facts[kind]), *(change for name in tensors for change in hostile.tensor_changes(name))]


def drawn(rng: np.random.Generator, facts: dict[str, dict[str, Any]], kind: str, count: int) -> list[hostile.Change]:
    """Lies at random: in the facts, and for answers to `train` in the bytes of tensors."""
    if kind != "train":
        return [hostile.drawn(rng, facts[kind]) for _ in range(count)]
    half = [hostile.drawn(rng, facts[kind]) for _ in range(count // 2)]
    return [*half, *(hostile.drawn_bytes(rng, ("model", "sent")[k % 2]) for k in range(count - len(half)))]


def shuffled(rng: np.random.Generator, changes: Sequence[hostile.Change], most: int | None = None) -> list[hostile.Change]:
    return [changes[k] for k in rng.permutation(len(changes))[:most]]


def test_forty_lies_in_answers_and_as_many_in_introductions(tmp_path: Path) -> None:
    rng, method = np.random.default_rng(7), one_a_chain("scaffold")
    facts = honest_facts(tmp_path / "honest", method)
    lies = {
        kind: shuffled(rng, structured(facts, kind), 12) + drawn(rng, facts, kind, 8)
        for kind in ("train", "evaluate", "query.hello")
    }
    assert withstands(tmp_path / "answers", method, {kind: lies[kind] for kind in ("train", "evaluate")}) == 40
    assert withstands(tmp_path / "introductions", method, {"query.hello": lies["query.hello"]}) == 20


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
def test_nine_hundred_lies_a_seed(seed: int, tmp_path: Path) -> None:
    """Every structured lie is told in one of the seeds, and others are drawn."""
    rng, method = np.random.default_rng(seed), one_a_chain("scaffold")
    facts = honest_facts(tmp_path / "honest", method)
    lies = {
        kind: shuffled(rng, structured(facts, kind)[seed::4]) + drawn(rng, facts, kind, count)
        for kind, count in (("train", 300), ("evaluate", 300), ("query.hello", 150))
    }
    told = withstands(tmp_path / "answers", method, {kind: lies[kind] for kind in ("train", "evaluate")})
    told += withstands(tmp_path / "introductions", method, {"query.hello": lies["query.hello"]})
    assert told == sum(map(len, lies.values())) > 850


def test_squeezed_answers_that_are_none_or_would_take_all_memory(tmp_path: Path) -> None:
    rng, method = np.random.default_rng(6), one_a_chain("fedavg")
    some = list(hostile.squeezed_changes(rng))
    lies = some[:7] + shuffled(rng, some[7:], 9)
    assert withstands(tmp_path, method, {"train": lies}, squeeze=True) == len(lies)


@pytest.mark.slow
def test_lies_in_what_is_sent_in_place_of_a_model(tmp_path: Path) -> None:
    """Federated distillation hands no model on, but tables of outputs."""
    rng, method = np.random.default_rng(5), one_a_chain("fd")
    facts = honest_facts(tmp_path / "honest", method)["train"]
    lies = [*hostile.tensor_changes("sent"), *hostile.structured(facts), *(hostile.drawn(rng, facts) for _ in range(40))]
    lies += [hostile.drawn_bytes(rng, "sent") for _ in range(80)]
    assert withstands(tmp_path / "tables", method, {"train": shuffled(rng, lies)}) == len(lies) > 250
