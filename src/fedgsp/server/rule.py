"""The shape of every server rule: `start(state) -> add(result)* -> finish() -> state`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.seeds import Seeds
from fedgsp.core.state import GLOBAL, ServerState, Setting, Yields
from fedgsp.core.tensors import Tensors, clone

if TYPE_CHECKING:
    from fedgsp.server.mean import Weighing


@dataclass(frozen=True)
class View:
    """Which model (or slot that holds one) is evaluated for whom: `clients` of None are all that no other view names."""

    model: str = GLOBAL
    clients: tuple[int, ...] | None = None


class Update(ABC):
    """One round's aggregation under way.

    `borrows` says that `add` is done with a result's tensors when it returns. It is then lent memory that the next result is
    written to; all others are given copies, which are theirs to keep. It counts for the very class that has `add`: a subclass
    with an `add` of its own is given copies unless it says so again.
    """

    borrows: ClassVar[bool] = False

    @abstractmethod
    def add(self, result: ChainResult) -> None:
        """Take in one chain's result; results come in any order."""

    @abstractmethod
    def finish(self) -> ServerState:
        """The state after the round; its `round` is set by the loop."""

    def elsewhere(self) -> Weighing | None:
        """How an engine may add results up where they are; None where the rule must see each of them."""
        return None


def borrows(update: Update) -> bool:
    """Whether the class that has this update's `add` says that it borrows."""
    owner = next((kind for kind in type(update).__mro__ if "add" in vars(kind)), object)
    return bool(vars(owner).get("borrows", False))


def hand(update: Update, result: ChainResult) -> None:
    """Add a result whose memory is used again: as it is to an update that borrows, else as a copy."""
    if not borrows(update):
        result = replace(result, tensors=clone(result.tensors), sent=clone(result.sent))
    update.add(result)


class Bench(Protocol):
    """The server's own data, for rules that also train on the server: these say `wants_data` and have `bind(bench)`."""

    def gradient(self, model: Tensors) -> Tensors:
        """The gradient of the mean loss over the server's samples, for the trained tensors."""
        ...


class ServerRule(ABC):
    """What becomes of the chains' results, and which model is evaluated for whom.

    Only `start` must be written; the rest is that of a rule with one global model. `needs` says whether the results are added
    up as they come ("sum") or kept until the round's end ("all", in a file that must fit on the disk). `yields` says what there
    is in the end: figures of methods that yield several models or none are about something else than those of one global model,
    and are shown apart. A rule that makes no sense without a certain local rule says so by a class variable `half`, which the
    local rule has as well.
    """

    @property
    def yields(self) -> Yields:
        """What the rule ends with."""
        return "one"

    @property
    def needs(self) -> Literal["sum", "all"]:
        """What the rule must have seen of the results before it can go on."""
        return "sum"

    def wants(self) -> frozenset[str]:
        """Metrics that every hop must report for this rule to work."""
        return frozenset()

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """The state before round 1, from the initial weights; refuses a setting in which the rule makes no sense."""
        return ServerState(round=0, models={GLOBAL: model})

    def route(self, state: ServerState, plan: Plan, seeds: Seeds) -> Plan:
        """The same plan, with the live model that each chain begins with; rules with one model leave it alone."""
        return plan

    @abstractmethod
    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> Update:
        """Begin a round; `planned` are the samples each chain is planned to train, which bounds what it may weigh."""

    def views(self, state: ServerState) -> tuple[View, ...]:
        """The models to evaluate."""
        return (View(),)


def evaluated_model(rule: ServerRule, state: ServerState) -> str:
    """The model (or slot that holds one) that all are evaluated on whom no view names: what a rule with one model ends with."""
    return next((view.model for view in rule.views(state) if view.clients is None), GLOBAL)
