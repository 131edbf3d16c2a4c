"""The one training loop: a client's epochs of mini-batches on the model it was handed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.client.batching import Batching
from fedgsp.client.client_state import ClientStates
from fedgsp.client.context import GradientTerm, LocalContext
from fedgsp.client.rules import SGD
from fedgsp.core.chain import Hop, HopReport
from fedgsp.core.errors import Diverged
from fedgsp.core.orders import ordered
from fedgsp.core.randomness import own_randomness
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import FULL, Tensors, Wire, clone, total_bytes, wire_bytes
from fedgsp.data.batches import gather
from fedgsp.data.federated import FederatedData
from fedgsp.fast import PLAIN, FusedNet, Kernel, Step, lazy_linears
from fedgsp.models.state import load_tensors, model_tensors
from fedgsp.models.task import Task

__all__ = ["Trainer", "load_tensors", "model_tensors"]

GATHER_ROWS = 4096
"""Samples gathered at a time: one gather for almost every client, bounded memory for the largest."""

EVAL_ROWS = 256
"""Samples of one forward pass when a rule looks at the client's own data."""
METRIC_BYTES = 4
"""What a metric that the server uses costs on the way up."""


Draw = Callable[[int], int]
"""From a place among some samples to what random transforms are seeded with there."""


@dataclass
class Trainer:
    """Everything a client's turn needs that is the same for all of them: one model, one rule, the data.

    `fresh` draws initial weights with a seed.
    """

    model: nn.Module
    rule: SGD
    task: Task
    data: FederatedData
    device: torch.device
    seeds: Seeds
    kernel: Kernel = PLAIN
    wire: Wire = FULL
    fresh: Callable[[int], Tensors] = lambda seed: {}
    fused: FusedNet | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        example, _ = gather(self.data, np.zeros(1, dtype=np.int64))
        self._batching = Batching.of(self.rule, self.model, example)
        if self.kernel.compiled:
            largest = self._batching.largest(int(self.data.train.sizes.max(initial=1)))
            self.fused = self.kernel.fused(self.model, example, largest, halves=self.rule.looks_at() == "features")
        as_stored = self.data.augmentation is None
        self.reads_rows = as_stored and self.fused is not None and self.fused.reads(self.data.features, self.data.divisor)
        self._own = model_tensors(self.model)
        self._model_bytes = wire_bytes(self._own, self.wire)

    def load(self, tensors: Tensors) -> None:
        """Put a model's state in place of the one that is there."""
        if self.fused is None or tensors.keys() != self._own.keys():
            load_tensors(self.model, tensors)
        else:  # the kernels never move a parameter, so there is no need to look for them each time
            for name, own in self._own.items():
                own.copy_(tensors[name])

    def tensors(self) -> Tensors:
        """The model's state, sharing its memory."""
        return self._own if self.fused is not None else model_tensors(self.model)

    def train(
        self,
        round_: int,
        hop: Hop,
        global_model: Tensors,
        shared: Tensors,
        first: bool = True,
        client_states: ClientStates | None = None,
    ) -> HopReport:
        """Train the model in place on one client's samples; it must already hold what the client was handed.

        `first` says that this is `global_model` itself: the client is the first of its chain to train. The client's own state
        comes out of `client_states` and goes back into it, with what it sends up beside the model.
        """
        began = time.perf_counter()
        watched = self.rule.looks_at() != "loss"
        if self.fused is None or watched:  # the kernels draw nothing
            _seed_torch(self.seeds.torch(round_, hop.client, hop.repeat), self.device)
        rule, rows = self.rule, self.data.train[hop.client]
        lr = rule.lr * rule.schedule.factor(round_)
        ctx = LocalContext(
            self.model, self.task, round_, hop.client, hop.repeat, lr, self.device, global_model, shared,
            first, lambda: self._batches(rows, EVAL_ROWS), self.fused, samples=len(rows), wire=self.wire,
            untrained=lambda: self.fresh(self.seeds.untrained(hop.client)),
        )  # fmt: skip
        client_states = ClientStates() if client_states is None else client_states
        ctx.state = client_states.load(rule, hop.client, self.model, self.device)
        model_bytes = self._model_bytes if rule.hands_on else 0
        bytes_down = model_bytes + total_bytes(shared)
        if self.fused is None or watched:
            self.model.train()
        handed = clone(model_tensors(self.model)) if rule.privacy is not None else {}
        rule.begin(ctx)
        pull = rule.gradient_term(ctx)
        if self.fused is not None:
            make = self._watched_steps if watched else self._fused_steps
            self.fused.begin(pull.step(lr, rule.weight_decay) if pull else Step(lr, rule.weight_decay))
            steps, seen, summed = make(self.fused, ctx, rows)
            sound: bool | None = self.fused.end()
        else:
            with lazy_linears(self.model, self.kernel.layers, lr):
                steps, seen, summed = self._plain_steps(ctx, rows, pull)
            sound = None
        ctx.steps = steps
        metrics = {"loss": summed / seen if seen else 0.0, **rule.finish(ctx)}
        what = "loss" if not math.isfinite(metrics["loss"]) else None if sound or _finite(self.model) else "model"
        if what is not None:
            raise Diverged(
                f"training diverged at client '{self.data.clients[hop.client]}' in round {round_}: its {what} is not finite "
                f"any more; try a smaller learning rate than {lr:g}."
            )
        if rule.privacy is not None:
            rule.privacy.hide(self.model, handed, partial(self.seeds.client_noise, round_, hop.client, hop.repeat))
        client_states.save(ctx)
        bytes_up = model_bytes + total_bytes(ctx.sent) + METRIC_BYTES * len(rule.reports())
        return HopReport(
            hop.client, hop.index, hop.repeat, len(rows), steps, bytes_down + ctx.extra_down, bytes_up,
            time.perf_counter() - began, metrics,
        )  # fmt: skip

    def _plain_steps(self, ctx: LocalContext, rows: NDArray[np.int64], pull: GradientTerm | None) -> tuple[int, int, float]:
        """(steps, samples seen, sum of their losses) of ordinary PyTorch steps."""
        rule, steps, seen, summed = self.rule, 0, 0, 0.0
        ours = type(rule).optimizer is SGD.optimizer and rule.optim == "sgd" and not rule.momentum
        optimizer = PlainSteps(self.model, ctx.lr, rule.weight_decay) if ours else rule.optimizer(self.model, ctx.lr)
        planned = rule.epochs_in(ctx.round) * int(self._batching.steps(np.array([len(rows)]))[0])
        for part, size, draw in self._parts(ctx, rows):
            for x, y in self._batches(part, size, draw):
                optimizer.zero_grad(set_to_none=True)
                objective, loss = rule.objective(ctx, x, y)
                objective.backward()  # type: ignore[no-untyped-call]
                rule.adjust(ctx)
                if pull is not None:
                    pull.add_to(self.model)
                rule.clip_gradients(self.model)
                if rule.by_step:
                    for group in optimizer.param_groups:
                        group["lr"] = ctx.lr * rule.step_factor(steps, planned)
                optimizer.step()
                steps, seen, summed = steps + 1, seen + len(y), summed + loss.item() * len(y)
        return steps, seen, summed

    def _fused_steps(self, net: FusedNet, ctx: LocalContext, rows: NDArray[np.int64]) -> tuple[int, int, float]:
        """The same by the compiled kernels: one call for an epoch, or for all batches gathered at once."""
        steps, seen, summed = 0, 0, 0.0
        for part, size, draw in self._parts(ctx, rows):
            if self.reads_rows:
                summed += net.train_rows(part, self.data.labels[part].astype(np.int64), size)
                steps, seen = steps + -(-len(part) // size), seen + len(part)
                continue
            for x, y in self._batches(part, _block(size), draw):
                summed += net.train(x, y, size)
                steps, seen = steps + -(-len(y) // size), seen + len(y)
        return steps, seen, summed

    def _watched_steps(self, net: FusedNet, ctx: LocalContext, rows: NDArray[np.int64]) -> tuple[int, int, float]:
        """The same for a rule that looks at outputs or features: batch by batch, what is frozen for all gathered at once."""
        rule, steps, seen, summed = self.rule, 0, 0, 0.0
        term = partial(rule.loss_term, ctx)
        self.model.zero_grad(set_to_none=True)
        for some, size, draw in self._parts(ctx, rows):
            for ready, y in self._ready(net, some, size, draw):
                frozen = {name: net.frozen(weights, ready) for name, weights in ctx.frozen.items()}
                for at in range(0, len(y), size):
                    part = slice(at, at + size)
                    labels, still = y[part], {name: outputs[part] for name, outputs in frozen.items()}
                    summed += net.step(ready[part], labels, still, term)
                    steps, seen = steps + 1, seen + len(labels)
        if any(p.grad is not None for p in self.model.parameters()):
            raise RuntimeError(f"{type(rule).__name__}.loss_term uses more than it sees of a batch: say it in 'objective'")
        return steps, seen, summed

    def _ready(
        self, net: FusedNet, rows: NDArray[np.int64], size: int, draw: Draw
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:  # fmt: skip
        """Samples as the kernels take them, and their labels, many batches of `size` at a time."""
        if not self.reads_rows:
            yield from ((net.ready(x), y.contiguous()) for x, y in self._batches(rows, _block(size), draw))
            return
        for begin in range(0, len(rows), _block(size)):
            part = rows[begin : begin + _block(size)]
            yield net.read(part), torch.from_numpy(self.data.labels[part].astype(np.int64))

    def _parts(self, ctx: LocalContext, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int, Draw]]:
        """The client's rows in the order of each epoch, in parts that are cut into batches of one size each.

        With each part comes what random transforms of its samples are seeded with, by the place in it.
        """
        for epoch in range(self.rule.epochs_in(ctx.round)):
            order = ordered(self.seeds.batches_key(ctx.round, ctx.client, ctx.number, epoch), rows)
            for begin, end, size in self._batching.cut(len(order)):
                yield order[begin:end], size, partial(self._draw, ctx, epoch, begin)

    def _draw(self, ctx: LocalContext, epoch: int, begin: int, place: int) -> int:
        return self.seeds.transform(ctx.round, ctx.client, ctx.number, epoch, begin + place)

    def personalise(self, round_: int, client: int, client_states: ClientStates | None = None) -> None:
        """Let a client make the model its own before it is evaluated, on its training samples only; without any it cannot.

        What it keeps between hops comes out of `client_states`.
        """
        rows, rng = self.data.train[client], self.seeds.personal(round_, client)
        if len(rows) == 0:
            return
        _seed_torch(int(rng.integers(2**63)), self.device)
        ctx = LocalContext(self.model, self.task, round_, client, 0, self.rule.lr, self.device, {}, {})
        ctx.state = (client_states or ClientStates()).load(self.rule, client, self.model, self.device)
        self.model.train()
        self.rule.personalise(ctx, self._for_ever(rows, rng))

    def _for_ever(self, rows: NDArray[np.int64], rng: np.random.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            yield from self._batches(rng.permutation(rows), self.rule.batch_size)

    def _batches(
        self, rows: NDArray[np.int64], size: int, draw: Draw | None = None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Samples as they are stored; with `draw`, as they are made anew to be trained on."""
        anew = self.data.augmentation if draw is not None else None
        for begin in range(0, len(rows), _block(size)):
            block = rows[begin : begin + _block(size)]
            x, y = gather(self.data, block)
            if anew is not None and draw is not None:
                with own_randomness(draw(begin)):
                    x = anew(x, block)
            x, y = x.to(self.device), y.to(self.device)
            for at in range(0, len(y), size):
                yield x[at : at + size], y[at : at + size]


class PlainSteps:
    """What `torch.optim.SGD` does without momentum, to the bit; it comes without a compiler that takes a second to import."""

    def __init__(self, model: nn.Module, lr: float, weight_decay: float) -> None:
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self.param_groups: list[dict[str, float]] = [{"lr": lr}]
        self._decay = weight_decay

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for parameter in self._trained:
            parameter.grad = None

    def step(self) -> None:
        """w <- w - lr (grad + decay w)."""
        lr = self.param_groups[0]["lr"]
        with torch.no_grad():
            for parameter in self._trained:
                if parameter.grad is not None:
                    grad = parameter.grad.add(parameter, alpha=self._decay) if self._decay else parameter.grad
                    parameter.add_(grad, alpha=-lr)


def _block(size: int) -> int:
    """Samples gathered at once: whole batches of this size."""
    return max(size, GATHER_ROWS // size * size)


def _seed_torch(seed: int, device: torch.device) -> None:
    """Seed what a client's training draws from (dropout and the like).

    Not `torch.manual_seed`: without a GPU each call queues itself, with a traceback, for a CUDA that never comes; that took
    longer than a small client's training, and memory that was never given back.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def _finite(model: nn.Module) -> bool:
    """Whether all that is trained is finite: the sum of a tensor is not if one of its values is not."""
    with torch.no_grad():
        return all(bool(parameter.sum().isfinite()) for parameter in model.parameters() if parameter.requires_grad)
