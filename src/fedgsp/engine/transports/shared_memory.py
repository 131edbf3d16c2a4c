"""Memory shared between processes that cannot leak: nameless files, gone with the last process that has them open.

Weights and data are never pickled between processes on one machine: a region is written by one process and read in place by
the others, as torch tensors or NumPy arrays over the same pages.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.data.federated import FederatedData

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

ALIGN = 64


@dataclass(frozen=True)
class Slot:
    """Where one tensor lies in a region."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int


Layout = dict[str, Slot]


def lay_out(tensors: Tensors, begin: int = 0) -> tuple[Layout, int]:
    """Places for some tensors, one after the other from `begin`, and the end."""
    layout: Layout = {}
    for name, tensor in tensors.items():
        layout[name] = Slot(tensor.dtype, tuple(tensor.shape), begin)
        begin += -(-tensor.numel() * tensor.element_size() // ALIGN) * ALIGN
    return layout, begin


class Region:
    """A growing piece of shared memory behind a file descriptor that child processes inherit."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _nameless_file() if descriptor is None else descriptor
        self._map: mmap.mmap | None = None
        self._size = 0

    def reserve(self, size: int) -> None:
        """Make the region at least `size` bytes large (the writer's call)."""
        if os.fstat(self.descriptor).st_size < size:
            os.ftruncate(self.descriptor, size)

    def tensors(self, layout: Layout) -> Tensors:
        """Tensors over the region's pages, as laid out."""
        return {name: self._tensor(slot) for name, slot in layout.items()}

    def write(self, tensors: Tensors, layout: Layout) -> None:
        """Copy tensors to their places."""
        for name, place in self.tensors(layout).items():
            place.copy_(tensors[name])

    def close(self) -> None:
        """Give the descriptor back; pages live on while tensors or other processes use them."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _tensor(self, slot: Slot) -> torch.Tensor:
        count = int(np.prod(slot.shape, dtype=np.int64))
        if count == 0:
            return torch.empty(slot.shape, dtype=slot.dtype)
        size = os.fstat(self.descriptor).st_size
        if self._map is None or self._size < size:
            self._map, self._size = mmap.mmap(self.descriptor, size), size
        return torch.frombuffer(self._map, dtype=slot.dtype, count=count, offset=slot.offset).reshape(slot.shape)


class Heartbeat:
    """What a worker is at, and since when, in memory that others can read at any time: no message is needed for it."""

    FORM = struct.Struct("=qqd")

    def __init__(self, descriptor: int | None = None) -> None:
        self._region = Region(descriptor)
        self._region.reserve(self.FORM.size)
        self._map = mmap.mmap(self._region.descriptor, self.FORM.size)

    @property
    def descriptor(self) -> int:
        """To be inherited."""
        return self._region.descriptor

    def beat(self, task: int, client: int | None) -> None:
        """The worker's call: a client is begun."""
        self.FORM.pack_into(self._map, 0, task, -1 if client is None else client, time.perf_counter())

    def read(self) -> tuple[int, int | None, float]:
        """(the number of the task, the client, when it was begun) by the clock that all processes of a machine share."""
        task, client, since = self.FORM.unpack_from(self._map)
        return task, None if client < 0 else client, since

    def close(self) -> None:
        """Give the memory back."""
        self._map.close()
        self._region.close()


def shared_bytes(content: bytes | memoryview) -> int:
    """A descriptor of a nameless file with this content, for others to read whenever they like."""
    descriptor = _nameless_file()
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return descriptor


def read_bytes(descriptor: int) -> bytes:
    """What such a file has in it."""
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as pages:
        return pages[:]


def _nameless_file() -> int:
    if sys.platform == "linux":
        return os.memfd_create("fedgsp", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@dataclass(frozen=True)
class ArrayHandle:
    """A way for another process to see the same array: a file on disk, or an inherited descriptor."""

    path: str | None
    descriptor: int
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @classmethod
    def of_file(cls, array: NDArray[Any]) -> ArrayHandle | None:
        """The file that an array is mapped from, if it is."""
        if isinstance(array, np.memmap) and array.flags.c_contiguous and isinstance(array.base, mmap.mmap):
            return cls(str(array.filename), -1, array.dtype.str, array.shape, int(array.offset))
        return None

    def open(self) -> NDArray[Any]:
        """The array, mapped read-only."""
        if int(np.prod(self.shape, dtype=np.int64)) == 0:
            return np.empty(self.shape, dtype=self.dtype)
        if self.path is not None:
            return np.memmap(self.path, dtype=self.dtype, mode="r", shape=self.shape, offset=self.offset)
        pages = mmap.mmap(self.descriptor, 0, prot=mmap.PROT_READ)
        return np.frombuffer(pages, dtype=self.dtype).reshape(self.shape)


NOT_SENT = ("features", "labels", "memo")
"""What of a federation does not travel as it is: arrays are shared, and nobody asks a worker for the fingerprint."""


class SharedData:
    """A federation made visible to other processes, without a copy where its arrays are memory-mapped files already."""

    def __init__(self, data: FederatedData) -> None:
        self._data = data
        self.descriptors: list[int] = []
        self._features = self._share(data.features)
        self._labels = self._share(data.labels)

    def recipe(self) -> tuple[ArrayHandle, ArrayHandle, dict[str, Any]]:
        """What `open_data` needs, small enough to pickle."""
        data = self._data
        rest = {one.name: getattr(data, one.name) for one in fields(FederatedData) if one.name not in NOT_SENT}
        return self._features, self._labels, rest

    def close(self) -> None:
        """Give the descriptors back."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []

    def _share(self, array: NDArray[Any]) -> ArrayHandle:
        mapped = ArrayHandle.of_file(array)
        if mapped is not None:
            return mapped
        whole = np.ascontiguousarray(array)
        descriptor = shared_bytes(whole.data)
        self.descriptors.append(descriptor)
        return ArrayHandle(None, descriptor, whole.dtype.str, whole.shape, 0)


def open_data(recipe: tuple[ArrayHandle, ArrayHandle, dict[str, Any]]) -> FederatedData:
    """The federation that another process shared."""
    features, labels, rest = recipe
    return FederatedData(features=features.open(), labels=labels.open(), **rest)
