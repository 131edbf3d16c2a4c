"""Local differential privacy: a client clips and noises its own update before it hands the model on.

    D = w - w_0, what the client made of the model that it was handed;   it hands on   w_0 + clip(D, C) + noise C N(0, 1)

What is protected is one client, all its samples, against everybody who sees what it hands on: the next client of the chain and
the server. Two updates of length C are at most 2 C apart, so every hop is a Gaussian mechanism of sensitivity 2 C; nothing is
gained by sampling, since who is asked is known. Tensors that are not trained are handed on as they came. It works with every
local rule that hands on a model and sends nothing beside it.

The noise follows from the run's seed, for studies. A site of a deployment draws it from a key of its own that never leaves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import nn

from fedgsp.core.clipping import clipped, normal_like
from fedgsp.core.errors import InputError
from fedgsp.core.params import require_real
from fedgsp.core.part import Part
from fedgsp.core.tensors import digest

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

MOST = 1e4


@dataclass(frozen=True)
class UpdateNoise(Part):
    """Every client clips its update and adds Gaussian noise to it before it hands the model on.

    Args:
        clip: The longest that a client's update may be.
        noise: The noise's deviation as a multiple of `clip`.
        delta: How often more may show.
        budget: The epsilon at which the run stops; None: it does not.
    """

    kind: ClassVar[str] = "update-noise"

    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5
    budget: float | None = None

    def __post_init__(self) -> None:
        for name in ("clip", "noise", "budget"):
            value = getattr(self, name)
            if value is not None and not 0 < require_real("update-noise", name, value) <= MOST:
                raise InputError(f"update-noise: {name} must be a number above 0 and at most {MOST:g}, not {value}.")
        if not 0 < require_real("update-noise", "delta", self.delta) < 1:
            raise InputError(f"update-noise: delta must be between 0 and 1, not {self.delta}.")

    def hide(self, model: nn.Module, handed: Tensors, generator: Callable[[str], np.random.Generator]) -> None:
        """Put what is handed on in place of what was trained.

        Args:
            model: What was trained.
            handed: All its tensors as they were before, by name.
            generator: The source of the noise, for a digest of what it hides.
        """
        with torch.no_grad():
            parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
            for name, tensor in model.state_dict().items():
                if name not in parameters and not any(tensor.data_ptr() == p.data_ptr() for p in parameters.values()):
                    tensor.copy_(handed[name])
            before = {name: handed[name].detach().cpu().double() for name in parameters}
            moved = {name: p.detach().cpu().double() - before[name] for name, p in parameters.items()}
            update, _ = clipped(moved, self.clip)
            noise = normal_like(update, generator(digest({**update, **{f"from {n}": t for n, t in before.items()}})))
            for name, parameter in parameters.items():
                parameter.copy_(before[name] + update[name] + noise[name] * (self.noise * self.clip))
