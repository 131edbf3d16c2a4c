"""What tensors are on the wire: as they are, or real numbers in half the bytes.

Rounding is part of a result: an engine that keeps the model in place rounds it at every hop all the same, so that a deployment
can be replayed to the bit.
"""

from __future__ import annotations

from typing import Literal

import torch

from fedgsp.core.tensors import Tensors

Wire = Literal["float32", "float16", "bfloat16"]
FULL: Wire = "float32"
NARROW: dict[str, torch.dtype] = {"float16": torch.float16, "bfloat16": torch.bfloat16}


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
