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

from fedgsp.client.rules import SGD, Visit
from fedgsp.core.chain import HopReport, Stop
from fedgsp.core.errors import Diverged
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import Tensors, total_bytes
from fedgsp.data.batches import gather
from fedgsp.data.federated import FederatedData
from fedgsp.models.task import Task

GATHER_ROWS = 4096
"""Samples gathered at a time: one gather for almost every client, bounded memory for the largest."""


def load_tensors(model: nn.Module, tensors: Tensors) -> None:
    """Copy a model's state in place, so that one module serves every client."""
    with torch.no_grad():
        own = model.state_dict(keep_vars=True)
        if own.keys() != tensors.keys():
            raise ValueError(f"the model has other tensors than it was handed: {sorted(own.keys() ^ tensors.keys())}")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def model_tensors(model: nn.Module) -> Tensors:
    """A model's state as named tensors that share its memory."""
    return dict(model.state_dict())


@dataclass
class Trainer:
    """Everything a client's turn needs that is the same for all of them: one model, one rule, the data."""

    model: nn.Module
    rule: SGD
    task: Task
    data: FederatedData
    device: torch.device
    seeds: Seeds

    def visit(self, round_: int, stop: Stop, global_model: Tensors, shared: Tensors) -> HopReport:
        """Train the model in place on one client's samples; it must already hold what the client was handed."""
        began = time.perf_counter()
        torch.manual_seed(self.seeds.torch(round_, stop.client, stop.visit))
        rule, rows = self.rule, self.data.train[stop.client]
        lr = rule.lr * rule.schedule.factor(round_)
        visit = Visit(
            self.model, self.task, round_, stop.client, stop.visit, lr, self.device, global_model, shared
        )  # fmt: skip
        bytes_down = total_bytes(model_tensors(self.model)) + total_bytes(shared)
        self.model.train()
        rule.begin(visit)
        optimizer = rule.optimizer(self.model, lr)
        steps, seen, summed = 0, 0, 0.0
        for epoch in range(rule.epochs):
            order = self.seeds.batches(round_, stop.client, stop.visit, epoch).permutation(len(rows))
            for x, y in self._batches(rows[order]):
                optimizer.zero_grad(set_to_none=True)
                objective, loss = rule.objective(visit, x, y)
                objective.backward()  # type: ignore[no-untyped-call]
                rule.adjust(visit)
                optimizer.step()
                steps, seen, summed = steps + 1, seen + len(y), summed + loss.item() * len(y)
        metrics = {"loss": summed / seen if seen else 0.0, **rule.finish(visit)}
        what = "loss" if not math.isfinite(metrics["loss"]) else "model" if not _finite(self.model) else None
        if what is not None:
            raise Diverged(
                f"training diverged at client '{self.data.clients[stop.client]}' in round {round_}: its {what} is not finite "
                f"any more; try a smaller learning rate than {lr:g}."
            )
        bytes_up = total_bytes(model_tensors(self.model))
        return HopReport(
            stop.client, stop.hop, stop.visit, len(rows), steps, bytes_down, bytes_up, time.perf_counter() - began, metrics
        )

    def _batches(self, rows: NDArray[np.int64]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        size = self.rule.batch_size
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
