"""FedDyn's server half (Acar et al. 2021): the mean, and on top of it everything the clients have moved so far.

    h <- h - (alpha/K) sum_{k in S} (w_k - w)            w <- mean_{k in S} w_k - h / alpha

alpha cancels: with s the sum of (w_k - w) over all rounds, -h/alpha = s/K and the step is w <- mean w_k + s/K; so the server
need not know alpha. The mean is plain, not by samples. K are all clients that may train. A chain counts like a client: the
movements of its clients add up to that of its end (see `fedgsp.client.Dyn`). Tensors that are not trained (BatchNorm's) are
averaged. The server keeps s in float64; with all K clients and one round the step is twice the mean's.

What is minimised: the plain mean of the clients' losses, (1/K) sum_k F_k, as printed (`weights = "uniform"`); or the loss over
all samples, sum_k n_k F_k / sum_k n_k, as FedAvg (`"samples"`). For the latter clients are sent the mean number of samples, 4
bytes, and take alpha times it over n_k for their alpha, as the authors' code does; the mean of models stays plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from fedgsp.core.state import GLOBAL, ServerState, Setting
from fedgsp.core.sums import in_own_types
from fedgsp.server.checks import require_weights
from fedgsp.server.mean import Mean, MeanUpdate

if TYPE_CHECKING:
    from fedgsp.core.chain import Plan
    from fedgsp.core.tensors import Tensors

MOVED = "moved"
CLIENTS = "clients"


@dataclass(frozen=True)
class DynServer(Mean):
    """FedDyn's server: `weights` says whose losses are minimised; the models' mean is plain either way.

    Args:
        weights: Whether a client's loss counts by its samples or like every other.
    """

    kind: ClassVar[str] = "dyn"

    weights: Literal["samples", "uniform"] = "uniform"

    requires_local: ClassVar[str] = "dyn"

    def __post_init__(self) -> None:
        require_weights("dyn", self.weights)

    def init(self, model: Tensors, setting: Setting = Setting()) -> ServerState:  # noqa: B008 - frozen
        """s = 0."""
        zeros = {name: torch.zeros_like(t, dtype=torch.float64) for name, t in setting.trained_of(model).items()}
        shared = setting.mean_samples(self.weights, "dyn")
        return ServerState(0, {GLOBAL: model}, {MOVED: zeros}, shared, {CLIENTS: setting.clients})

    def start(self, state: ServerState, plan: Plan, planned: Sequence[int]) -> MeanUpdate:
        """As the mean, but the number of results counts as well."""
        return DynUpdate(replace(self, weights="uniform"), state, plan, planned)  # clients weigh themselves, by their alpha


class DynUpdate(MeanUpdate):
    """A round's running sum and count."""

    def finish(self) -> ServerState:
        """s <- s + sum (w_k - w), then the mean + s/K."""
        state, mean = self.state, self.sum.mean64()
        new, moved = dict(mean), {}
        for name, before in state.slots[MOVED].items():
            moved[name] = before + (mean[name] - state.model[name].double()) * self.sum.count
            new[name] = mean[name] + moved[name] / state.extra[CLIENTS]
        return replace(
            state,
            round=self.round,
            models={GLOBAL: in_own_types(new, state.model)},
            slots={**state.slots, MOVED: moved},
        )
