"""What is handed from hop to hop: named tensors, in a fixed order, with a size and a digest.

On the wire they are as they are, or real numbers in half the bytes. Rounding is part of a result: an engine that keeps the
model in place rounds it at every hop all the same, so that a deployment can be replayed to the bit.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

Tensors = dict[str, torch.Tensor]
"""Named tensors on the CPU: a model's state, control variates, fusion operators, a feature table."""
Wire = Literal["float32", "float16", "bfloat16"]
FULL: Wire = "float32"
NARROW: dict[str, torch.dtype] = {"float16": torch.float16, "bfloat16": torch.bfloat16}


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


def narrowed(tensors: Tensors, wire: Wire) -> Tensors:
    """The tensors as they are sent: real numbers of more than two bytes in the wire's type, everything else as it is."""
    kind = NARROW.get(wire)
    if kind is None:
        return tensors
    return {name: t.to(kind) if t.is_floating_point() and t.element_size() > 2 else t for name, t in tensors.items()}


def rounded(tensors: Tensors, wire: Wire) -> Tensors:
    """The tensors as they arrive: sent, and put back into their own types."""
    if wire not in NARROW:
        return tensors
    return {name: sent.to(tensors[name].dtype) for name, sent in narrowed(tensors, wire).items()}


def wire_bytes(tensors: Tensors, wire: Wire) -> int:
    """How many bytes of payload these tensors are on the wire."""
    half = wire in NARROW
    return sum(t.numel() * (2 if half and t.is_floating_point() else t.element_size()) for t in tensors.values())


def misfit(tensors: object, like: Tensors, *, types: bool = True) -> str | None:
    """Why `tensors` cannot stand in the place of the model `like`, as the rest of a sentence; None if they can."""
    if not isinstance(tensors, dict):
        return f"is {type(tensors).__name__}, not a dict of tensors by name"
    for name, own in like.items():
        if name not in tensors:
            return f"has no tensor '{name}', which the model has"
        tensor = tensors[name]
        if not isinstance(tensor, torch.Tensor):
            return f"has {type(tensor).__name__} in place of the tensor '{name}'"
        if tensor.shape != own.shape:
            return f"has a tensor '{name}' of shape {tuple(tensor.shape)}, and the model's is of shape {tuple(own.shape)}"
        if types and tensor.dtype != own.dtype:
            return f"has a tensor '{name}' of type {_word(tensor)}, and the model's is {_word(own)}"
        if tensor.is_complex() or tensor.device.type != "cpu":
            return f"has a tensor '{name}' that is {_word(tensor)} on {tensor.device}; the server's are real numbers on the CPU"
    odd = sorted(str(name) for name in tensors.keys() - like.keys())
    return f"has a tensor '{odd[0]}', which the model has not" if odd else None


def _word(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
