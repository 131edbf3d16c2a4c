"""Tensors on their way through Ray's object store: one flat buffer, read in place where it arrives."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.core.tensors import Tensors, tensor_bytes
from fedgsp.engine.transports.shared_memory import Layout, lay_out


@dataclass(frozen=True, eq=False)
class TensorBuffer:
    """Some tensors, one after the other; NumPy's bytes are what Ray hands on without a copy."""

    layout: Layout
    buffer: NDArray[np.uint8]


def pack(tensors: Tensors) -> TensorBuffer:
    """A copy of the tensors."""
    layout, size = lay_out(tensors)
    buffer = np.empty(size, dtype=np.uint8)
    for name, slot in layout.items():
        raw = tensor_bytes(tensors[name])
        buffer[slot.offset : slot.offset + len(raw)] = raw
    return TensorBuffer(layout, buffer)


def unpack(packed: TensorBuffer) -> Tensors:
    """The tensors, over the buffer's own pages: to be read, not written."""
    return {name: _tensor(packed.buffer, slot.dtype, slot.shape, slot.offset) for name, slot in packed.layout.items()}


def _tensor(buffer: NDArray[np.uint8], dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> torch.Tensor:
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset).reshape(shape)


warnings.filterwarnings("ignore", message="The given buffer is not writable")  # nobody writes here
