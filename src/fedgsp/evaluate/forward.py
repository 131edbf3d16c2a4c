"""Forward passes over test rows: one loss and one value of each metric per sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedgsp.data.batches import gather

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData
    from fedgsp.models.task import Task

CHUNK = 256
"""Rows of one forward pass. Part of the reproducibility contract: chunks depend on the rows only, never on the workers."""


@dataclass(frozen=True)
class SampleScores:
    """Per-sample values: `loss` (n,) and each metric (n,).

    Args:
        loss: The loss of each sample.
        metrics: Each metric of each sample, by name.
    """

    loss: NDArray[np.floating]
    metrics: dict[str, NDArray[np.floating]]


def joined(parts: Sequence[SampleScores], metrics: Iterable[str]) -> SampleScores:
    """Scores of consecutive rows as one, of no rows too."""
    none = np.empty(0, dtype=np.float32)
    values = {name: np.concatenate([none, *(part.metrics[name] for part in parts)]) for name in metrics}
    return SampleScores(np.concatenate([none, *(part.loss for part in parts)]), values)


def evaluate_rows(
    model: nn.Module,
    task: Task,
    data: FederatedData,
    rows: NDArray[np.int64],
    device: torch.device,
    fused: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> SampleScores:
    """Evaluate the model on some rows, in chunks of `CHUNK`; `fused` is its compiled twin, if it has one.

    Args:
        model: The model.
        task: Its loss and metrics.
        data: Where samples are.
        rows: Which of them.
        device: Where to compute.
        fused: The model's compiled twin, if it has one.
    """
    forward = model if fused is None else fused
    loss = np.empty(len(rows), dtype=np.float32)
    metrics = {name: np.empty(len(rows), dtype=np.float32) for name in task.metrics}
    model.eval()
    with torch.inference_mode():
        for begin in range(0, len(rows), CHUNK):
            part = slice(begin, begin + CHUNK)
            x, y = gather(data, rows[part])
            x, y = x.to(device), y.to(device)
            outputs = forward(x)
            loss[part] = task.loss(outputs, y).float().cpu().numpy()
            for name, metric in task.metrics.items():
                metrics[name][part] = metric(outputs, y).float().cpu().numpy()
    return SampleScores(loss, metrics)
