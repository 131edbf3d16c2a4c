"""The mean over the sampled groups (Algorithm 1, line 11), and the base of the rules that go on from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from fedgsp.core.errors import InputError, RunFailed, where_defined
from fedgsp.core.state import GLOBAL, ServerState, Setting, Yields
from fedgsp.core.sums import ExactSum, in_own_types
from fedgsp.server.rule import ServerRule, Update, View

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan
    from fedgsp.core.seeds import Seeds
    from fedgsp.core.tensors import Tensors


@dataclass(frozen=True)
class Mean(ServerRule):
    """w <- sum_m n_m w_m / sum_m n_m over the chains m of the round.

    n_m are the samples the chain really trained (`weights="samples"`, what the authors' code does), or 1 (`"uniform"`, the
    printed formula). The paper divides by f(r) although only a share kappa of the f(r) groups was trained; taken literally
    that would shrink every weight to kappa of itself each round, so it is read as a mean over the sampled groups
    (docs/methods-reference.md, readings of the paper).

    Rules that do something else with the mean (FedOpt, momentum) derive from this one and override `init` and `step`.

    Args:
        weights: Whether a chain counts by the samples that it trained or like every other.
    """

    kind: ClassVar[str] = "mean"

    weights: Literal["samples", "uniform"] = "samples"

    needs: ClassVar[Literal["sum", "all"]] = "sum"

    def __post_init__(self) -> None:
        if self.weights not in ("samples", "uniform"):
            raise InputError(f"weights must be 'samples' or 'uniform', not '{self.weights}'.")

    @property
    def yields(self) -> Yields:
        """One global model."""
        return "one"

    def wants(self) -> frozenset[str]:
        """No metric."""
        return frozenset()

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """One model, nothing else."""
        return ServerState(round=0, models={GLOBAL: model})

    def route(self, state: ServerState, plan: Plan, seeds: Seeds) -> Plan:
        """Every chain begins with the one model."""
        return plan

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> MeanUpdate:
        """Begin a running sum; nothing is held back or stacked."""
        return MeanUpdate(self, state, plan, planned)

    def step(self, state: ServerState, mean: Tensors) -> ServerState:
        """From the mean (float64) of the chains' models to the new state; its round is set by the caller."""
        return replace(state, models={GLOBAL: in_own_types(mean, state.model)})

    def views(self, state: ServerState) -> tuple[View, ...]:
        """Everybody is evaluated on the one model."""
        return (View(),)


@dataclass(frozen=True)
class Weighing:
    """How a round's chains are added up, and the most they can weigh together: all that a sum made elsewhere must know."""

    round: int
    weights: Literal["samples", "uniform"]
    most: int
    trained: frozenset[str] | None = None

    def sum_like(self, model: Tensors) -> ExactSum:
        """A sum that is empty yet; `model` is the one the round started from."""
        return ExactSum(model, self.most, self.trained)

    def add(self, result: ChainResult, to: ExactSum) -> None:
        """Add one chain, weighed by what it really trained."""
        weight = result.samples if self.weights == "samples" else 1
        to.add(result.tensors, weight, f"chain {result.index} of round {self.round}")


class MeanUpdate(Update):
    """A round's running, exact sum."""

    borrows = True

    def __init__(self, rule: Mean, state: ServerState, plan: Plan, planned: Sequence[int]) -> None:
        self.rule = rule
        self.state = state
        self.round = plan.round
        most = max(1, sum(planned)) if rule.weights == "samples" else max(1, len(plan.chains))
        self.weighing = Weighing(plan.round, rule.weights, most, state.trained)
        self.sum = self.weighing.sum_like(state.model)

    def elsewhere(self) -> Weighing | None:
        """How an engine may add results up where they are; None where a rule looks at each of them."""
        return self.weighing if type(self).add is MeanUpdate.add else None

    def add(self, result: ChainResult) -> None:
        """Add one chain, or what an engine has added up."""
        if result.partial is not None:
            self.sum.merge(result.partial)
        elif not result.summed:
            self.weighing.add(result, self.sum)

    def finish(self) -> ServerState:
        """The rule's step from the mean."""
        after: object = self.rule.step(self.state, self.sum.mean64())
        if not isinstance(after, ServerState):
            raise RunFailed(
                f"the server rule {where_defined(self.rule)}: 'step' gave {type(after).__name__}, not a ServerState."
            )
        return replace(after, round=self.round)
