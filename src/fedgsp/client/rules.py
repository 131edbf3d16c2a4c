"""Local rules: what a client does with the model it is handed. All are hooks into the one loop of `train.py`.

A rule is a frozen dataclass. `SGD` is the plain one and the base of the others: a subclass adds its parameters and overrides
the hooks it needs (a loss term, a gradient term, tensors of its own), never the loop. What is said by `loss_term` and
`gradient_term` is done by the compiled kernels as well; `objective`, `adjust` and `optimizer` are for whatever these cannot
say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from fedgsp.client.schedule import LearningRateSchedule, Steady, check_pieces, piece_at
from fedgsp.client.stepping import Stepping
from fedgsp.client.update_noise import UpdateNoise
from fedgsp.core.errors import InputError
from fedgsp.core.params import OMIT_DEFAULT, require_whole
from fedgsp.core.part import Values
from fedgsp.core.state import Yields

if TYPE_CHECKING:
    from fedgsp.client.context import GradientTerm, LocalContext
    from fedgsp.core.tensors import Tensors
    from fedgsp.models.split import BatchOutputs, Level


@dataclass(frozen=True, kw_only=True)
class SGD(Stepping):
    """Mini-batch SGD on the client's own samples (Algorithm 1, line 9): the plain local rule, and the base of all others.

    A subclass is a frozen dataclass: it adds its parameters and overrides the hooks it needs. Optimiser state never outlives a
    hop. Defaults are the paper's. Adam, clipping and a learning rate by step are parameters too (`Stepping`).

    Args:
        lr: The learning rate.
        batch_size: Samples of a step; the last batch of an epoch may be smaller and is averaged over its real size.
        epochs: Passes over the client's samples.
        epochs_by_round: (round, epochs) in order of rounds: from that round on, so many epochs. `epochs` before the first.
        momentum: Of the client's steps, from 0 up to 1.
        weight_decay: Added to every gradient, times the weight.
        schedule: The learning rate by round.
        report_accuracy: Whether the client says how well the model it hands on does on its own training samples.
        report_steps: Whether it says how far it could go (`effective_steps`).
        drop_last: Leave a last, partial batch out, unless it is the only one.
        merge_last: Put a last batch of one sample into the one before; None: where the model has a batch norm.
        privacy: What a client does to its update before it hands the model on; None: nothing.

    Raises:
        InputError: If a parameter cannot be used.
    """

    kind: ClassVar[str] = "sgd"
    tuned_over: ClassVar[Mapping[str, Values]] = {"lr": (0.003, 0.01, 0.03, 0.1)}

    lr: float = 0.01
    batch_size: int = 5
    epochs: int = 1
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: LearningRateSchedule = field(default_factory=Steady)
    report_accuracy: bool = False
    report_steps: bool = False
    drop_last: bool = field(default=False, metadata=OMIT_DEFAULT)
    merge_last: bool | None = None
    privacy: UpdateNoise | None = None
    epochs_by_round: tuple[tuple[int, int], ...] = field(default=(), metadata=OMIT_DEFAULT)

    requires_server: ClassVar[str] = ""
    """The server rule, by its kind, that this rule is one half of and makes no sense without; most rules need none."""
    companion_server: ClassVar[str] = ""
    """The server rule that comes with it where only the local rule is named (`fedgsp+fusion`): the required one, or this."""
    hands_on: ClassVar[bool] = True
    """Whether the model itself is handed to the client and on from it; if not, only what is sent beside it is traffic."""
    yields: ClassVar[Yields] = "one"
    """What is evaluated: one model for all, or one that every client first makes its own ("personalised")."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise InputError(f"the learning rate must be a positive number, not {self.lr}.")
        if self.batch_size < 1:
            raise InputError(f"the batch size must be at least 1, not {self.batch_size}.")
        if self.epochs < 1:
            raise InputError(f"local epochs must be at least 1, not {self.epochs}.")
        check_pieces("the local rule", "epochs_by_round", self.epochs_by_round)
        for _, epochs in self.epochs_by_round:
            require_whole("the local rule", "epochs_by_round", epochs, at_least=1)
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum must be from 0 up to 1, not {self.momentum}.")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"weight decay must not be negative, not {self.weight_decay}.")
        if self.optim != "sgd" and self.momentum:
            raise InputError(f"momentum is for sgd; {self.optim} has beta1 in its place.")
        if self.optim != "sgd" and self.report_steps:
            raise InputError(f"how far {self.optim} goes does not follow from its steps, so report_steps needs sgd.")

    def epochs_in(self, round_: int) -> int:
        """Passes over the client's samples in round `round_` (from 1)."""
        return piece_at(self.epochs_by_round, round_, self.epochs)

    def reports(self) -> frozenset[str]:
        """Metrics that every hop sends up for the server to use, 4 bytes each."""
        said = {"accuracy": self.report_accuracy, "steps": self.report_steps}
        return frozenset(name for name, wanted in said.items() if wanted)

    def initial_client_state(self, model: nn.Module) -> Tensors:
        """What a client keeps between hops, as it is before its first one; most rules: nothing.

        Args:
            model: The model that the client is handed.

        Returns:
            Tensors by name; later ones, in `ctx.state`, must have the same names, shapes and types.
        """
        return {}

    def upload_spec(self, model: nn.Module) -> Tensors:
        """What every hop sends up beside the model.

        Args:
            model: The model that is trained.

        Returns:
            Tensors by name, shaped like what `finish` puts into `ctx.sent`; their values do not matter.
        """
        return {}

    def fetches(self) -> bool:
        """Whether clients behind a chain's first one need the round's own model beside the handed one (`fetch_global`)."""
        return False

    def effective_steps(self, steps: int, lr: float) -> float:
        """How far steps along a gradient of length 1 lead, in units of the learning rate: without momentum their number.

        Args:
            steps: How many steps.
            lr: The learning rate.

        Returns:
            FedNova's a_k.
        """
        velocity = distance = 0.0
        for step in range(steps):
            velocity = self.momentum * velocity + 1.0
            distance += velocity * self.step_factor(step, steps)
        return distance

    def wrap_model(self, model: nn.Module, example: torch.Tensor) -> nn.Module:
        """Add what the rule trains beside the model, such as a fusion operator.

        Args:
            model: A new model.
            example: One sample (1, ...), as the model takes it.

        Returns:
            The module that is trained: the model itself, or one around it.

        Raises:
            InputError: If the rule cannot be used with such a model.
        """
        return model

    def before_evaluate(self, model: nn.Module, beside: Tensors) -> None:
        """Called before a model is evaluated.

        Args:
            model: Holds what is evaluated.
            beside: What the server keeps for that purpose.
        """

    def personalise(self, ctx: LocalContext, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Called before one client is evaluated, for rules that yield personalised models: make the model its own.

        Args:
            ctx: The client; `ctx.model` is what it is evaluated on.
            batches: Its training batches, without end.
        """

    def begin(self, ctx: LocalContext) -> None:
        """Called before the first batch.

        Args:
            ctx: The hop: keep references in `ctx.memo`, weights of frozen models in `ctx.frozen`.
        """

    def looks_at(self) -> Level:
        """How deep the rule looks: `loss_term` is only called for "logits" and "features", and gets just those."""
        return "loss"

    def loss_term(self, ctx: LocalContext, seen: BatchOutputs, y: torch.Tensor) -> torch.Tensor | None:
        """What is minimised beside the mean loss. Said here rather than in `objective`, it needs no slow path.

        Args:
            ctx: The hop.
            seen: What is seen of a batch; the term may depend on nothing else that is trained.
            y: The batch's labels.

        Returns:
            A tensor of one number, or None for nothing.
        """
        return None

    def objective(self, ctx: LocalContext, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of one batch.

        Args:
            ctx: The hop.
            x: The samples.
            y: Their labels.

        Returns:
            (what is minimised, the plain loss that is reported), both means over the batch.
        """
        level = self.looks_at()
        seen = ctx.forward(level, x)
        loss = ctx.task.loss(seen.outputs, y).mean()
        term = None if level == "loss" else self.loss_term(ctx, seen, y)
        return loss if term is None else loss + term, loss

    def gradient_term(self, ctx: LocalContext) -> GradientTerm | None:
        """A term of every gradient that is constant or linear: said here rather than in `adjust`, it needs no slow path.

        Args:
            ctx: The hop, after `begin`.

        Returns:
            The term, or None for none.
        """
        return None

    def adjust(self, ctx: LocalContext) -> None:
        """Called between backward and step: change the gradients in place.

        Args:
            ctx: The hop; gradients are those of `ctx.model`'s parameters.
        """

    def finish(self, ctx: LocalContext) -> dict[str, float]:
        """Called after the last batch: leave the client's new state in `ctx.state`, and what it sends in `ctx.sent`.

        Args:
            ctx: The hop.

        Returns:
            Metrics for the hop's report, beside the training loss.
        """
        steps = {"steps": self.effective_steps(ctx.steps, ctx.lr)} if self.report_steps else {}
        return {**steps, **({"accuracy": own_accuracy(ctx)} if self.report_accuracy else {})}

    def optimizer(self, model: nn.Module, lr: float) -> torch.optim.Optimizer:
        """A fresh optimiser for one hop.

        Args:
            model: The model that is trained.
            lr: This round's learning rate.

        Returns:
            Any torch optimiser; another than plain SGD needs the slow path.
        """
        return self.torch_optimizer(model, lr, self.momentum, self.weight_decay)


def trained(model: nn.Module) -> Tensors:
    """The parameters that are trained, sharing the model's memory; one that has two names under both.

    Args:
        model: The model.
    """
    return {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}


def own_accuracy(ctx: LocalContext) -> float:
    """The share of the client's own training samples that the model of the moment gets right (0 without samples)."""
    metric, forward = ctx.task.metrics["accuracy"], ctx.fused or ctx.model
    ctx.model.eval()
    right, seen = 0.0, 0
    with torch.inference_mode():
        for x, y in ctx.batches():
            right, seen = right + float(metric(forward(x), y).sum()), seen + len(y)
    ctx.model.train()
    return right / seen if seen else 0.0
