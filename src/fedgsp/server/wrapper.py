"""Rules that go around another server rule and do something of their own before or after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from fedgsp.core.errors import InputError
from fedgsp.core.state import ServerState, Setting, Yields
from fedgsp.server.mean import Mean
from fedgsp.server.rule import Bench, ServerRule, Update, View, hand

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.seeds import Seeds
    from fedgsp.core.tensors import Tensors


@dataclass(frozen=True)
class Wrapper(ServerRule):
    """The rule `server`, unchanged: a subclass overrides what it does beside it.

    Args:
        server: The rule inside.
    """

    server: ServerRule = field(default_factory=Mean)

    own_local: ClassVar[str] = ""
    inside_local: ClassVar[bool] = False
    """Whether a method's name puts it inside what comes with a local rule (SCAFFOLD's half), wherever its word stands."""

    def __post_init__(self) -> None:
        if self.server.several_live:
            raise InputError(
                f"the server rule '{self.kind}' is about one global model; it cannot go around a rule with several live ones."
            )
        if self.own_local and self.server.requires_local:
            raise InputError(
                f"the server rules '{self.own_local}' and '{self.server.requires_local}' are halves of two methods, and there "
                f"is one local rule."
            )

    @property
    def requires_local(self) -> str:
        """The local rule, by its kind, that this rule or the one inside needs."""
        return self.own_local or self.server.requires_local

    @property
    def wants_data(self) -> bool:
        """Whether this rule or the one inside trains on data of the server's own."""
        return self.server.wants_data

    @property
    def yields(self) -> Yields:
        """As the rule inside."""
        return self.server.yields

    def live_models(self, chains: int) -> int:
        """As the rule inside."""
        return self.server.live_models(chains)

    @property
    def needs(self) -> Literal["sum", "all"]:
        """As the rule inside."""
        return self.server.needs

    def wants(self) -> frozenset[str]:
        """As the rule inside."""
        return self.server.wants()

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """As the rule inside."""
        return self.server.init(model, setting)

    def route(self, state: ServerState, plan: Plan, seeds: Seeds) -> Plan:
        """As the rule inside."""
        return self.server.route(state, plan, seeds)

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> Update:
        """Begin a round of the rule inside."""
        return self.server.start(state, plan, planned)

    def views(self, state: ServerState) -> tuple[View, ...]:
        """As the rule inside."""
        return self.server.views(state)

    def bind(self, bench: Bench) -> Self:
        """Hand the server's own data on to the rule inside, should it want it."""
        return replace(self, server=self.server.bind(bench))


class WrapperUpdate(Update):
    """A round of the rule inside; a subclass sees every result and has the last word."""

    borrows = True

    def __init__(self, state: ServerState, inside: Update) -> None:
        self.state, self.inside = state, inside

    def add(self, result: ChainResult) -> None:
        """As the rule inside."""
        hand(self.inside, result)

    def finish(self) -> ServerState:
        """As the rule inside."""
        return self.inside.finish()
