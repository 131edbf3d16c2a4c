"""A local rule of your own: what a client does with the model that it is handed.

Its fields are what a config file spells and `fedgsp.tune` tries. All hooks: docs/python.md.
"""

from dataclasses import dataclass, replace

import torch

import fedgsp
from fedgsp.client import SGD, LocalContext


@dataclass(frozen=True, kw_only=True)
class Clipped(SGD):
    """SGD whose gradients are cut to a norm of `most`."""

    most: float = 1.0

    def adjust(self, ctx: LocalContext) -> None:
        """Called in every step, between the backward pass and the step."""
        torch.nn.utils.clip_grad_norm_(ctx.model.parameters(), self.most)


METHOD = replace(fedgsp.named("fedgsp"), local=Clipped(lr=0.05, batch_size=10), name="@NAME@")
"""For `fedgsp compare fedavg rule:METHOD`."""
