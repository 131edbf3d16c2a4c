"""A module bound to the compiled kernels: trained and run where its parameters lie, without autograd or an optimiser."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
import torch
from torch import nn

from fedgsp.core.tensors import Tensors
from fedgsp.fast.build import Library
from fedgsp.fast.program import Program


class FusedNet:
    """One module's compiled twin. The kernels work on the module's own memory, so that everything else sees its weights."""

    def __init__(self, model: nn.Module, program: Program, batch_size: int, library: Library) -> None:
        self._program, self._code = program, library.code
        parameters = dict(model.named_parameters())
        names = [name for layer in program.layers for name in (layer.weight, layer.bias)]
        self._parameters = [None if name is None else parameters[name] for name in names]
        self._names = names
        numbers = np.array([layer.numbers() for layer in program.layers], dtype=np.int32)
        self._net = self._code.fedgsp_new(numbers.ctypes.data, len(program.layers), batch_size)
        if not self._net:
            raise MemoryError("not enough memory for the fast path's buffers")
        weakref.finalize(self, self._code.fedgsp_free, self._net)
        self._classes = program.layers[-1].cout
        self._in_use: list[Any] = []  # what the kernels point at between `begin` and `end`

    def begin(self, reference: Tensors | None = None) -> None:
        """Take the module's weights as they are now; `reference` is what they are pulled to, by name."""
        weights, held, anchors = _pointers(self._parameters), None, None
        if reference is not None:
            held = [None if name is None else reference[name].contiguous() for name in self._names]
            anchors = _pointers(held)
        self._in_use = [weights, held, anchors]
        self._code.fedgsp_begin(self._net, weights, anchors)

    def train(self, x: torch.Tensor, y: torch.Tensor, size: int, lr: float, decay: float, mu: float) -> float:
        """SGD over these samples in order, `size` a step; the sum of the losses met."""
        with torch.no_grad():
            ready, labels = self._program.prepare(x).contiguous(), y.contiguous()
        sum_: float = self._code.fedgsp_train(
            self._net, ready.data_ptr(), labels.data_ptr(), len(y), ready[0].numel(), size, lr, decay, mu
        )
        return sum_

    def end(self) -> bool:
        """Bring what the kernels keep in a layout of their own back into the module; whether all weights are finite."""
        finite = bool(self._code.fedgsp_end(self._net))
        self._in_use = []
        return finite

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The module's outputs, with the weights of the moment."""
        ready = self._program.prepare(x).contiguous()
        outputs = torch.empty(len(x), self._classes)
        pointers = _pointers(self._parameters)
        self._code.fedgsp_begin(self._net, pointers, None)
        self._code.fedgsp_forward(self._net, ready.data_ptr(), len(ready), ready[0].numel(), outputs.data_ptr())
        return outputs


def _pointers(tensors: list[Any]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*[None if tensor is None else tensor.data_ptr() for tensor in tensors])
