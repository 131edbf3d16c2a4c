from __future__ import annotations

import math

import pytest
import torch

from fedgsp.models import Task, classification, regression


def test_cross_entropy_and_accuracy_of_every_sample() -> None:
    task = classification()
    outputs = torch.tensor([[0.0, 0.0], [0.0, math.log(3.0)], [math.log(3.0), 0.0]])
    targets = torch.tensor([0, 1, 1])
    assert task.loss(outputs, targets).tolist() == pytest.approx([math.log(2), math.log(4 / 3), math.log(4)], rel=1e-6)
    assert task.metrics["accuracy"](outputs, targets).tolist() == [1.0, 1.0, 0.0]
    assert task.score == "accuracy"


def test_squared_and_absolute_errors_of_every_sample() -> None:
    task = regression()
    outputs, targets = torch.tensor([[1.0], [5.0]]), torch.tensor([3.0, 4.5])
    assert task.loss(outputs, targets).tolist() == [4.0, 0.25]
    assert task.metrics["absolute_error"](outputs, targets).tolist() == [2.0, 0.5]
    assert task.score is None


def test_several_targets_are_averaged_per_sample() -> None:
    outputs, targets = torch.tensor([[1.0, 5.0], [0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    assert regression().loss(outputs, targets).tolist() == [2.5, 2.0]
    assert regression().metrics["absolute_error"](outputs, targets).tolist() == [1.5, 1.0]


def test_a_score_is_one_of_the_metrics() -> None:
    with pytest.raises(ValueError, match=r"score 'f1' is not one of the metrics \['accuracy'\]"):
        Task("mine", classification().loss, classification().metrics, score="f1")
