"""FedAdagrad, FedAdam and FedYogi (Reddi et al. 2020, Algorithm 2): adaptive steps of the server, plain SGD on the clients.

    Delta = sum_m p_m w_m - w                       (the server's pseudo-gradient is -Delta: w moves WITH Delta)
    m <- beta1 m + (1 - beta1) Delta
    Adagrad: v <- v + Delta^2
    Adam:    v <- beta2 v + (1 - beta2) Delta^2
    Yogi:    v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)     (sign of v before the update)
    w <- w + lr m / (sqrt(v) + tau)                 all element-wise, tau outside the root

As in Algorithm 2 there is no bias correction (a flag of Adam and Yogi turns on lr sqrt(1 - beta2^t) / (1 - beta1^t), as in the
authors' TensorFlow code) and v starts at tau^2. m and v are float64, stay on the server and exist for trained tensors
only; all others (BatchNorm's running means) are averaged plainly. Clients may be chains: p_m weighs what a chain trained.

To tune: lr over 10^-3, 10^-2.5, .. 10^-1, tau over 1e-3, 1e-4 (docs/methods-reference.md).
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

FIRST, SECOND, STEPS = "first moment", "second moment", "server_steps"


@dataclass(frozen=True, kw_only=True)
class Adagrad(Mean):
    """FedAdagrad: v only grows. `v0` of None is tau^2; beta1 = 0 as in the paper's runs.

    Args:
        lr: Length of the server's step.
        beta1: Share of the last step that is kept.
        tau: Added to the root; a larger one is less adaptive.
        v0: What v begins with; None: tau squared.
    """

    kind: ClassVar[str] = "adagrad"
    tuned_over: ClassVar[Mapping[str, Values]] = {"local.lr": (0.01, 0.03, 0.1), "lr": (0.01, 0.0316, 0.1)}

    lr: float = 10**-1.5
    beta1: float = 0.0
    tau: float = 1e-3
    v0: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        who = self.kind
        require_positive(who, "lr", self.lr)
        require_positive(who, "tau", self.tau)
        require_share(who, "beta1", self.beta1)
        if self.v0 is not None and self.v0 != 0:
            require_positive(who, "v0", self.v0)

    def second(self, v: torch.Tensor, squared: torch.Tensor) -> torch.Tensor:
        """The second moment after a step whose squares are `squared`."""
        return v + squared

    def rate(self, steps: int) -> float:
        """The learning rate of the `steps`-th step (1 = the first)."""
        return self.lr

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """m = 0, v = v0."""
        trained = setting.trained_of(model)
        start = self.tau**2 if self.v0 is None else self.v0
        slots = {
            FIRST: {name: torch.zeros_like(t, dtype=torch.float64) for name, t in trained.items()},
            SECOND: {name: torch.full_like(t, start, dtype=torch.float64) for name, t in trained.items()},
        }
        return ServerState(round=0, models={GLOBAL: model}, slots=slots, extra={STEPS: 0})

    def step(self, state: ServerState, mean: Tensors) -> ServerState:
        """One adaptive step along Delta."""
        steps = state.extra[STEPS] + 1
        new, firsts, seconds = dict(mean), {}, {}
        for name, m in state.slots[FIRST].items():
            old = state.model[name].double()
            delta = mean[name] - old
            firsts[name] = m * self.beta1 + delta * (1 - self.beta1)
            seconds[name] = self.second(state.slots[SECOND][name], delta.square())
            new[name] = old + firsts[name] / (seconds[name].sqrt() + self.tau) * self.rate(steps)
        return replace(
            state,
            models={GLOBAL: in_own_types(new, state.model)},
            slots={**state.slots, FIRST: firsts, SECOND: seconds},
            extra={**state.extra, STEPS: steps},
        )


@dataclass(frozen=True, kw_only=True)
class Adam(Adagrad):
    """FedAdam: v is a moving average of squares.

    Args:
        beta2: Share of v that is kept.
        bias_correction: Correct for the zeros that m and v begin with.
    """

    kind: ClassVar[str] = "adam"
    tuned_over: ClassVar[Mapping[str, Values]] = {"local.lr": (0.01, 0.03, 0.1), "lr": (0.00316, 0.01, 0.0316)}

    lr: float = 10**-2.5
    beta1: float = 0.9
    beta2: float = 0.99
    bias_correction: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(self.kind, "beta2", self.beta2)

    def second(self, v: torch.Tensor, squared: torch.Tensor) -> torch.Tensor:
        """beta2 v + (1 - beta2) Delta^2."""
        return v * self.beta2 + squared * (1 - self.beta2)

    def rate(self, steps: int) -> float:
        """lr, or lr sqrt(1 - beta2^t) / (1 - beta1^t) with bias correction."""
        if not self.bias_correction:
            return self.lr
        return float(self.lr * (1 - self.beta2**steps) ** 0.5 / (1 - self.beta1**steps))


@dataclass(frozen=True, kw_only=True)
class Yogi(Adam):
    """FedYogi: v moves towards Delta^2 by at most (1 - beta2) Delta^2, so it does not fall as fast as Adam's."""

    kind: ClassVar[str] = "yogi"

    def second(self, v: torch.Tensor, squared: torch.Tensor) -> torch.Tensor:
        """v - (1 - beta2) Delta^2 sign(v - Delta^2)."""
        return v - squared * (1 - self.beta2) * torch.sign(v - squared)
