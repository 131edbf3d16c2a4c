"""FD's server half (Jeong et al. 2018): the sum of the clients' tables of mean logits, and how many reported each label.

    S_c = sum over the round's clients that have label c of t_k,c        M_c = how many these were

Both go out with the next round; each client takes its own table out of them (`fedgsp.client.distill`). Sums are exact, so
neither workers nor arrival can change a bit. The server has no model but the weights that every client begins with (`initial`),
which are never trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from fedgsp.core.errors import InputError
from fedgsp.core.state import ServerState, Setting, Yields
from fedgsp.core.sums import ExactSum
from fedgsp.server.rule import ServerRule, Update, View

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.seeds import Seeds
    from fedgsp.core.tensors import Tensors

INITIAL = "initial"
TABLE, HAS, ROUND = "distill.table", "distill.has", "distill.round"
SUM, COUNT = "distill.sum", "distill.count"


@dataclass(frozen=True)
class DistillServer(ServerRule):
    """Add up tables; no model is averaged."""

    kind: ClassVar[str] = "distill"

    requires_local: ClassVar[str] = "distill"
    needs: ClassVar[Literal["sum", "all"]] = "sum"

    @property
    def yields(self) -> Yields:
        """Every client keeps its own model."""
        return "none"

    def wants(self) -> frozenset[str]:
        """No metric."""
        return frozenset()

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """Nobody has said anything yet."""
        if setting.classes < 1:
            raise InputError("federated distillation exchanges what clients say of each label, so it needs data with classes.")
        if not setting.alone:
            raise InputError(
                "federated distillation hands no model on, so every client must train alone: use a planner whose chains have "
                "one client, such as growth 'singletons'."
            )
        size = setting.classes
        nothing = {
            SUM: torch.zeros(size, size),
            COUNT: torch.zeros(size, dtype=torch.int32),
            ROUND: torch.tensor(0),
        }
        return ServerState(round=0, models={INITIAL: model}, shared=nothing)

    def route(self, state: ServerState, plan: Plan, seeds: Seeds) -> Plan:
        """Whoever has no model yet begins with the initial weights."""
        return replace(plan, chains=tuple(replace(chain, start=INITIAL) for chain in plan.chains))

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> DistillUpdate:
        """Begin to add up."""
        return DistillUpdate(state, plan)

    def views(self, state: ServerState) -> tuple[View, ...]:
        """Everybody on its own model, which takes the place of the initial one."""
        return (View(INITIAL),)


class DistillUpdate(Update):
    """A round's tables, added exactly in any order."""

    borrows = True

    def __init__(self, state: ServerState, plan: Plan) -> None:
        self._state, self._plan = state, plan
        like = {TABLE: state.shared[SUM].double(), HAS: state.shared[COUNT].long()}
        self._sum = ExactSum(like, max(1, len(plan.chains)))

    def add(self, result: ChainResult) -> None:
        """Add one client's table; the model that came with it stays where it is."""
        self._sum.add(result.sent, 1, f"chain {result.index} of round {self._plan.round}")

    def finish(self) -> ServerState:
        """What the next round's clients are told."""
        total = self._sum.total64()
        told = {
            SUM: total[TABLE].float(),
            COUNT: total[HAS].round().to(torch.int32),
            ROUND: torch.tensor(self._plan.round),
        }
        return replace(self._state, round=self._plan.round, shared=told)
