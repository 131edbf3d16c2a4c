"""Rows of a federation as torch tensors: the one place where stored numbers become what a model sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData


def gather(data: FederatedData, rows: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
    """(features, targets) of some rows: bytes and floats become float32 (divided by `divisor`), class labels int64.

    uint8 images divided by 255 in float32 are exactly LEAF's inputs. Wider integers are left alone: they are usually
    tokens, to be embedded by the model.
    """
    features = torch.from_numpy(np.asarray(data.features[rows]))
    if features.dtype in (torch.uint8, torch.int8, torch.bool) or features.is_floating_point():
        features = features.to(torch.float32)
        if data.divisor != 1.0:
            features.div_(data.divisor)
    else:
        features = features.to(torch.int64)
    labels = torch.from_numpy(np.asarray(data.labels[rows]))
    return features, labels.to(torch.int64 if data.classes else torch.float32)
