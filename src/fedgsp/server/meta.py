"""Controllable meta updating (FedMeta; Yao, Huang, Zhang, Li, Sun 2019), around any other server rule.

    after the rule inside:   w <- w - lr grad L(w; D_meta)        `steps` times

D_meta is a small set on the server, drawn from the distribution the model is wanted for; the preparation `meta-set` collects
it and counts its traffic. The gradient is over the whole set, in evaluation mode (no dropout, BatchNorm's running means as
they are), so it draws nothing and does not depend on workers. Around UGA's clients (`fedgsp.client.UGA`) it is the paper's
FedMeta with UGA; any other local rule will do. To tune: lr over 0.003, 0.01, 0.03, 0.1 and the share of data in the set. No
traffic; `steps` full gradients a round on the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from fedgsp.core.errors import InputError
from fedgsp.core.params import GIVEN_BY_RUN
from fedgsp.core.state import GLOBAL, ServerState
from fedgsp.server.checks import require_positive
from fedgsp.server.rule import Bench, Update
from fedgsp.server.wrapper import Wrapper, WrapperUpdate

if TYPE_CHECKING:
    from fedgsp.core.chain import Plan


@dataclass(frozen=True)
class Meta(Wrapper):
    """`steps` gradient steps of length `lr` on the server's own data, after every round of `server`.

    Args:
        lr: Length of a step.
        steps: Number of steps after a round.
        bench: Where gradients are computed; given by the run.
    """

    kind: ClassVar[str] = "meta"
    companion_preparation: ClassVar[str] = "meta-set"

    lr: float = 0.01
    steps: int = 1
    bench: Bench | None = field(default=None, repr=False, compare=False, metadata=GIVEN_BY_RUN)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("meta", "lr", self.lr)
        if self.steps < 1:
            raise InputError(f"the server rule 'meta': steps must be at least 1, not {self.steps}.")

    @property
    def wants_data(self) -> bool:
        """D_meta."""
        return True

    def bind(self, bench: Bench) -> Self:
        """Take the server's data, and hand it on."""
        return replace(super().bind(bench), bench=bench)

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> MetaUpdate:
        """Begin a round of the rule inside."""
        assert self.bench is not None  # the setup sees to it
        return MetaUpdate(state, self.server.start(state, plan, planned), self, self.bench)


class MetaUpdate(WrapperUpdate):
    """A round of the rule inside, then the meta steps."""

    def __init__(self, state: ServerState, inside: Update, rule: Meta, bench: Bench) -> None:
        super().__init__(state, inside)
        self._rule, self._bench = rule, bench

    def finish(self) -> ServerState:
        """Step along the gradient on the server's data."""
        state = super().finish()
        for _ in range(self._rule.steps):
            gradient = self._bench.gradient(state.model)
            model = {
                name: tensor - self._rule.lr * gradient[name] if name in gradient else tensor
                for name, tensor in state.model.items()
            }
            state = replace(state, models={**state.models, GLOBAL: model})
        return state
