"""Exact sums as whole numbers, by machine code: half the memory of two accumulators, an eighth of their time.

A weighted value, rounded to the fine grid of `core.sums`, is a whole number of that grid's units. As long as no value is more
than half of what the grids are laid out for without headroom (2**scale_bits), all of a round's together are below 2**63 units:

    sum of weights * 2**(scale_bits - 1) / 2**(weight_bits + scale_bits - 64)  <=  2**63

So one number of 64 bits holds what the two accumulators hold together, and makes the same doubles in the end. A tensor with a
larger value, or of another type, is added to the accumulators instead, as all are where there is no compiler.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from fedgsp.core.sum_grids import WholeGrid

FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")
SLACK = 1 - 2.0**-20
"""Room for the rounding of a million addends to whole units."""


class _Grid(ctypes.Structure):
    """Mirrors `Grid` in sums.c."""

    _fields_ = (
        ("n", ctypes.c_int64), ("round_coarse", ctypes.c_double), ("round_fine", ctypes.c_double), ("unit", ctypes.c_double),
        ("most", ctypes.c_float),
    )  # fmt: skip


class WholeSum:
    """A running sum of the trained tensors of models, in whole units."""

    def __init__(
        self,
        grids: Sequence[WholeGrid],
        take: Callable[[int], torch.Tensor],
        give: Callable[[torch.Tensor], None],
    ) -> None:
        """`take` gives zeros for so many numbers, `give` takes them back when the sum is gone."""
        code = _code()
        assert code is not None, "ask `available` first"
        self._code = code
        self._grids = (_Grid * len(grids))(
            *[_Grid(g.size, g.round_coarse, g.round_fine, 2.0**g.fine_bits, SLACK * 2.0 ** (g.scale_bits - 1)) for g in grids]
        )
        self._sizes = [grid.size for grid in grids]
        self._sum = take(sum(self._sizes))
        weakref.finalize(self, give, self._sum).atexit = False
        self._pointers = ctypes.c_void_p * len(grids)
        self._left = (ctypes.c_int64 * len(grids))()

    def add(self, tensors: Sequence[torch.Tensor], weight: float) -> list[int]:
        """Add `weight * tensors`, but for those of another type and those with a value that is too large: their numbers."""
        left = self._code.fedgsp_add_whole(
            self._sum.data_ptr(), self._pointers(*map(_pointer, tensors)), self._grids, len(self._grids), weight, self._left
        )  # fmt: skip
        return self._left[:left] if left else []

    def take_back(self, tensors: Sequence[torch.Tensor], weight: float, left: Sequence[int]) -> None:
        """Undo `add`, which left these out."""
        added = [None if number in left else _pointer(tensor) for number, tensor in enumerate(tensors)]
        self._code.fedgsp_take_back(self._sum.data_ptr(), self._pointers(*added), self._grids, len(self._grids), weight)

    def means(self, weight: float) -> torch.Tensor:
        """The sums in float64, divided by `weight`, one after the other."""
        found = torch.empty(len(self._sum), dtype=torch.float64)
        self._code.fedgsp_whole_means(self._sum.data_ptr(), self._grids, len(self._grids), weight, found.data_ptr())
        return found

    def move(self, number: int, coarse: torch.Tensor, fine: torch.Tensor) -> None:
        """Add one tensor's sum to its accumulators on both grids, and begin anew."""
        self._code.fedgsp_move_whole(self._sum.data_ptr(), self._grids, number, coarse.data_ptr(), fine.data_ptr())


def available() -> bool:
    """Whether there is a compiler, or what it made before."""
    return _code() is not None


@functools.cache
def _code() -> ctypes.CDLL | None:
    from fedgsp.core.native import load  # where the first sum is made, and not with every server rule

    found = load(Path(__file__).with_name("sums.c"), FLAGS)
    if isinstance(found, str):
        return None
    pointer, whole, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    code = found.code
    code.fedgsp_add_whole.argtypes = [pointer, pointer, pointer, whole, real, pointer]
    code.fedgsp_take_back.argtypes = [pointer, pointer, pointer, whole, real]
    code.fedgsp_whole_means.argtypes = [pointer, pointer, whole, real, pointer]
    code.fedgsp_move_whole.argtypes = [pointer, pointer, whole, pointer, pointer]
    code.fedgsp_add_whole.restype = whole
    code.fedgsp_take_back.restype = code.fedgsp_whole_means.restype = code.fedgsp_move_whole.restype = None
    return code


def _pointer(tensor: torch.Tensor) -> int | None:
    """Where its numbers lie, if the loops can read them there."""
    readable = tensor.dtype == torch.float32 and tensor.is_contiguous() and tensor.is_cpu
    return tensor.data_ptr() if readable else None
