"""The shape of every server rule: `start(state) -> add(result)* -> finish() -> state`."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self

from fedgsp.core.part import Part
from fedgsp.core.state import GLOBAL, ServerState, Setting, Yields
from fedgsp.core.tensors import Tensors, clone

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.seeds import Seeds
    from fedgsp.server.mean import Weighing


@dataclass(frozen=True)
class View:
    """Which model (or slot that holds one) is evaluated for whom: `clients` of None are all that no other view names.

    Args:
        model: The model, or the slot that holds one.
        clients: Who is evaluated on it; None: all that no other view names.
    """

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
    return _borrows(type(update))


@functools.lru_cache(maxsize=64)
def _borrows(kind: type[Update]) -> bool:
    owner = next((one for one in kind.__mro__ if "add" in vars(one)), object)
    return bool(vars(owner).get("borrows", False))


def hand(update: Update, result: ChainResult) -> None:
    """Add a result whose memory is used again: as it is to an update that borrows, else as a copy."""
    if not borrows(update):
        result = replace(result, tensors=clone(result.tensors), sent=clone(result.sent))
    update.add(result)


class Bench(Protocol):
    """The server's own data, for rules that also train on the server: these say `wants_data` and are given it by `bind`."""

    def gradient(self, model: Tensors) -> Tensors:
        """The gradient of the mean loss over the server's samples, for the trained tensors."""
        ...


class ServerRule(Part):
    """The base of all server rules: what becomes of the chains' results, and which model is evaluated for whom.

    Only `start` must be written; the rest is that of a rule with one global model.
    """

    needs_everybody: ClassVar[bool] = False
    """Whether all clients must train in every round: who plans for it must not sample."""
    several_live: ClassVar[bool] = False
    """Whether several models are trained side by side: then no rule about one global model can go around it."""
    companion_preparation: ClassVar[str] = ""
    """The preparation, by its kind, that comes with the rule where only the rule is named, as in `fedgsp+meta`."""

    @property
    def yields(self) -> Yields:
        """What the rule ends with: figures of several models, or of none, are about something else and are shown apart."""
        return "one"

    @property
    def needs(self) -> Literal["sum", "all"]:
        """Whether results are added up as they come ("sum"), or kept in a file until the round's end ("all")."""
        return "sum"

    @property
    def requires_local(self) -> str:
        """The local rule, by its kind, that this rule makes no sense without; most rules need none."""
        return ""

    @property
    def wants_data(self) -> bool:
        """Whether the rule trains on samples of the server's own; it is then given a `Bench`."""
        return False

    def wants(self) -> frozenset[str]:
        """Metrics that every hop must report for this rule to work."""
        return frozenset()

    def live_models(self, chains: int) -> int:
        """How many models the server holds between rounds of at most so many chains, beside the one that all rules have."""
        return 0

    def bind(self, bench: Bench) -> Self:
        """The same rule with the server's own data at hand; only asked of a rule that `wants_data`."""
        return self

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """The state before round 1.

        Args:
            model: The initial weights.
            setting: What is known of the run: clients, samples, classes, which tensors are trained.

        Returns:
            The state of round 0.

        Raises:
            InputError: In a setting in which the rule makes no sense.
        """
        return ServerState(round=0, models={GLOBAL: model})

    def route(self, state: ServerState, plan: Plan, seeds: Seeds) -> Plan:
        """Name the model that each chain begins with; rules with one model leave the plan alone.

        Args:
            state: The state before the round.
            plan: The round's chains.
            seeds: The run's randomness: `seeds.route(round)` is for this.

        Returns:
            The same plan, whose chains may have another `start`.
        """
        return plan

    @abstractmethod
    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> Update:
        """Begin a round.

        Args:
            state: The state before the round.
            plan: The round's chains.
            planned: The samples that each chain is planned to train, which bounds what it may weigh.

        Returns:
            What the results are added to.
        """

    def views(self, state: ServerState) -> tuple[View, ...]:
        """The models to evaluate, each for the clients that it names."""
        return (View(),)


def evaluated_model(rule: ServerRule, state: ServerState) -> str:
    """The model (or slot that holds one) that all are evaluated on whom no view names: what a rule with one model ends with.

    Args:
        rule: The server rule.
        state: The state after a round.
    """
    return next((view.model for view in rule.views(state) if view.clients is None), GLOBAL)
