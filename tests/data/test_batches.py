from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedgsp.data.arrays import from_arrays
from fedgsp.data.batches import gather


def gathered(features: Any, labels: Any = None, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    labels = np.arange(len(features)) % 3 if labels is None else labels
    data = from_arrays(features, labels, np.zeros(len(features), dtype=int), **options)
    return gather(data, np.arange(len(features)))


def test_bytes_over_255_are_leafs_floats_exactly() -> None:
    """LEAF computes numpy's float64 division and feeds float32: every one of the 256 values must agree to the bit."""
    x, _ = gathered(np.arange(256, dtype=np.uint8).reshape(256, 1))
    leaf = (np.arange(256) / 255).astype(np.float32).reshape(256, 1)
    assert x.dtype == torch.float32
    assert np.array_equal(x.numpy().view(np.uint32), leaf.view(np.uint32))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_real_features_become_float32_unscaled(kind: Any) -> None:
    x, _ = gathered(np.array([[1.5], [300.0], [-2.0]], dtype=kind))
    assert x.dtype == torch.float32
    assert x.flatten().tolist() == [1.5, 300.0, -2.0]


def test_truth_values_and_signed_bytes_become_floats() -> None:
    assert gathered(np.array([[True], [False], [True]]))[0].flatten().tolist() == [1.0, 0.0, 1.0]
    assert gathered(np.array([[-5], [0], [7]], dtype=np.int8))[0].flatten().tolist() == [-5.0, 0.0, 7.0]


@pytest.mark.parametrize("kind", [np.int16, np.uint16, np.int32, np.uint32, np.int64])
def test_wider_whole_numbers_are_tokens(kind: Any) -> None:
    x, _ = gathered(np.array([[1], [300], [2]], dtype=kind))
    assert x.dtype == torch.int64
    assert x.flatten().tolist() == [1, 300, 2]


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint16, np.int64])
def test_class_labels_become_int64(kind: Any) -> None:
    _, y = gathered(np.zeros((3, 1)), np.array([0, 2, 1], dtype=kind))
    assert y.dtype == torch.int64
    assert y.tolist() == [0, 2, 1]


def test_real_targets_become_float32() -> None:
    _, y = gathered(np.zeros((3, 1)), np.array([0.5, 1.25, -2.0]))
    assert y.dtype == torch.float32
    assert y.tolist() == [0.5, 1.25, -2.0]


def test_rows_come_in_the_order_asked_for_with_their_labels() -> None:
    data = from_arrays(np.arange(10, dtype=np.float32)[:, None], np.arange(10), np.zeros(10, dtype=int))
    x, y = gather(data, np.array([7, 2, 2, 9]))
    assert x.flatten().tolist() == [7.0, 2.0, 2.0, 9.0]
    assert y.tolist() == [7, 2, 2, 9]


def test_a_batch_is_a_copy() -> None:
    features = np.ones((4, 2), dtype=np.float32)
    data = from_arrays(features, np.zeros(4, dtype=int), np.zeros(4, dtype=int))
    x, y = gather(data, np.arange(4))
    x += 1
    y += 1
    assert features.max() == 1
    assert data.labels.max() == 0
