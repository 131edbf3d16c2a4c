"""What is handed from hop to hop: named tensors, in a fixed order, with a size and a digest."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

Tensors = dict[str, torch.Tensor]
"""Named tensors on the CPU: a model's state, control variates, fusion operators, a feature table."""


def total_bytes(tensors: Tensors) -> int:
    """How many bytes of payload these tensors are on a wire."""
    return sum(t.numel() * t.element_size() for t in tensors.values())


def clone(tensors: Tensors) -> Tensors:
    """Copies that share no memory with the originals, contiguous and without gradients."""
    return {name: t.detach().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}


def tensor_bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    """The raw bytes of a tensor, without a copy where it is contiguous on the CPU."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    raw: NDArray[np.uint8] = flat.view(torch.uint8).numpy()
    return raw


def digest(tensors: Tensors) -> str:
    """A SHA-256 of names, types, shapes and bits: two models are the same exactly if their digests are."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        sha.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}\n".encode())
        sha.update(tensor_bytes(tensor).data)
    return sha.hexdigest()
