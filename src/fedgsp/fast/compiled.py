"""Layers in a row bound to the compiled kernels: the whole of a model, or one of its halves."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.core.tensors import Tensors

if TYPE_CHECKING:
    from fedgsp.core.native import Library
    from fedgsp.fast.program import Inputs, Program


@dataclass(frozen=True)
class Step:
    """w <- w - lr (gradient + decay w + mu w - constant * anchor): `anchor`, by name, is the same for all steps of a visit."""

    lr: float
    decay: float = 0.0
    mu: float = 0.0
    constant: float = 0.0
    anchor: Tensors | None = None


class _Samples(ctypes.Structure):
    """Mirrors `Samples` in kernels.c."""

    _fields_ = (
        ("base", ctypes.c_void_p), ("sample", ctypes.c_int64), ("bytes", ctypes.c_int32), ("standard", ctypes.c_int32),
        ("divisor", ctypes.c_float), ("least", ctypes.c_float),
    )  # fmt: skip


class StoredSamples:
    """Samples where they are kept, which the kernels read row by row: nothing is gathered."""

    def __init__(self, features: NDArray[Any], divisor: float, inputs: Inputs, library: Library) -> None:
        self._code = library.code
        self._features = features
        sample, least = math.prod(features.shape[1:]), inputs.least
        told = (sample, features.dtype == np.uint8, least is not None, divisor, least or 0.0)
        self._told = _Samples(self._features.ctypes.data, *told)
        self.pointer = ctypes.addressof(self._told)

    def read(self, rows: NDArray[np.int64]) -> torch.Tensor:
        """Some of them as the first layer takes them, flat."""
        found = torch.empty(len(rows), self._told.sample)
        self._code.fedgsp_fetch(self.pointer, rows.ctypes.data, len(rows), found.data_ptr())
        return found

    @staticmethod
    def known(features: NDArray[Any]) -> bool:
        """Whether the kernels read numbers of this kind, where they lie."""
        return features.dtype in (np.uint8, np.float32) and features.flags.c_contiguous


class CompiledLayers:
    """One compiled network. It works on the memory of the tensors it is given, so that everything else sees its weights."""

    def __init__(self, program: Program, batch_size: int, library: Library, deep: bool = False) -> None:
        self._code, self.program, self._deep = library.code, program, deep
        self._names = [name for layer in program.layers for name in (layer.weight, layer.bias)]
        numbers = _numbers(program)
        self._net = self._code.fedgsp_new(numbers.ctypes.data, len(program.layers), batch_size, int(deep))
        if not self._net:
            raise MemoryError("there is not enough memory for the fast path's buffers; `fast='off'` does without")
        weakref.finalize(self, self._code.fedgsp_free, self._net)
        self._outputs = math.prod(program.shape)
        self._in_use: list[Any] = []  # what the kernels point at between `begin` and `end`
        self._step = (0.0, 0.0, 0.0, 0.0)

    def begin(self, weights: Mapping[str, torch.Tensor], step: Step | None = None) -> None:
        """Take these weights as they are now; steps are made in them."""
        own: list[torch.Tensor | None] = [None if name is None else weights[name] for name in self._names]
        anchor = pointers = None
        if step is not None:
            self._step = (step.lr, step.decay, step.mu, step.constant)
            if step.anchor is not None:
                anchor = [None if name is None else step.anchor[name].contiguous() for name in self._names]
                pointers = _pointers(anchor)
        self._in_use = [own, _pointers(own), anchor, pointers]
        self._code.fedgsp_begin(self._net, self._in_use[1], pointers)

    def train(self, x: torch.Tensor, y: torch.Tensor, size: int) -> float:
        """SGD on cross-entropy over these samples in order, `size` a step; the sum of the losses met."""
        sum_: float = self._code.fedgsp_train(
            self._net, x.data_ptr(), y.data_ptr(), len(y), x[0].numel(), size, *self._step
        )  # fmt: skip
        return sum_

    def train_rows(self, samples: StoredSamples, rows: NDArray[np.int64], y: NDArray[np.int64], size: int) -> float:
        """The same over the samples of these rows."""
        sum_: float = self._code.fedgsp_train_rows(
            self._net, samples.pointer, rows.ctypes.data, y.ctypes.data, len(rows), size, *self._step
        )  # fmt: skip
        return sum_

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs, for any number of samples; `backward` goes by the last batch."""
        outputs = torch.empty(len(x), *self.program.shape)
        self._code.fedgsp_forward(self._net, x.data_ptr(), len(x), x.numel() // max(len(x), 1), outputs.data_ptr())
        return outputs

    def loss(self, outputs: torch.Tensor, y: torch.Tensor) -> tuple[float, torch.Tensor]:
        """(the sum of the cross-entropies of one batch, the gradient of their mean)."""
        slopes = torch.empty_like(outputs)
        sum_ = self._code.fedgsp_loss(outputs.data_ptr(), slopes.data_ptr(), self._outputs, y.data_ptr(), len(y))
        return sum_, slopes

    def backward(self, slopes: torch.Tensor, x: torch.Tensor) -> torch.Tensor | None:
        """The step of the batch `x` that went forward last, from the gradients of its outputs; those of `x` if it is deep."""
        back = torch.empty_like(x) if self._deep else None
        self._code.fedgsp_backward(
            self._net, slopes.data_ptr(), len(x), *self._step, None if back is None else back.data_ptr()
        )  # fmt: skip
        return back

    def end(self) -> bool:
        """Bring what the kernels keep in a layout of their own back into the weights; whether all of them are finite."""
        finite = bool(self._code.fedgsp_end(self._net))
        self._in_use = []
        return finite


def buffer_bytes(program: Program, batch_size: int, library: Library, deep: bool = False) -> int:
    """What a part with batches of this size takes beside the weights."""
    numbers = _numbers(program)
    return int(library.code.fedgsp_bytes(numbers.ctypes.data, len(program.layers), batch_size, int(deep)))


def _numbers(program: Program) -> NDArray[np.int32]:
    return np.array([layer.numbers() for layer in program.layers], dtype=np.int32)


def _pointers(tensors: list[torch.Tensor | None]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*[None if tensor is None else tensor.data_ptr() for tensor in tensors])
