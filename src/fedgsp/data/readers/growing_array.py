"""An array that is written row by row into an .npy file, without knowing beforehand how many rows there will be.

The header has a fixed length and is filled in at the end. Until then the number of rows is what the writer says it is, so
after a kill the file is cut back to the last count that was made durable, and writing goes on from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

HEADER = 512
MAGIC = b"\x93NUMPY\x01\x00"
BLOCK_ROWS = 4096


class GrowingArray:
    """Rows of one dtype and shape, to become `folder/name.npy`; the dtype is part of the working file's name.

    So a change of dtype never touches the file that the last durable state speaks of.
    """

    def __init__(self, folder: Path, name: str, state: dict[str, Any] | None = None) -> None:
        self._folder, self._name = folder, name
        self.rows = 0
        self.dtype: np.dtype[Any] | None = None
        self.shape: tuple[int, ...] = ()
        self._file: BinaryIO | None = None
        if state is None or state["dtype"] is None:
            return
        self.rows, self.dtype, self.shape = state["rows"], np.dtype(state["dtype"]), tuple(state["shape"])
        length = HEADER + self.rows * self._row_bytes()
        if self._path(self.dtype).stat().st_size < length:
            raise ValueError("the file is shorter than its record")
        self._file = self._path(self.dtype).open("r+b")
        self._file.truncate(length)
        self._file.seek(length)

    def append(self, block: NDArray[Any]) -> None:
        """More rows, of the dtype and shape of the first ones."""
        if self.dtype is None or self._file is None:
            self.dtype, self.shape = block.dtype.newbyteorder("="), tuple(block.shape[1:])
            self._file = self._path(self.dtype).open("w+b")
            self._file.write(b" " * HEADER)
        if block.dtype != self.dtype or tuple(block.shape[1:]) != self.shape:
            raise ValueError(f"rows of {block.dtype}{block.shape[1:]} cannot follow {self.dtype}{self.shape}")
        self._file.write(np.ascontiguousarray(block).data)
        self.rows += len(block)

    def durable(self) -> dict[str, Any]:
        """Put everything on disk; the state to go on from after a kill."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        return {"rows": self.rows, "dtype": None if self.dtype is None else self.dtype.str, "shape": list(self.shape)}

    def convert(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        """Rewrite what is there, block by block, in another dtype."""
        if self._file is None or self.rows == 0:
            self.dtype, self._file = None, None
            return
        changed = GrowingArray(self._folder, self._name)
        old = self.mapped()
        for begin in range(0, self.rows, BLOCK_ROWS):
            changed.append(change(np.asarray(old[begin : begin + BLOCK_ROWS])))
        self._file.close()
        self._file, self.dtype = changed._file, changed.dtype

    def mapped(self) -> NDArray[Any]:
        """What is there, memory-mapped."""
        if self._file is None or self.dtype is None or self.rows == 0:
            return np.empty((0, *self.shape), dtype=self.dtype or np.float32)
        self._file.flush()
        return np.memmap(self._path(self.dtype), dtype=self.dtype, mode="r", offset=HEADER, shape=(self.rows, *self.shape))

    def finish(self, shape: tuple[int, ...] | None = None) -> None:
        """Write the header, with the rows reshaped to `shape`, and take the final name."""
        target = self._folder / f"{self._name}.npy"
        whole = (self.rows, *(self.shape if shape is None else shape))
        if self._file is None or self.dtype is None:
            np.save(target, np.empty(whole, dtype=np.float32))
        else:
            text = repr({"descr": self.dtype.str, "fortran_order": False, "shape": whole}).encode()
            self._file.seek(0)
            self._file.write(MAGIC + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11) + b"\n")
            self._file.close()
            self._path(self.dtype).rename(target)
        for left in self._folder.glob(f"{self._name}-*.rows"):
            left.unlink()

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()

    def _path(self, dtype: np.dtype[Any]) -> Path:
        return self._folder / f"{self._name}-{dtype.str[1:]}.rows"

    def _row_bytes(self) -> int:
        assert self.dtype is not None
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))
