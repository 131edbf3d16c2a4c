"""Local rules: what a client does with the model it is handed. All are hooks into the one loop of `train.py`.

A rule is a frozen dataclass. `SGD` is the plain one and the base of the others: a subclass adds its parameters and overrides
the hooks it needs (a loss term, a gradient term, tensors of its own), never the loop. What is said by `term` and `proximal`
is done by the compiled kernels as well; `objective`, `adjust` and `optimizer` are for whatever these cannot say.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn

from fedgsp.client.schedule import Schedule, Steady
from fedgsp.core.errors import InputError
from fedgsp.core.fields import LATER
from fedgsp.core.state import MEAN_SAMPLES, Yields
from fedgsp.core.tensors import Tensors
from fedgsp.core.wire import FULL, Wire, wire_bytes
from fedgsp.fast import Obstacles, Step
from fedgsp.models.split import FEATURES, Level, Seen, declared
from fedgsp.models.state import load_tensors
from fedgsp.models.task import Task, classification


@dataclass
class Visit:
    """One client's turn with the model: what the hooks of a rule may look at and keep notes in.

    `model` is being trained and already holds what was handed over. `global_model` is the round's model under the name the
    chain started from (read it by `fetch_global`, which counts the download), `first` whether it is what this client was
    handed, `shared` what the server sent along, `batches` walks the client's own samples in stored order, `fused` is the
    model's compiled twin, if it has one. `memo` is the rule's own, empty at the start of every visit; `extra_down` the bytes
    sent to the client beside model and `shared`. `frozen` holds the weights of models that the rule holds the trained one
    against, under names of its own (see `SGD.looks_at`), to be put there in `begin`.
    `state` is what the client keeps between visits (see `SGD.keeps`): a rule that has such puts the new one there by the end of
    `finish`. `sent` is what it sends up beside the model, to be put there in `finish` as well. `steps` counts the steps made,
    `samples` are the client's own, `wire` says what models are on their way. `untrained` draws initial weights anew, for this
    client always the same.
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
    _still: dict[str, nn.Module] = field(default_factory=dict)

    def fetch_global(self, prefix: str = "") -> Tensors:
        """The round's global model, or its tensors whose names begin with `prefix`, downloaded beside the handed one.

        The first client of a chain was handed just this, so for it nothing is sent twice.
        """
        wanted = {name: tensor for name, tensor in self.global_model.items() if name.startswith(prefix)}
        if not self.first:
            self.extra_down += wire_bytes(wanted, self.wire)
        return wanted

    def weighs(self) -> float:
        """What the client counts: 1, or its samples over a client's in the mean where the server sent that along."""
        mean = self.shared.get(MEAN_SAMPLES)
        return 1.0 if mean is None else self.samples / float(mean)

    def see(self, level: Level, x: torch.Tensor) -> Seen:
        """One batch through the model and those that are frozen, by torch; the kernels give the same up to rounding."""
        if level != "features":
            with torch.no_grad():
                frozen = {name: self.still(level, name)(x) for name in self.frozen}
            return Seen(self.model(x), None, frozen)
        parts = declared(self.model)
        x = parts.prepare(x)
        features = parts.features(x)
        with torch.no_grad():
            frozen = {name: self.still(level, name)(x) for name in self.frozen}
        return Seen(parts.classifier(parts.between(features, **frozen) if parts.between else features), features, frozen)

    def still(self, level: Level, name: str) -> nn.Module:
        """The frozen model of this name in evaluation mode (its features, where those are looked at), made when first used."""
        if name not in self._still:
            prefix = FEATURES if level == "features" else ""
            module = copy.deepcopy(declared(self.model).features if prefix else self.model).eval().requires_grad_(False)
            load_tensors(module, {n.removeprefix(prefix): t for n, t in self.frozen[name].items() if n.startswith(prefix)})
            self._still[name] = module
        return self._still[name]


@dataclass(frozen=True)
class Pull:
    """A term mu (w - reference) + drift of every gradient: both by name and the same for a whole visit, drift for none."""

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


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Mini-batch SGD on the client's own samples (Algorithm 1, line 9); optimiser state never outlives a visit.

    Defaults are the paper's: learning rate 0.01, batches of 5, one epoch, no momentum, no weight decay, no decay of the
    learning rate. The last, partial batch is kept and averaged over its real size; `drop_last` leaves it out (unless it is the
    client's only one), `merge_last` adds a last batch of one sample to the one before it (None: where the model has a batch
    norm, which learns nothing from one sample). With `report_accuracy` the client also says how well the model it hands on does
    on its own training samples, at the cost of a forward pass over them; with `report_steps` how far it could go (`reach`).
    """

    lr: float = 0.01
    batch_size: int = 5
    epochs: int = 1
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: Schedule = field(default_factory=Steady)
    report_accuracy: bool = False
    report_steps: bool = False
    drop_last: bool = field(default=False, metadata=LATER)
    merge_last: bool | None = None

    half: ClassVar[str] = ""
    """The server rule, by its kind, that this rule is one half of and makes no sense without; most rules need none."""
    hands_on: ClassVar[bool] = True
    """Whether the model itself is handed to the client and on from it; if not, only what is sent beside it is traffic."""
    yields: ClassVar[Yields] = "one"
    """What is evaluated: one model for all, or one that every client first makes its own ("personalised")."""

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

    def reports(self) -> frozenset[str]:
        """Metrics that every hop sends up for the server to use, 4 bytes each."""
        said = {"accuracy": self.report_accuracy, "steps": self.report_steps}
        return frozenset(name for name, wanted in said.items() if wanted)

    def keeps(self, model: nn.Module) -> Tensors:
        """What a client keeps between visits, as it is before its first one, when it is handed `model`; most rules: nothing."""
        return {}

    def sends(self, model: nn.Module) -> Tensors:
        """Tensors shaped like those that every hop sends up beside `model` (their values do not matter)."""
        return {}

    def fetches(self) -> bool:
        """Whether clients behind a chain's first one need the round's own model beside the handed one (`fetch_global`)."""
        return False

    def reach(self, steps: int, lr: float) -> float:
        """How far `steps` steps along a gradient of length 1 lead, in units of `lr`: without momentum their number."""
        velocity = distance = 0.0
        for _ in range(steps):
            velocity = self.momentum * velocity + 1.0
            distance += velocity
        return distance

    def equip(self, model: nn.Module, example: torch.Tensor) -> nn.Module:
        """Add what the rule trains beside the model (a fusion operator, say), for batches like `example` (1, ...)."""
        return model

    def pose(self, model: nn.Module, beside: Tensors) -> None:
        """Before an evaluation: `model` holds what is evaluated, `beside` what the server keeps for that purpose."""

    def personalise(self, visit: Visit, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Before one client is evaluated: make the model its own, by its training batches (for rules that yield such)."""

    def begin(self, visit: Visit) -> None:
        """Before the first batch: keep references in `visit.memo`, weights of frozen models in `visit.frozen`."""

    def looks_at(self) -> Level:
        """How deep the rule looks: `term` is only asked by rules that look at "logits" or "features", and gets just those."""
        return "loss"

    def term(self, visit: Visit, seen: Seen, y: torch.Tensor) -> torch.Tensor | None:
        """What is minimised beside the mean loss, as a function of what is `seen` of a batch and of nothing else that is
        trained. Said here rather than in `objective`, it needs no slow path. None: nothing, for this batch."""
        return None

    def objective(self, visit: Visit, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(what is minimised, the plain loss that is reported), both means over the batch."""
        level = self.looks_at()
        seen = visit.see(level, x)
        loss = visit.task.loss(seen.outputs, y).mean()
        term = None if level == "loss" else self.term(visit, seen, y)
        return loss if term is None else loss + term, loss

    def proximal(self, visit: Visit) -> Pull | None:
        """A term of every gradient that is constant or linear: said here rather than in `adjust`, it needs no slow path."""
        return None

    def adjust(self, visit: Visit) -> None:
        """Between backward and step: change the gradients in place."""

    def finish(self, visit: Visit) -> dict[str, float]:
        """After the last batch: metrics for the hop's report, beside the training loss."""
        steps = {"steps": self.reach(visit.steps, visit.lr)} if self.report_steps else {}
        return {**steps, **({"accuracy": own_accuracy(visit)} if self.report_accuracy else {})}

    def optimizer(self, model: nn.Module, lr: float) -> torch.optim.Optimizer:
        """A fresh optimiser for one visit."""
        trained = [p for p in model.parameters() if p.requires_grad]
        return torch.optim.SGD(trained, lr=lr, momentum=self.momentum, weight_decay=self.weight_decay, foreach=True)


def trained(model: nn.Module) -> Tensors:
    """The parameters that are trained, sharing the model's memory; one that has two names under both."""
    return {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}


def own_accuracy(visit: Visit) -> float:
    """The share of the client's own training samples that the model of the moment gets right (0 without samples)."""
    metric, forward = visit.task.metrics["accuracy"], visit.fused or visit.model
    visit.model.eval()
    right, seen = 0.0, 0
    with torch.inference_mode():
        for x, y in visit.batches():
            right, seen = right + float(metric(forward(x), y).sum()), seen + len(y)
    visit.model.train()
    return right / seen if seen else 0.0


def obstacles(rule: SGD, task: Task) -> Obstacles:
    """What keeps the fast path from making this rule's steps.

    It knows w <- w - lr (grad + decay w + mu (w - reference) + drift), for the gradient of the loss and of a `term`.
    """
    kind, level = type(rule), rule.looks_at()
    changed = [hook for hook in ("objective", "adjust", "optimizer") if getattr(kind, hook) is not getattr(SGD, hook)]
    if changed:
        return Obstacles(f"the local rule {kind.__name__} has a step of its own ('{changed[0]}')")
    if rule.momentum:
        return Obstacles("clients train with momentum")
    lazy = "every step changes every weight" if rule.weight_decay or kind.proximal is not SGD.proximal else None
    return Obstacles(
        None,
        None if task.loss is classification().loss else f"the task '{task.name}' has another loss than cross-entropy",
        f"the local rule {kind.__name__} looks at the model's {level}" if level != "loss" else lazy,
        level == "features",
    )
