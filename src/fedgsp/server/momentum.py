"""FedAvgM (Hsu et al. 2019; tuned in Reddi et al. 2020): the server moves with momentum along the clients' mean step.

    Delta = sum_m p_m w_m - w        m <- beta m + Delta        w <- w + lr m

The clients' part is untouched, so it works on chains as on single clients. With beta = 0 and lr = 1 it is FedAvg, to the bit:
the new model is computed as mean + (lr m - Delta), whose bracket is then exactly zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from fedgsp.core.part import Values
from fedgsp.core.state import GLOBAL, ServerState, Setting
from fedgsp.core.sums import in_own_types
from fedgsp.server.checks import require_positive, require_share
from fedgsp.server.mean import Mean

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

MOMENTUM = "momentum"


@dataclass(frozen=True, kw_only=True)
class Momentum(Mean):
    """FedAvgM: `lr` is the server's step, `beta` its momentum; trained tensors move so, all others are averaged.

    Args:
        lr: Length of the server's step.
        beta: Its momentum.
    """

    kind: ClassVar[str] = "momentum"
    tuned_over: ClassVar[Mapping[str, Values]] = {"local.lr": (0.01, 0.03, 0.1), "lr": (0.1, 0.316, 1)}

    lr: float = 10**-0.5
    beta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("momentum", "lr", self.lr)
        require_share("momentum", "beta", self.beta)

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """m = 0, in float64."""
        zeros = {name: torch.zeros_like(t, dtype=torch.float64) for name, t in setting.trained_of(model).items()}
        return ServerState(round=0, models={GLOBAL: model}, slots={MOMENTUM: zeros})

    def step(self, state: ServerState, mean: Tensors) -> ServerState:
        """One step with momentum."""
        new, slots = dict(mean), {}
        for name, before in state.slots[MOMENTUM].items():
            delta = mean[name] - state.model[name].double()
            slots[name] = before * self.beta + delta
            new[name] = mean[name] + (slots[name] * self.lr - delta)
        return replace(state, models={GLOBAL: in_own_types(new, state.model)}, slots={**state.slots, MOMENTUM: slots})
