"""A method: who trains with whom, what a client does, what becomes of the results; parts that can be replaced one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedgsp.client.rules import SGD
from fedgsp.core.drawing import drawn
from fedgsp.core.errors import InputError
from fedgsp.door import check_part
from fedgsp.parts import encode, kind_of
from fedgsp.plan.planner import Planner
from fedgsp.plan.with_pool import WithPool
from fedgsp.prepare.preparation import Preparation
from fedgsp.server.rule import ServerRule

if TYPE_CHECKING:
    from fedgsp.core.state import Yields

ROLES = ("planner", "local", "server")

EVALUATED_ON: Mapping[Yields, str] = {
    "one": "one global model",
    "several": "several models, each client judged on the one it belongs to",
    "none": "no global model, each client judged on its own",
    "personalised": "one model that each client adapts to its own data before it is judged",
}
"""What the figures of a method are about, by what it yields: only those of one kind can stand in one column."""


@dataclass(frozen=True, repr=False)
class Method:
    """A method of federated learning, put together of parts.

    Args:
        planner: Who trains with whom in a round.
        local: What a client does with the model that it is handed.
        server: What becomes of the chains' results.
        name: What it is called in tables and files.
        preparation: What happens once before round 1; most methods have none.

    Raises:
        InputError: If a part is not what its place asks for.
    """

    planner: Planner
    local: SGD
    server: ServerRule
    name: str = "custom"
    preparation: Preparation | None = None

    def __post_init__(self) -> None:
        for role in ROLES:
            check_part(role, getattr(self, role))
        if self.preparation is not None:
            check_part("preparation", self.preparation)

    def __repr__(self) -> str:
        roles = (*ROLES, *(["preparation"] if self.preparation is not None else []))
        return "\n".join([f"Method '{self.name}'", *(f"  {role}: {getattr(self, role)!r}" for role in roles)])

    def _repr_html_(self) -> str:
        return str(drawn("method_html", self))

    @property
    def yields(self) -> Yields:
        """What it ends with: one global model, several, none, or one that clients make their own. Never to be mixed."""
        return self.local.yields if self.local.yields != "one" else self.server.yields

    @property
    def personal(self) -> bool:
        """Whether each client is judged on a model of its own: one that it kept, or made of the common one."""
        return self.yields in ("none", "personalised")

    def encode(self, *, complete: bool = False) -> dict[str, Any]:
        """As plain data, for config files; `complete` with parameters of later versions that have their default."""
        parts = {role: getattr(self, role) for role in (*ROLES, "preparation")}
        return {"name": self.name, **{role: encode(part, complete=complete) for role, part in parts.items() if part}}

    def check(self) -> None:
        """Refuse parts that do not go together, with the reason; what depends on model or data is refused in the setup."""
        if isinstance(self.planner, WithPool) != (self.preparation is not None and self.preparation.pools):
            raise InputError(
                "the planner 'with-pool' and the preparation 'pool-data' belong together (hybrid-fl): the one trains on what "
                "the other gathers at the server."
            )
        missing = sorted(self.server.wants() - self.local.reports())
        if missing:
            raise InputError(
                f"the server rule '{kind_of(self.server)}' weighs every client's training {missing[0]}, which the local rule "
                f"'{kind_of(self.local)}' does not report; set local.report_{missing[0]} = true."
            )
        ours, theirs = self.local.requires_server, self.server.requires_local
        if ours and ours != theirs:
            raise InputError(
                f"the local rule '{kind_of(self.local)}' is one half of a method: it needs the server rule '{ours}', and not "
                f"'{kind_of(self.server)}'."
            )
        if theirs != ours:
            raise InputError(
                f"the server rule '{kind_of(self.server)}' is one half of a method: it needs the local rule '{theirs}', and "
                f"not '{kind_of(self.local)}'."
            )
