"""IDA (Yeganeh et al. 2020): clients far from the average count less; INTRAC: clients that fit their data well count less.

    d_k = || w_avg - w_k ||_1  over all trained tensors                  w <- sum_k alpha_k w_k / sum_k alpha_k
    "ida"                 alpha_k = 1 / (d_k + eps)
    "ida_fedavg"          alpha_k = n_k / (d_k + eps)
    "ida_intrac"          alpha_k = 1 / ((d_k + eps) max(1/C, acc_k))
    "ida_intrac_fedavg"   alpha_k = n_k / ((d_k + eps) max(1/C, acc_k))

w_avg is the plain mean of the round's models (`center="mean"`) or the one weighed by samples ("fedavg"); C is the number of
classes, so that nobody counts as worse than chance; acc_k is the accuracy of client k's model on its own training samples. One
participant, or equal models, give the mean. Tensors that nobody trains (BatchNorm's running statistics, which have the data's
scale) are averaged with the same alpha_k and are no distance. A client may be a chain: n_k are its samples, acc_k the mean over
its clients' reports weighed by their samples (the last visit of each).

The distances need the average first, so the rule keeps all results (in a `Spool`) and reads them twice; both sums are exact and
every distance is added up in a fixed order, so neither workers nor arrival can change a bit. Traffic as FedAvg, and with INTRAC
4 bytes more for every client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from fedgsp.core.errors import InputError
from fedgsp.core.spool import Spool
from fedgsp.core.state import GLOBAL, ServerState, Setting, Yields
from fedgsp.core.sums import BLOCK, ExactSum
from fedgsp.server.checks import require_positive
from fedgsp.server.rule import ServerRule, Update, View

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, HopReport, Plan
    from fedgsp.core.seeds import Seeds
    from fedgsp.core.tensors import Tensors

Variant = Literal["ida", "ida_fedavg", "ida_intrac", "ida_intrac_fedavg"]
Center = Literal["mean", "fedavg"]
CLASSES = "classes"


@dataclass(frozen=True)
class IDA(ServerRule):
    """Inverse distance aggregation, in its four variants.

    Args:
        variant: What a client counts by besides its distance: nothing, samples, training accuracy, or both.
        center: What distances are from: the plain mean of the models, or the one weighted by samples.
        eps: Added to each distance.
    """

    kind: ClassVar[str] = "ida"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fedavg": {"variant": "ida_fedavg"},
        "intrac": {"variant": "ida_intrac"},
        "intrac-fedavg": {"variant": "ida_intrac_fedavg"},
    }

    variant: Variant = "ida"
    center: Center = "mean"
    eps: float = 1e-8

    needs: ClassVar[Literal["sum", "all"]] = "all"

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise InputError(
                f"the server rule 'ida': variant must be one of {', '.join(get_args(Variant))}, not '{self.variant}'."
            )
        if self.center not in get_args(Center):
            raise InputError(f"the server rule 'ida': center must be 'mean' or 'fedavg', not '{self.center}'.")
        require_positive("ida", "eps", self.eps)

    @property
    def yields(self) -> Yields:
        """One global model."""
        return "one"

    @property
    def intrac(self) -> bool:
        """Whether training accuracies count."""
        return "intrac" in self.variant

    def wants(self) -> frozenset[str]:
        """INTRAC needs every client's training accuracy."""
        return frozenset({"accuracy"} if self.intrac else ())

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """One model; INTRAC also remembers the number of classes."""
        if self.intrac and setting.classes < 1:
            raise InputError(
                f"the server rule 'ida' ({self.variant}) weighs training accuracies, so it needs data with classes."
            )
        return ServerState(round=0, models={GLOBAL: model}, extra={CLASSES: setting.classes} if self.intrac else {})

    def route(self, state: ServerState, plan: Plan, seeds: Seeds) -> Plan:
        """Every chain begins with the one model."""
        return plan

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> IDAUpdate:
        """Begin to keep results."""
        return IDAUpdate(self, state, plan, planned)

    def views(self, state: ServerState) -> tuple[View, ...]:
        """Everybody is evaluated on the one model."""
        return (View(),)


class IDAUpdate(Update):
    """A round's results, and the running sum of their average."""

    borrows = True

    def __init__(self, rule: IDA, state: ServerState, plan: Plan, planned: Sequence[int]) -> None:
        self._rule, self._state, self._plan = rule, state, plan
        self._spool = Spool(state.model, len(plan.chains))
        most = max(1, sum(planned)) if rule.center == "fedavg" else max(1, len(plan.chains))
        self._center = ExactSum(state.model, most, state.trained)
        self._factors: dict[int, float] = {}

    def add(self, result: ChainResult) -> None:
        """Keep one chain's model; its distance must wait."""
        if result.samples == 0:
            return  # nobody in it had anything to train on
        self._center.add(result.tensors, result.samples if self._rule.center == "fedavg" else 1, self._who(result.index))
        self._spool.put(result.index, result.tensors)
        factor = float(result.samples) if "fedavg" in self._rule.variant else 1.0
        if self._rule.intrac:
            factor /= max(1 / self._state.extra[CLASSES], chain_accuracy(result.hops))
        self._factors[result.index] = factor

    def finish(self) -> ServerState:
        """Second pass: weigh every model by its inverse distance to the average."""
        mean, trained = self._center.mean64(), Setting(trained=self._state.trained).trained_of(self._state.model)
        center = {name: mean[name] for name in trained}
        raw = {row: self._factors[row] / (l1_distance(center, w) + self._rule.eps) for row, w in self._spool}
        largest = max(raw.values())
        total = ExactSum(self._state.model, max(1, len(raw)), self._state.trained)
        for row, tensors in self._spool:
            total.add(
                tensors, raw[row] / largest, self._who(row)
            )  # equal weights are exactly 1: then it is the mean, to the bit
        return replace(self._state, round=self._plan.round, models={GLOBAL: total.mean()})

    def _who(self, index: int) -> str:
        return f"chain {index} of round {self._plan.round}"


def l1_distance(center: Tensors, model: Tensors) -> float:
    """sum |center - model| over the tensors of `center`, in blocks of fixed size, the blocks' sums added exactly."""
    parts: list[float] = []
    for name, tensor in center.items():
        ours, theirs = tensor.reshape(-1), model[name].reshape(-1)
        parts.extend(
            float((ours[at : at + BLOCK] - theirs[at : at + BLOCK].double()).abs_().sum())
            for at in range(0, theirs.numel(), BLOCK)
        )
    return math.fsum(parts)


def chain_accuracy(hops: Sequence[HopReport]) -> float:
    """Training accuracy of a chain: of its clients' last reports, weighed by their samples."""
    last = {hop.client: hop for hop in hops}
    samples = sum(hop.samples for hop in last.values())
    return math.fsum(hop.metrics["accuracy"] * hop.samples for hop in last.values()) / samples if samples else 0.0
