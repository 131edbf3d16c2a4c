"""A spool keeps a round's results whole, on disk, for rules that must see all of them before they can weigh any.

One nameless, memory-mapped file in the system's folder for temporary files (TMPDIR): nothing is left behind, also after a
kill, and the system decides how much of it is in memory. Rows are found by the chain's number, so the order of arrival cannot
matter.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from fedgsp.core.errors import RunFailed

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

ALIGN = 64


def row_bytes(like: Tensors) -> int:
    """What one result with tensors like these takes in a spool."""
    return sum(_padded(t) for t in like.values())


def room() -> tuple[str, int]:
    """(the folder spools are in, the bytes that are free there)."""
    folder = tempfile.gettempdir()
    return folder, shutil.disk_usage(folder).free


class Spool:
    """Room for `rows` results, each with tensors like `like`; closed when it is let go."""

    def __init__(self, like: Tensors, rows: int) -> None:
        self._like = like
        self._row = max(ALIGN, row_bytes(like))
        self._filled: set[int] = set()
        folder, free = room()
        size = self._row * max(1, rows)
        if size > free:
            raise RunFailed(
                f"the results of a round need {size / 1e9:.1f} GB in {folder}, where {free / 1e9:.1f} GB are free; free some "
                f"space or set TMPDIR to a folder with more, then resume."
            )
        with tempfile.TemporaryFile() as file:
            os.ftruncate(file.fileno(), size)
            self._map = mmap.mmap(file.fileno(), size)

    def put(self, row: int, tensors: Tensors) -> None:
        """Keep one result."""
        for name, place in self.get(row, written=False).items():
            place.copy_(tensors[name])
        self._filled.add(row)

    def get(self, row: int, *, written: bool = True) -> Tensors:
        """One result's tensors, over the file's pages."""
        if written and row not in self._filled:
            raise KeyError(row)
        found: Tensors = {}
        at = row * self._row
        for name, like in self._like.items():
            if like.numel() == 0:
                found[name] = torch.empty_like(like)
                continue
            flat = torch.frombuffer(self._map, dtype=like.dtype, count=math.prod(like.shape), offset=at)
            found[name] = flat.reshape(like.shape)
            at += _padded(like)
        return found

    def __iter__(self) -> Iterator[tuple[int, Tensors]]:
        """(row, tensors) of every result that was kept, by row number."""
        return ((row, self.get(row)) for row in sorted(self._filled))

    def __len__(self) -> int:
        return len(self._filled)


def _padded(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // ALIGN) * ALIGN
