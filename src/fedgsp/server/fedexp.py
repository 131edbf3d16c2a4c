"""FedExP (Jhunjhunwala et al. 2023): the server's step grows with how much the clients disagree.

    Delta_k = w_k - w,   Delta = sum_k p_k Delta_k
    eta = max(1, sum_k p_k ||Delta_k||^2 / (2 (||Delta||^2 + eps)))            w <- w + eta Delta

With `weights="uniform"` the fraction is the paper's sum ||Delta_k||^2 / (2 |S| (||mean Delta||^2 + eps)). Norms are over the
trained tensors; others are averaged. A chain is a client. One client, or equal ones, give 1/2, so eta = 1 and FedAvg, to the
bit: the new model is computed as mean + (eta - 1) Delta. As the steps overshoot, what is evaluated is the mean of the last
two models (`average_last`), which is also what `result.model()` and model.safetensors have. Training goes on from the last one,
which is in the checkpoint and is `result.model("global")`.

`cap` bounds eta. Chains disagree most early in training, where a long step overshoots (docs/methods.md, "A capped step").

Nothing to tune but the learning rate; eps guards against Delta = 0. Traffic as FedAvg; one more model on the server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from fedgsp.core.errors import InputError
from fedgsp.core.params import OMIT_DEFAULT, require_real
from fedgsp.core.state import GLOBAL, ServerState, Setting
from fedgsp.core.sums import BLOCK, in_own_types
from fedgsp.core.tensors import Tensors, clone
from fedgsp.server.checks import require_positive
from fedgsp.server.mean import Mean, MeanUpdate
from fedgsp.server.rule import View

if TYPE_CHECKING:
    from fedgsp.core.chain import ChainResult, Plan

AVERAGED = "mean of the last two"
TRAINED = "trained"


@dataclass(frozen=True)
class FedExP(Mean):
    """Extrapolation along the mean update.

    Args:
        eps: Guards against a mean update of zero.
        average_last: Evaluate the mean of the last two models instead of the last.
        cap: The longest step, in mean updates, at least 1; None: as long as the formula says.

    Raises:
        InputError: If a parameter cannot be used.
    """

    kind: ClassVar[str] = "exp"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"capped": {"cap": 2.0, "average_last": False}}

    eps: float = 1e-3
    average_last: bool = True
    cap: float | None = field(default=None, metadata=OMIT_DEFAULT)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("exp", "eps", self.eps)
        if self.cap is not None and require_real("FedExP", "cap", self.cap) < 1:
            raise InputError(f"the server rule 'exp': cap must be at least 1, the step of a plain mean, not {self.cap}.")

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """The model, which is also its own average."""
        slots = {AVERAGED: clone(model)} if self.average_last else {}
        return ServerState(0, {GLOBAL: model}, slots, extra={TRAINED: sorted(setting.trained_of(model)), "eta": 1.0})

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> MeanUpdate:
        """Begin a running sum, of models and of squared norms."""
        return FedExPUpdate(self, state, plan, planned)

    def views(self, state: ServerState) -> tuple[View, ...]:
        """Everybody is evaluated on the mean of the last two models, or on the last."""
        return (View(AVERAGED if self.average_last else GLOBAL),)


class FedExPUpdate(MeanUpdate):
    """A round's sum, and how far each chain went."""

    rule: FedExP
    borrows = True

    def __init__(self, rule: FedExP, state: ServerState, plan: Plan, planned: Sequence[int]) -> None:
        super().__init__(rule, state, plan, planned)
        self._old = {name: state.model[name].double() for name in state.extra[TRAINED]}
        self._norms: dict[int, tuple[float, float]] = {}

    def add(self, result: ChainResult) -> None:
        """Add one chain, and note its squared distance."""
        super().add(result)
        weight = float(result.samples if self.rule.weights == "samples" else 1)
        self._norms[result.index] = (weight, squared_distance(self._old, result.tensors))

    def finish(self) -> ServerState:
        """One step of length eta along Delta."""
        state, mean = self.state, self.sum.mean64()
        seen = [self._norms[index] for index in sorted(self._norms)]
        spread = math.fsum(weight * norm for weight, norm in seen) / math.fsum(weight for weight, _ in seen)
        eta = max(1.0, spread / (2 * (squared_distance(self._old, mean) + self.rule.eps)))
        eta = eta if self.rule.cap is None else min(eta, self.rule.cap)
        for name, old in self._old.items():
            mean[name] = mean[name] + (mean[name] - old) * (eta - 1)
        model = in_own_types(mean, state.model)
        slots = dict(state.slots)
        if self.rule.average_last:
            real = {name: tensor for name, tensor in model.items() if not tensor.is_complex()}
            both = {name: (tensor.double() + state.model[name].double()) / 2 for name, tensor in real.items()}
            slots[AVERAGED] = in_own_types({**clone(model), **both}, model)
        return replace(state, round=self.round, models={GLOBAL: model}, slots=slots, extra={**state.extra, "eta": eta})


def squared_distance(old: Tensors, new: Tensors) -> float:
    """||new - old||^2 over the tensors of `old`, in blocks of fixed size, the blocks' sums added exactly."""
    parts: list[float] = []
    for name, tensor in old.items():
        ours, theirs = tensor.reshape(-1), new[name].reshape(-1)
        parts.extend(
            float((theirs[at : at + BLOCK].double() - ours[at : at + BLOCK]).square_().sum())
            for at in range(0, ours.numel(), BLOCK)
        )
    return math.fsum(parts)
