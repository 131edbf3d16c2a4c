"""How a client steps along its gradients: SGD, Adam or AdamW, clipped or not, with a learning rate that changes on the way.

All of it begins anew with every hop: moments, step numbers and velocities are never handed on, neither along a chain nor to the
next round. A client that is handed a model by another does not inherit a sense of direction from data it has never seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import nn

from fedgsp.core.errors import InputError
from fedgsp.core.params import OMIT_DEFAULT, require_choice, require_real, require_whole
from fedgsp.core.part import Part

Optim = Literal["sgd", "adam", "adamw"]
StepSchedule = Literal["steady", "linear", "cosine"]


@dataclass(frozen=True, kw_only=True)
class Stepping(Part):
    """The parameters of a step that every local rule has beside `lr`, `momentum` and `weight_decay`.

    Args:
        optim: "sgd", "adam" or "adamw". `weight_decay` is added to the gradients; for adamw it shrinks weights instead.
        beta1: Adam's mean of gradients, from 0 up to 1.
        beta2: Adam's mean of squares, from 0 up to 1.
        eps: What Adam adds to the root of that mean.
        clip_norm: Gradients (with what the rule adds to them) longer than this, over all parameters, are cut to it; 0: none is.
        warmup_steps: The learning rate grows in equal parts over so many first steps of a hop.
        step_schedule: What it does afterwards, until the hop's last step: "steady", "linear" or "cosine" down to 0.

    Raises:
        InputError: If a parameter cannot be used.
    """

    optim: Optim = field(default="sgd", metadata=OMIT_DEFAULT)
    beta1: float = field(default=0.9, metadata=OMIT_DEFAULT)
    beta2: float = field(default=0.999, metadata=OMIT_DEFAULT)
    eps: float = field(default=1e-8, metadata=OMIT_DEFAULT)
    clip_norm: float = field(default=0.0, metadata=OMIT_DEFAULT)
    warmup_steps: int = field(default=0, metadata=OMIT_DEFAULT)
    step_schedule: StepSchedule = field(default="steady", metadata=OMIT_DEFAULT)

    def __post_init__(self) -> None:
        where = "the clients' steps"
        require_choice(where, "optim", self.optim, get_args(Optim))
        require_choice(where, "step_schedule", self.step_schedule, get_args(StepSchedule))
        for name in ("beta1", "beta2"):
            if not 0 <= require_real(where, name, getattr(self, name)) < 1:
                raise InputError(f"{where}: {name} must be from 0 up to 1, not {getattr(self, name)}.")
        if require_real(where, "eps", self.eps) <= 0:
            raise InputError(f"{where}: eps must be positive, not {self.eps}.")
        if require_real(where, "clip_norm", self.clip_norm) < 0:
            raise InputError(f"{where}: clip_norm must not be negative, not {self.clip_norm}.")
        require_whole(where, "warmup_steps", self.warmup_steps, 0)

    @property
    def scheduled(self) -> bool:
        """Whether the learning rate changes within a hop."""
        return bool(self.warmup_steps) or self.step_schedule != "steady"

    def beyond_plain(self) -> str | None:
        """What makes a step another than w - lr grad, in words; None if nothing does (momentum and decay are not looked at)."""
        if self.optim != "sgd":
            return f"clients step by {self.optim}"
        if self.clip_norm:
            return "clients clip their gradients"
        return "the learning rate changes from step to step" if self.scheduled else None

    def require_plain(self, because: str) -> None:
        """Raise an InputError, with a reason, unless steps are w - lr grad."""
        why = self.beyond_plain()
        if why is not None:
            raise InputError(
                f"{because}, and {why}; leave optim at 'sgd', clip_norm at 0, warmup_steps at 0 and step_schedule at 'steady'."
            )

    def step_factor(self, step: int, steps: int) -> float:
        """What the round's learning rate is multiplied with in one step of a hop.

        Args:
            step: Which, from 0.
            steps: How many the hop makes.

        Returns:
            (step + 1) / warmup_steps while it warms up; afterwards 1, or from 1 down to almost 0 with the last step.
        """
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.step_schedule == "steady":
            return 1.0
        done = (step - self.warmup_steps) / max(1, steps - self.warmup_steps)
        return 1 - done if self.step_schedule == "linear" else (1 + math.cos(math.pi * done)) / 2

    def clip(self, model: nn.Module) -> None:
        """Cut the gradients of a model to `clip_norm`."""
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if not self.clip_norm or not gradients:
            return
        length = math.sqrt(sum(float(g.double().square().sum()) for g in gradients))
        if math.isfinite(length) and length > self.clip_norm:
            for gradient in gradients:
                gradient.mul_(self.clip_norm / length)

    def torch_optimizer(self, model: nn.Module, lr: float, momentum: float, weight_decay: float) -> torch.optim.Optimizer:
        """A fresh torch optimiser of what is trained."""
        trained = [p for p in model.parameters() if p.requires_grad]
        if self.optim == "sgd":
            return torch.optim.SGD(trained, lr=lr, momentum=momentum, weight_decay=weight_decay, foreach=True)
        made = torch.optim.Adam if self.optim == "adam" else torch.optim.AdamW
        return made(
            trained, lr=lr, betas=(self.beta1, self.beta2), eps=self.eps, weight_decay=weight_decay, foreach=True
        )  # fmt: skip
