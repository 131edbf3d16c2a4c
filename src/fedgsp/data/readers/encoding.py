"""How features that arrive as text (JSON, CSV) are stored: as small as possible without changing what a model sees.

LEAF writes pixels as k/255. Stored as the byte k they take an eighth of the space, and k / 255 in float32 is exactly the
number that LEAF's own loader would feed. Whole numbers are kept as such (tokens), all else becomes float32.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError

if TYPE_CHECKING:
    from fedgsp.data.readers.growing_array import GrowingArray

BYTE = np.float32(255)


class Encoding:
    """The dtype features are stored in. `kind`: "as is", a dtype's name, or "text" until the first block decides.

    "text" becomes "pixels" (bytes, to be divided by 255), "int64" or "float32", and widens when a later block does not fit.
    """

    def __init__(self, kind: str = "as is", divisor: float | None = None) -> None:
        self.kind = kind
        self._divisor = divisor

    @property
    def divisor(self) -> float | None:
        """What a batch divides features by, where the encoding decides it."""
        return 255.0 if self.kind == "pixels" else self._divisor

    def encode(self, block: NDArray[Any], stored: GrowingArray, where: str) -> NDArray[Any]:
        """The block as it is to be stored; what is `stored` already is widened first if need be."""
        if self.kind == "text":
            self.kind = self._first(block)
        if self.kind == "as is":
            return self._as_is(block, stored, where)
        if self.kind == "pixels":
            found = to_bytes(block)
            if found is not None:
                return found
            stored.convert(lambda old: old.astype(np.float32) / BYTE)
            self.kind = "float32"
        if self.kind == "int64":
            if block.dtype.kind in "bui":
                return block.astype(np.int64)
            stored.convert(lambda old: old.astype(np.float32))
            self.kind = "float32"
        return _exactly(block, np.dtype(self.kind), where)

    @staticmethod
    def _first(block: NDArray[Any]) -> str:
        if block.dtype == np.uint8:
            return "as is"
        if block.dtype.kind in "ui":
            return "int64"
        return "pixels" if to_bytes(block) is not None else "float32"

    def _as_is(self, block: NDArray[Any], stored: GrowingArray, where: str) -> NDArray[Any]:
        if stored.dtype is not None and block.dtype != stored.dtype:
            if not np.can_cast(block.dtype, stored.dtype):
                raise InputError(f"{where}: features are {block.dtype} here and {stored.dtype} before.")
            return block.astype(stored.dtype)
        return block


def parse_shape(text: str) -> tuple[int, ...] | None:
    """`28x28` as (28, 28); `flat` as (-1,); nothing as None."""
    if not text:
        return None
    if text == "flat":
        return (-1,)
    if not re.fullmatch(r"\d{1,9}(x\d{1,9})*", text):
        raise InputError(f"shape must look like 28x28 or be flat, not '{text}'.")
    return tuple(int(side) for side in text.split("x"))


def to_bytes(block: NDArray[Any]) -> NDArray[np.uint8] | None:
    """Values k/255 as the bytes k, or None where one of them is no such value in float32."""
    values = block.astype(np.float32)
    if values.size and (values.min() < 0 or values.max() > 1):
        return None
    whole = np.rint(values * BYTE)
    return whole.astype(np.uint8) if np.array_equal(whole / BYTE, values) else None


def _exactly(block: NDArray[Any], dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        stored = block.astype(dtype)
    if dtype.kind == "f" and not np.isfinite(stored).all():
        raise InputError(f"{where}: a feature is too large for {dtype}.")
    if dtype.kind in "bui" and not np.array_equal(stored, block):
        raise InputError(f"{where}: a feature does not fit {dtype}.")
    return stored
