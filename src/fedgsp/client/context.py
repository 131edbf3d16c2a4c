"""What a local rule's hooks are given, and what they may give back: one client's hop, and a term of its gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from fedgsp.core.state import MEAN_SAMPLES
from fedgsp.core.tensors import FULL, Tensors, Wire, wire_bytes
from fedgsp.fast import Step
from fedgsp.models.split import FEATURES, BatchOutputs, Level, declared
from fedgsp.models.state import load_tensors
from fedgsp.models.task import Task


@dataclass(repr=False)
class LocalContext:
    """One client's hop: what the hooks of a local rule may look at and keep notes in.

    Attributes:
        model: What is trained; in `begin` it holds what the client was handed.
        task: The loss and the metrics, each a value a sample.
        round: The round, 1 = the first.
        client: Whose hop it is.
        number: How often the client has trained in this chain before (0: never).
        lr: This round's learning rate, after the schedule.
        device: Where model and batches are.
        global_model: The model that the chain began with; read it by `fetch_global`, which counts the download.
        shared: Tensors that the server sent along.
        first: Whether the client was handed `global_model` itself.
        batches: Walks the client's own training samples in stored order.
        fused: The model's compiled twin for forward passes, if it has one.
        memo: The rule's own notes, empty at the start of every hop.
        frozen: Weights of models to hold the trained one against, by names of the rule's own; to be put there in `begin`.
        extra_down: Bytes sent to the client beside model and `shared`.
        state: What the client keeps between hops (see `SGD.initial_client_state`); the new one is what is there after `finish`.
        sent: What goes up beside the model (see `SGD.upload_spec`); to be put there in `finish`.
        steps: The steps made, in `finish`.
        samples: How many training samples the client has.
        wire: What models are on their way.
        untrained: Draws initial weights anew, for this client always the same.
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
    first: bool = True
    batches: Callable[[], Iterator[tuple[torch.Tensor, torch.Tensor]]] = lambda: iter(())
    fused: Callable[[torch.Tensor], torch.Tensor] | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    frozen: dict[str, Tensors] = field(default_factory=dict)
    extra_down: int = 0
    state: Tensors = field(default_factory=dict)
    sent: Tensors = field(default_factory=dict)
    steps: int = 0
    samples: int = 0
    wire: Wire = FULL
    untrained: Callable[[], Tensors] = dict
    _frozen_models: dict[str, nn.Module] = field(default_factory=dict)

    def __repr__(self) -> str:
        model = type(self.model).__name__
        return f"LocalContext(round {self.round}, client {self.client}, lr {self.lr:g}, {model}, {self.samples} samples)"

    def fetch_global(self, prefix: str = "") -> Tensors:
        """The round's model, downloaded beside the handed one; for a chain's first client, who was handed it, nothing is sent.

        Args:
            prefix: Only tensors whose names begin so.

        Returns:
            The tensors by name, which are not to be changed.
        """
        wanted = {name: tensor for name, tensor in self.global_model.items() if name.startswith(prefix)}
        if not self.first:
            self.extra_down += wire_bytes(wanted, self.wire)
        return wanted

    def weight(self) -> float:
        """What the client counts: 1, or its samples over a client's in the mean where the server sent that along."""
        mean = self.shared.get(MEAN_SAMPLES)
        return 1.0 if mean is None else self.samples / float(mean)

    def forward(self, level: Level, x: torch.Tensor) -> BatchOutputs:
        """One batch through the model and those that are frozen, by torch; the kernels give the same up to rounding.

        Args:
            level: What is looked at: "logits" or "features".
            x: The batch.

        Returns:
            Outputs and features of the model, and what the frozen models make of the same samples.
        """
        if level != "features":
            with torch.no_grad():
                frozen = {name: self.frozen_model(level, name)(x) for name in self.frozen}
            return BatchOutputs(self.model(x), None, frozen)
        parts = declared(self.model)
        x = parts.prepare(x)
        features = parts.features(x)
        with torch.no_grad():
            frozen = {name: self.frozen_model(level, name)(x) for name in self.frozen}
        return BatchOutputs(
            parts.classifier(parts.between(features, **frozen) if parts.between else features), features, frozen
        )

    def frozen_model(self, level: Level, name: str) -> nn.Module:
        """The frozen model of this name in evaluation mode (its features, where those are looked at), made when first used."""
        if name not in self._frozen_models:
            prefix = FEATURES if level == "features" else ""
            module = copy.deepcopy(declared(self.model).features if prefix else self.model).eval().requires_grad_(False)
            load_tensors(module, {n.removeprefix(prefix): t for n, t in self.frozen[name].items() if n.startswith(prefix)})
            self._frozen_models[name] = module
        return self._frozen_models[name]


@dataclass(frozen=True)
class GradientTerm:
    """A term mu (w - reference) + drift of every gradient.

    Attributes:
        mu: How strong the pull is.
        reference: Where it pulls to, by parameter; the same for a whole hop.
        drift: A constant, by parameter; None for none.
    """

    mu: float
    reference: Tensors
    drift: Tensors | None = None

    def step(self, lr: float, decay: float) -> Step:
        """SGD steps with this term, as the kernels take it: as much as w shrinks, and a constant."""
        if self.drift is None:
            return Step(lr, decay, self.mu, self.mu, self.reference)
        if not self.mu:
            return Step(lr, decay, 0.0, -1.0, self.drift)
        return Step(lr, decay, self.mu, self.mu, {n: t - self.drift[n] / self.mu for n, t in self.reference.items()})

    def add_to(self, model: nn.Module) -> None:
        """The same for gradients that torch has made."""
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.grad is None:
                    continue
                if self.mu:
                    parameter.grad.add_(parameter - self.reference[name], alpha=self.mu)
                if self.drift is not None:
                    parameter.grad.add_(self.drift[name])
