"""Results are a rule's to keep, unless it says that it only borrows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch

import fedgsp
from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.state import GLOBAL, ServerState
from fedgsp.core.tensors import Tensors
from fedgsp.server import Mean, ServerRule, Update
from fedgsp.server.mean import MeanUpdate
from fedgsp.server.rule import borrows, hand
from fedgsp.server.wrapper import WrapperUpdate
from tests.support.tiny import bits, chains, federation, linear


class Keeping(Update):
    """As docs/python.md had it in 0.1.0: results are stored as they come and stacked in the end."""

    def __init__(self, state: ServerState, copies: bool) -> None:
        self.state, self.copies, self.kept = state, copies, dict[int, Tensors]()

    def add(self, result: ChainResult) -> None:
        own = {name: t.clone() for name, t in result.tensors.items()} if self.copies else result.tensors
        self.kept[result.index] = own

    def finish(self) -> ServerState:
        rows = [self.kept[index] for index in sorted(self.kept)]
        middle = {name: torch.stack([row[name] for row in rows]).median(dim=0).values for name in self.state.model}
        return replace(self.state, models={GLOBAL: middle})


@dataclass(frozen=True)
class Median(ServerRule):
    copies: bool = False

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> Update:
        return Keeping(state, self.copies)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_rule_that_stores_results_has_the_bits_of_one_that_copies_them(workers: int) -> None:
    data = federation()
    stored = fedgsp.train(replace(chains(), server=Median()), data, linear, rounds=4, workers=workers).state.model
    copied = fedgsp.train(replace(chains(), server=Median(copies=True)), data, linear, rounds=4, workers=0).state.model
    assert bits(stored) == bits(copied)


def result(value: float) -> ChainResult:
    return ChainResult(0, Chain((0,)), {"w": torch.tensor([value])}, (HopReport(0, 0, 0, 1, 1, 0, 0, 0.0),))


def state() -> ServerState:
    return ServerState(0, {GLOBAL: {"w": torch.zeros(1)}})


def test_an_update_keeps_what_it_was_given_when_the_memory_is_used_again() -> None:
    update, given = Keeping(state(), copies=False), result(2.0)
    hand(update, given)
    given.tensors["w"].fill_(9.0)
    assert update.kept[0]["w"].item() == 2.0


def test_an_update_with_no_base_is_given_copies_too() -> None:
    class Bare:
        def add(self, result: ChainResult) -> None:
            self.kept = result.tensors

    update, given = Bare(), result(2.0)
    hand(update, given)  # type: ignore[arg-type]
    given.tensors["w"].fill_(9.0)
    assert update.kept["w"].item() == 2.0


class Hoarding(MeanUpdate):
    """A user's subclass with an `add` of its own, which inherits `borrows` and yet must not be lent anything."""

    def add(self, result: ChainResult) -> None:
        super().add(result)
        self.kept = result.tensors


def test_a_subclass_with_an_add_of_its_own_is_given_copies_until_it_says_so_itself() -> None:
    class Frugal(Hoarding):
        borrows = True

        def add(self, result: ChainResult) -> None:
            super().add(result)

    plan = Plan(1, (Chain((0,)),), 1)
    assert borrows(MeanUpdate(Mean(), state(), plan, [1]))
    assert not borrows(Hoarding(Mean(), state(), plan, [1]))
    assert borrows(Frugal(Mean(), state(), plan, [1]))


def test_a_rule_that_goes_around_another_lends_it_nothing_that_it_may_keep() -> None:
    inside, given = Keeping(state(), copies=False), result(2.0)
    hand(WrapperUpdate(state(), inside), given)
    given.tensors["w"].fill_(9.0)
    assert inside.kept[0]["w"].item() == 2.0


def test_nothing_is_copied_for_the_rules_of_our_own() -> None:
    def below(kind: type) -> list[type]:
        children: list[type] = kind.__subclasses__()
        return [kind, *(one for child in children for one in below(child))]

    adding = [kind for kind in below(Update) if kind.__module__.startswith("fedgsp.") and "add" in vars(kind)]
    assert len(adding) > 8
    assert [kind.__name__ for kind in adding if kind is not Update and not vars(kind).get("borrows")] == []
