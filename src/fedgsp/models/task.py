"""What a model is trained for: a loss and metrics, both per sample, so that any weighting of clients can be had from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from fedgsp.core.profiles import IGNORED

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


def _real(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(which positions (b, T) count, how many a sample (b,), at least 1)."""
    real = targets != IGNORED
    return real, real.sum(dim=1).clamp(min=1)


def _position_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    losses = functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none", ignore_index=IGNORED)
    return losses.sum(dim=1) / _real(outputs, targets)[1]


def _position_correct(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    real, count = _real(outputs, targets)
    return ((outputs.argmax(dim=2) == targets) & real).sum(dim=1) / count


def sequence_labelling() -> Task:
    """Cross-entropy and accuracy at every position of a sequence: the default where each has a label.

    Outputs are (b, positions, classes), targets (b, positions); a target of -100 (padding) counts for nothing. A sample's
    value is the mean over its positions, so a long sample counts as much as a short one.

    Returns:
        The task.
    """
    return Task("sequence labelling", _position_loss, {"accuracy": _position_correct}, score="accuracy")


def _label_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=1)


def _labels_right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ((outputs > 0) == (targets > 0.5)).float().mean(dim=1)


def _all_right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ((outputs > 0) == (targets > 0.5)).all(dim=1).float()


def multilabel() -> Task:
    """Any number of labels a sample: targets (b, labels) of 0.0 and 1.0, an output for each, binary cross-entropy.

    "accuracy" is the share of labels that are right, "exact" whether all of a sample's are.

    Returns:
        The task.
    """
    return Task("multilabel", _label_loss, {"accuracy": _labels_right, "exact": _all_right}, score="accuracy")


def usual_task(classes: int, targets: tuple[int, ...]) -> Task:
    """What data are trained for unless a task is given: by their classes, and the shape of one sample's label.

    Args:
        classes: How many classes there are; 0: regression.
        targets: Shape of one sample's label.
    """
    if not classes:
        return regression()
    return sequence_labelling() if targets else classification()


def regression() -> Task:
    """Squared error, with the mean absolute error reported.

    Returns:
        The task.
    """
    return Task("regression", _squared_error, {"absolute_error": _absolute_error})
