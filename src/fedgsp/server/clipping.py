"""Bounded influence: the norm-clipped mean (Sun, Kairouz, Suresh, McMahan, "Can you really backdoor federated learning?", 2019)
and centred clipping (Karimireddy, He, Jaggi, ICML 2021).

    clip(x, t) = x min(1, t / ||x||)                D_i = w_i - w, the update of chain i; a_i its weight, sum a_i = 1
    norm-clipped mean   w <- w + sum_i a_i clip(D_i, t)
    centred clipping    v = the last round's v (0 at first);  v <- v + sum_i a_i clip(D_i - v, t), `steps` times;  w <- w + v

t is `norm`, or the median of the round's own lengths where `norm` is 0: half of the updates are then left as they are.
Lengths are over the trained tensors; what nobody trains becomes its coordinate-wise median. Every chain counts the same, or
by its samples.

Breakdown point: no chain moves the model by more than a_i t a round (centred clipping: `steps` times that), however far it
is. A minority bends the direction but cannot break the model. The median length is an honest one while honest chains are more
than half. Centred clipping remembers the direction of the rounds before, which helps against attacks that hide in the noise.
Cost: all models of a round are kept on disk and read twice (steps + 1 times). Traffic as FedAvg; centred clipping keeps one
model more on the server. Tuning: `norm=0` needs none; a fixed norm should be near the median length of honest updates late in
training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from fedgsp.core.errors import Diverged, InputError
from fedgsp.core.state import GLOBAL, ServerState
from fedgsp.core.sums import in_own_types
from fedgsp.server.combine import Combine, Models
from fedgsp.server.median import middle

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

CENTER = "center"


@dataclass(frozen=True)
class ClippedMean(Combine):
    """The mean of updates that are cut to a common length.

    Args:
        norm: The longest an update may be; 0 takes the median length of the round's updates.
        weights: What a chain counts: its samples ("samples") or the same as any ("uniform").
    """

    kind: ClassVar[str] = "clipped-mean"

    norm: float = 0.0
    weights: Literal["samples", "uniform"] = "uniform"

    def __post_init__(self) -> None:
        if not self.norm >= 0:
            raise InputError(f"clipping: norm must be at least 0 (0: the median of the round), not {self.norm}.")
        if self.weights not in ("uniform", "samples"):
            raise InputError(f"clipping: weights must be 'uniform' or 'samples', not '{self.weights}'.")

    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        """The start model and the mean of the clipped updates."""
        return self.clipped(models, weights, models.start)

    def clipped(self, models: Models, weights: torch.Tensor, center: Tensors) -> Tensors:
        """`center` moved by the mean of the models' clipped distances from it; buffers become their median."""
        own = weights if self.weights == "samples" else torch.ones_like(weights)
        lengths = models.squared_distances(center).sqrt()
        bound = self.norm or float(lengths.median())
        if not bound < torch.inf:
            raise Diverged(
                "most chains of this round handed on a model that is not finite, so there is nothing to cut them to."
            )
        factors = torch.where(lengths > bound, bound / lengths, torch.ones_like(lengths)) * own / own.sum()
        usable = factors > 0  # what is infinitely far counts nothing, whatever is in it

        def moved(values: torch.Tensor, middle_of: torch.Tensor) -> torch.Tensor:
            return middle_of + factors[usable] @ (values[usable] - middle_of)

        made = {name: torch.empty(like.numel(), dtype=torch.float64) for name, like in models.start.items()}
        for name, part, values in models.blocks(list(models.start)):
            middle_of = center[name].reshape(-1)[part].double()
            made[name][part] = moved(values, middle_of) if name in models.trained else middle(values)
        return {name: flat.reshape(models.start[name].shape) for name, flat in made.items()}


@dataclass(frozen=True)
class CentredClipping(ClippedMean):
    """The mean of updates that are cut to a common distance from the last round's update.

    Args:
        norm: The farthest that an update may be from the center; 0 takes the median distance.
        weights: What a chain counts: its samples ("samples") or the same as any ("uniform").
        steps: How often the center is moved in a round, at least 1.
    """

    kind: ClassVar[str] = "centred-clipping"

    steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1:
            raise InputError(f"the server rule 'centred-clipping': steps must be at least 1, not {self.steps}.")

    def combine(self, models: Models, weights: torch.Tensor) -> Tensors:
        """The start model moved by the new center."""
        last = models.slots.get(CENTER)
        point = {name: t.double() + (last[name].double() if last and name in last else 0.0) for name, t in models.start.items()}
        for _ in range(self.steps):
            point = self.clipped(models, weights, point)
        return point

    def step(self, state: ServerState, combined: Tensors) -> ServerState:
        """Remember how far the model has moved."""
        trained = [name for name in state.model if state.trained is None or name in state.trained]
        center = {name: (combined[name] - state.model[name].double()).float() for name in trained}
        return replace(state, models={GLOBAL: in_own_types(combined, state.model)}, slots={**state.slots, CENTER: center})
