"""FedNova (Wang et al. 2020): updates are averaged per step, so that clients with many steps do not pull the model their way.

    d_k = (w - w_k) / (lr a_k)        w <- w - lr (sum_k p_k a_k) sum_k p_k d_k

a_k is how far client k's steps could lead in units of lr (`SGD.effective_steps`: their number; more with momentum, less with a
proximal pull), reported by the client (`local.report_steps = true`, 4 bytes up). The learning rate cancels. p_k weighs samples,
or all alike (`weights`). A chain is a client: its a is the sum over its hops. With m = sum_k (p_k/a_k) w_k / sum_k (p_k/a_k)
the step is

    w <- w + (sum_k p_k a_k) (sum_k p_k/a_k) (m - w)            the product is 1 where all a_k are equal, else larger

Equal a_k give the plain mean, to the bit. Tensors that are not trained are averaged plainly. Nothing to tune but the learning
rate. Traffic as FedAvg and 4 bytes; the server holds a second running sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from fedgsp.core.state import GLOBAL, ServerState, Setting
from fedgsp.core.sums import in_own_types
from fedgsp.server.mean import Mean, MeanUpdate

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.tensors import Tensors

TRAINED = "trained"


@dataclass(frozen=True)
class Nova(Mean):
    """Normalised averaging."""

    kind: ClassVar[str] = "nova"

    def wants(self) -> frozenset[str]:
        """How far every client's steps could lead."""
        return frozenset({"steps"})

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """One model, and which of its tensors are trained."""
        return ServerState(round=0, models={GLOBAL: model}, extra={TRAINED: sorted(setting.trained_of(model))})

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> MeanUpdate:
        """Begin two sums."""
        return NovaUpdate(self, state, plan, planned)


class NovaUpdate(MeanUpdate):
    """The plain sum (`self.sum`), and the one by steps."""

    borrows = True

    def __init__(self, rule: Nova, state: ServerState, plan: Plan, planned: Sequence[int]) -> None:
        super().__init__(rule, state, plan, planned)
        self._by_steps = self.weighing.sum_like(state.model)
        self._seen: dict[int, tuple[float, float]] = {}

    def add(self, result: ChainResult) -> None:
        """Add one chain, and once more divided by its steps."""
        super().add(result)
        steps = max(1.0, math.fsum(hop.metrics["steps"] for hop in result.hops))
        weight = float(result.samples if self.rule.weights == "samples" else 1)
        self._by_steps.add(result.tensors, weight / steps, f"chain {result.index} of round {self.round}")
        self._seen[result.index] = (weight, steps)

    def finish(self) -> ServerState:
        """The plain mean where all made equally many steps, else the normalised step."""
        mean = self.sum.mean64()
        if len({steps for _, steps in self._seen.values()}) > 1:
            seen = [self._seen[index] for index in sorted(self._seen)]
            total = math.fsum(weight for weight, _ in seen)
            along = math.fsum(weight * steps for weight, steps in seen) / total
            factor = along * math.fsum(weight / steps for weight, steps in seen) / total
            normalised = self._by_steps.mean64()
            for name in self.state.extra[TRAINED]:
                old = self.state.model[name].double()
                mean[name] = old + (normalised[name] - old) * factor
        return replace(self.state, round=self.round, models={GLOBAL: in_own_types(mean, self.state.model)})
