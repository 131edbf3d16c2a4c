"""Local rules: what a client does with the model it is handed. All are hooks into the one loop of `train.py`.

A rule is a frozen dataclass. `SGD` is the plain one and the base of the others: a subclass adds its parameters and overrides
the hooks it needs (a loss term, a gradient term, tensors of its own), never the loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from fedgsp.client.schedule import Schedule, Steady
from fedgsp.core.errors import InputError
from fedgsp.core.tensors import Tensors
from fedgsp.models.task import Task


@dataclass
class Visit:
    """One client's turn with the model: what the hooks of a rule may look at and keep notes in.

    `model` is being trained and already holds what was handed over. `global_model` is the round's model under the name the
    chain started from, `shared` what the server sent along. `memo` is the rule's own, empty at the start of every visit.
    """

    model: nn.Module
    task: Task
    round: int
    client: int
    number: int
    lr: float
    device: torch.device
    global_model: Tensors
    shared: Tensors
    memo: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Mini-batch SGD on the client's own samples (Algorithm 1, line 9); optimiser state never outlives a visit.

    Defaults are the paper's: learning rate 0.01, batches of 5, one epoch, no momentum, no weight decay, no decay of the
    learning rate. The last, partial batch is kept and averaged over its real size.
    """

    lr: float = 0.01
    batch_size: int = 5
    epochs: int = 1
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: Schedule = field(default_factory=Steady)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise InputError(f"the learning rate must be a positive number, not {self.lr}.")
        if self.batch_size < 1:
            raise InputError(f"the batch size must be at least 1, not {self.batch_size}.")
        if self.epochs < 1:
            raise InputError(f"local epochs must be at least 1, not {self.epochs}.")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum must be from 0 up to 1, not {self.momentum}.")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"weight decay must not be negative, not {self.weight_decay}.")

    def equip(self, model: nn.Module) -> nn.Module:
        """Add what the rule trains beside the model (a fusion operator, say); called once, before the first round."""
        return model

    def begin(self, visit: Visit) -> None:
        """Before the first batch: keep references in `visit.memo`."""

    def objective(self, visit: Visit, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(what is minimised, the plain loss that is reported), both means over the batch."""
        loss = visit.task.loss(visit.model(x), y).mean()
        return loss, loss

    def adjust(self, visit: Visit) -> None:
        """Between backward and step: change the gradients in place."""

    def finish(self, visit: Visit) -> dict[str, float]:
        """After the last batch: metrics for the hop's report, beside the training loss."""
        return {}

    def optimizer(self, model: nn.Module, lr: float) -> torch.optim.Optimizer:
        """A fresh optimiser for one visit."""
        trained = [p for p in model.parameters() if p.requires_grad]
        return torch.optim.SGD(trained, lr=lr, momentum=self.momentum, weight_decay=self.weight_decay, foreach=True)
