"""What a model is trained for: a loss and metrics, both per sample, so that any weighting of clients can be had from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch.nn import functional

PerSample = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(outputs (b, ...), targets (b, ...)) -> (b,) values."""


@dataclass(frozen=True)
class Task:
    """What a model is trained for: a loss and metrics, both per sample.

    Args:
        name: What it is called.
        loss: (outputs (b, ...), targets (b, ...)) -> (b,) losses to be minimised.
        metrics: Named functions of the same kind, to be reported.
        score: The metric that targets such as `target_accuracy` refer to.

    Raises:
        ValueError: If `score` is not one of the metrics.

    Example:
        >>> task = classification()
        >>> task.name, sorted(task.metrics), task.score
        ('classification', ['accuracy'], 'accuracy')
    """

    name: str
    loss: PerSample
    metrics: Mapping[str, PerSample] = field(default_factory=dict)
    score: str | None = None

    def __post_init__(self) -> None:
        if self.score is not None and self.score not in self.metrics:
            raise ValueError(f"the score '{self.score}' is not one of the metrics {sorted(self.metrics)}")


def _cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def _correct(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(dim=1) == targets).float()


def _squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.reshape(targets.shape) - targets).square().reshape(len(targets), -1).mean(dim=1)


def _absolute_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.reshape(targets.shape) - targets).abs().reshape(len(targets), -1).mean(dim=1)


def classification() -> Task:
    """Cross-entropy and accuracy: the default.

    Returns:
        The task.
    """
    return Task("classification", _cross_entropy, {"accuracy": _correct}, score="accuracy")


def regression() -> Task:
    """Squared error, with the mean absolute error reported.

    Returns:
        The task.
    """
    return Task("regression", _squared_error, {"absolute_error": _absolute_error})
