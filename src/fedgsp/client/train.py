"""The one training loop: a client's epochs of mini-batches on the model it was handed."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.client.keep import Bag
from fedgsp.client.rules import SGD, Visit
from fedgsp.core.chain import HopReport, Stop
from fedgsp.core.errors import Diverged
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, total_bytes
from fedgsp.data.batches import gather
from fedgsp.data.federated import FederatedData
from fedgsp.models.state import load_tensors, model_tensors
from fedgsp.models.task import Task

__all__ = ["Trainer", "load_tensors", "model_tensors"]

GATHER_ROWS = 4096
"""Samples gathered at a time: one gather for almost every client, bounded memory for the largest."""

EVAL_ROWS = 256
"""Samples of one forward pass when a rule looks at the client's own data."""
METRIC_BYTES = 4
"""What a metric that the server uses costs on the way up."""


@dataclass
class Trainer:
    """Everything a client's turn needs that is the same for all of them: one model, one rule, the data."""

    model: nn.Module
    rule: SGD
    task: Task
    data: FederatedData
    device: torch.device
    seeds: Seeds

    def visit(
        self, round_: int, stop: Stop, global_model: Tensors, shared: Tensors, first: bool = True, bag: Bag | None = None
    ) -> HopReport:
        """Train the model in place on one client's samples; it must already hold what the client was handed.

        `first` says that this is `global_model` itself: the client is the first of its chain to train. The client's own state
        comes out of `bag` and goes back into it, with what it sends up beside the model.
        """
        began = time.perf_counter()
        torch.manual_seed(self.seeds.torch(round_, stop.client, stop.visit))
        rule, rows = self.rule, self.data.train[stop.client]
        lr = rule.lr * rule.schedule.factor(round_)
        visit = Visit(
            self.model, self.task, round_, stop.client, stop.visit, lr, self.device, global_model, shared,
            first, lambda: self._batches(rows, EVAL_ROWS),
        )  # fmt: skip
        bag = Bag() if bag is None else bag
        visit.state = bag.unpack(rule, stop.client, self.model, self.device)
        bytes_down = total_bytes(model_tensors(self.model)) + total_bytes(shared)
        self.model.train()
        rule.begin(visit)
        optimizer = rule.optimizer(self.model, lr)
        steps, seen, summed = 0, 0, 0.0
        for epoch in range(rule.epochs):
            order = self.seeds.batches(round_, stop.client, stop.visit, epoch).permutation(len(rows))
            for x, y in self._batches(rows[order], rule.batch_size):
                optimizer.zero_grad(set_to_none=True)
                objective, loss = rule.objective(visit, x, y)
                objective.backward()  # type: ignore[no-untyped-call]
                rule.adjust(visit)
                optimizer.step()
                steps, seen, summed = steps + 1, seen + len(y), summed + loss.item() * len(y)
        visit.steps = steps
        metrics = {"loss": summed / seen if seen else 0.0, **rule.finish(visit)}
        what = "loss" if not math.isfinite(metrics["loss"]) else "model" if not _finite(self.model) else None
        if what is not None:
            raise Diverged(
                f"training diverged at client '{self.data.clients[stop.client]}' in round {round_}: its {what} is not finite "
                f"any more; try a smaller learning rate than {lr:g}."
            )
        bag.pack(visit)
        bytes_up = total_bytes(model_tensors(self.model)) + total_bytes(visit.sent) + METRIC_BYTES * len(rule.reports())
        return HopReport(
            stop.client, stop.hop, stop.visit, len(rows), steps, bytes_down + visit.extra_down, bytes_up,
            time.perf_counter() - began, metrics,
        )  # fmt: skip

    def personalise(self, round_: int, client: int) -> None:
        """Let a client make the model its own before it is evaluated, on its training samples only; without any it cannot."""
        rows, rng = self.data.train[client], self.seeds.personal(round_, client)
        if len(rows) == 0:
            return
        torch.manual_seed(int(rng.integers(2**63)))
        visit = Visit(self.model, self.task, round_, client, 0, self.rule.lr, self.device, {}, {})
        self.model.train()
        self.rule.personalise(visit, self._for_ever(rows, rng))

    def _for_ever(self, rows: NDArray[np.int64], rng: np.random.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            yield from self._batches(rng.permutation(rows), self.rule.batch_size)

    def _batches(self, rows: NDArray[np.int64], size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        block = max(size, GATHER_ROWS // size * size)
        for begin in range(0, len(rows), block):
            x, y = gather(self.data, rows[begin : begin + block])
            x, y = x.to(self.device), y.to(self.device)
            for at in range(0, len(y), size):
                yield x[at : at + size], y[at : at + size]


def _finite(model: nn.Module) -> bool:
    """Whether all parameters are finite: the sum of a tensor is not if one of its values is not."""
    with torch.no_grad():
        return all(bool(parameter.sum().isfinite()) for parameter in model.parameters())
