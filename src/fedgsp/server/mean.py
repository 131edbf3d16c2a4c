"""The mean over the sampled groups: Algorithm 1, line 11."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedgsp.core.chain import ChainResult, Plan
from fedgsp.core.errors import InputError
from fedgsp.core.state import GLOBAL, ServerState
from fedgsp.core.sums import ExactSum
from fedgsp.core.tensors import Tensors
from fedgsp.server.rule import View


@dataclass(frozen=True)
class Mean:
    """w <- sum_m n_m w_m / sum_m n_m over the chains m of the round.

    n_m are the samples the chain really trained (`weights="samples"`, what the authors' code does), or 1 (`"uniform"`, the
    printed formula). The paper divides by f(r) although only a share kappa of the f(r) groups was trained; taken literally
    that would shrink every weight to kappa of itself each round, so it is read as a mean over the sampled groups
    (SPECS 1.3).
    """

    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        if self.weights not in ("samples", "uniform"):
            raise InputError(f"weights must be 'samples' or 'uniform', not '{self.weights}'.")

    def init(self, model: Tensors) -> ServerState:
        """One model, nothing else."""
        return ServerState(round=0, models={GLOBAL: model})

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> MeanUpdate:
        """Begin a running sum; nothing is held back or stacked."""
        return MeanUpdate(self, state, plan, planned)

    def views(self, state: ServerState) -> tuple[View, ...]:
        """Everybody is evaluated on the one model."""
        return (View(),)


class MeanUpdate:
    """A round's running, exact sum."""

    def __init__(self, rule: Mean, state: ServerState, plan: Plan, planned: Sequence[int]) -> None:
        self.rule = rule
        self.state = state
        self.round = plan.round
        most = max(1, sum(planned)) if rule.weights == "samples" else max(1, len(plan.chains))
        self.sum = ExactSum(state.model, most)

    def add(self, result: ChainResult) -> None:
        """Add one chain, weighed by what it really trained."""
        weight = result.samples if self.rule.weights == "samples" else 1
        self.sum.add(result.tensors, weight, f"chain {result.index} of round {self.round}")

    def finish(self) -> ServerState:
        """The mean is the new global model."""
        return replace(self.state, round=self.round, models={GLOBAL: self.sum.mean()})
