"""The shape of every server rule: `start(state) -> add(result)* -> finish() -> state`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import GLOBAL, ServerState, Setting, Yields
from fedgsp.core.tensors import Tensors


@dataclass(frozen=True)
class View:
    """Which model (or slot that holds one) is evaluated for whom: `clients` of None are all that no other view names."""

    model: str = GLOBAL
    clients: tuple[int, ...] | None = None


class Update(Protocol):
    """One round's aggregation under way. One that is a mere sum may say by `elsewhere()` how others can make a part of it."""

    def add(self, result: ChainResult) -> None:
        """Take in one chain's result; results come in any order."""
        ...

    def finish(self) -> ServerState:
        """The state after the round."""
        ...


class Bench(Protocol):
    """The server's own data, for rules that also train on the server: these say `wants_data` and have `bind(bench)`."""

    def gradient(self, model: Tensors) -> Tensors:
        """The gradient of the mean loss over the server's samples, for the trained tensors."""
        ...


class ServerRule(Protocol):
    """What becomes of the chains' results, and which model is evaluated for whom.

    `needs` says whether the results are added up as they come ("sum") or kept until the round's end ("all", in a file that
    must fit on the disk). `yields` says what there is in the end: figures of methods that yield several models or none are
    about something else than those of one global model, and are shown apart. A rule that makes no sense without a certain local
    rule says so by a class variable `half`, which the local rule has as well.
    """

    @property
    def yields(self) -> Yields:
        """What the rule ends with."""
        ...

    @property
    def needs(self) -> Literal["sum", "all"]:
        """What the rule must have seen of the results before it can go on."""
        ...

    def wants(self) -> frozenset[str]:
        """Metrics that every hop must report for this rule to work."""
        ...

    def init(self, model: Tensors, setting: Setting = ...) -> ServerState:
        """The state before round 1, from the initial weights; refuses a setting in which the rule makes no sense."""
        ...

    def route(self, state: ServerState, plan: Plan, seeds: Seeds) -> Plan:
        """The same plan, with the live model that each chain begins with; rules with one model leave it alone."""
        ...

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> Update:
        """Begin a round; `planned` are the samples each chain is planned to train, which bounds what it may weigh."""
        ...

    def views(self, state: ServerState) -> tuple[View, ...]:
        """The models to evaluate."""
        ...


def evaluated_model(rule: ServerRule, state: ServerState) -> str:
    """The model (or slot that holds one) that all are evaluated on whom no view names: what a rule with one model ends with."""
    return next((view.model for view in rule.views(state) if view.clients is None), GLOBAL)
