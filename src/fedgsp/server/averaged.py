"""Averaged iterates (Polyak and Ruppert; for FedAvg: Li et al. 2020), around any other server rule.

    w_1, w_2, .. : the models of the rule inside
    by decay d:         a_r = sum_i d^(r-i) w_i / sum_i d^(r-i)              i = 1 .. r; the initial model does not count
    of the last k:      a_r = (w_r + .. + w_{max(1, r-k+1)}) / min(r, k)

What is evaluated and handed out (`result.model()`, model.safetensors) is a_r. Training goes on from w_r, which is in the
checkpoint and is `result.model("global")`. So the clients' work is the same to the bit with and without it. d = 0 and k = 1
are the rule inside. Real-valued tensors are averaged, trained or not; others are those of w_r.

Traffic as the rule inside. The server keeps one model more, with `last` = k so many. To tune: `decay` over 0.5, 0.7, 0.9; the
larger the server's steps overshoot, the more it helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from fedgsp.core.errors import InputError
from fedgsp.core.params import require_real, require_whole
from fedgsp.core.state import GLOBAL, ServerState, Setting, beside
from fedgsp.core.sums import in_own_types
from fedgsp.core.tensors import Tensors, clone
from fedgsp.server.rule import Update, View
from fedgsp.server.wrapper import Wrapper, WrapperUpdate

if TYPE_CHECKING:
    from fedgsp.core.chain import Plan
    from fedgsp.server.mean import Weighing

AVERAGE = "average of models"
COUNTED = "models averaged"


@dataclass(frozen=True)
class Averaged(Wrapper):
    """Evaluate and hand out an average of the models of the rule `server`; train on from its last one.

    Args:
        server: The rule whose models are averaged.
        decay: What a model of the round before counts against the newest, from 0 up to 1.
        last: Take the plain mean of the last so many models instead; 0: by `decay`.

    Raises:
        InputError: If a parameter cannot be used, or the rule inside has no single global model.
    """

    kind: ClassVar[str] = "averaged"
    inside_local: ClassVar[bool] = True

    decay: float = 0.7
    last: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= require_real("Averaged", "decay", self.decay) < 1:
            raise InputError(f"the server rule 'averaged': decay must be from 0 up to 1, not {self.decay}.")
        require_whole("Averaged", "last", self.last, at_least=0)
        if self.server.yields != "one":
            raise InputError("the server rule 'averaged' is about one global model, and the rule inside ends with none.")
        if isinstance(self.server, Averaged):
            raise InputError("the server rule 'averaged' cannot go around itself: an average of averages has no use.")

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """The initial model stands for the average until there is one."""
        state = self.server.init(model, setting)
        slots = _with_beside({**state.slots, AVERAGE: clone(model)})
        return replace(state, slots=slots, extra={**state.extra, COUNTED: 0})

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> Update:
        """Begin a round of the rule inside."""
        return AveragedUpdate(self, state, self.server.start(state, plan, planned))

    def views(self, state: ServerState) -> tuple[View, ...]:
        """Everybody is evaluated on the average."""
        return (View(AVERAGE),)

    def average(self, state: ServerState, before: int) -> dict[str, Tensors]:
        """The slots after a model more, of which there were `before`: the average, and the models it still needs."""
        model = state.model
        if not self.last:
            old, share = state.slots[AVERAGE], (1 - self.decay) / (1 - self.decay ** (before + 1))
            moved = {name: old[name].double() + (t.double() - old[name].double()) * share for name, t in _real(model).items()}
            return {AVERAGE: in_own_types({**clone(model), **moved}, model)}
        earlier = [state.slots[_kept(age)] for age in range(1, min(before, self.last - 1) + 1)]
        every = [model, *earlier]
        mean = {name: torch.stack([one[name].double() for one in every]).sum(0) / len(every) for name in _real(model)}
        kept = {_kept(age): tensors for age, tensors in enumerate(every[: self.last - 1], start=1)}
        return {AVERAGE: in_own_types({**clone(model), **mean}, model), **kept}


class AveragedUpdate(WrapperUpdate):
    """A round of the rule inside, and its model among those averaged."""

    def __init__(self, rule: Averaged, state: ServerState, inside: Update) -> None:
        super().__init__(state, inside)
        self._rule = rule

    def elsewhere(self) -> Weighing | None:
        """As the rule inside: results are not looked at here."""
        return self.inside.elsewhere()

    def finish(self) -> ServerState:
        """The rule inside, then the average."""
        state, before = super().finish(), int(self.state.extra[COUNTED])
        slots = _with_beside({**state.slots, **self._rule.average(state, before)})
        return replace(state, slots=slots, extra={**state.extra, COUNTED: before + 1})


def _with_beside(slots: dict[str, Tensors]) -> dict[str, Tensors]:
    """What the model is evaluated with goes with its average, too."""
    there = slots.get(beside(GLOBAL))
    return slots if there is None else {**slots, beside(AVERAGE): there}


def _kept(age: int) -> str:
    """The slot of the model that was the newest so many rounds ago."""
    return f"model {age} before"


def _real(model: Tensors) -> Tensors:
    return {name: tensor for name, tensor in model.items() if tensor.is_floating_point()}
