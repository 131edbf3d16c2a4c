"""What every reader does with the samples it reads: check them, name what is wrong, and append them to the entry being built.

All readers (LEAF, parquet, HDF5, CSV, image folders) end up in the same five things: features, labels, whose each sample is,
which part it belongs to, and the clients' names. Complaints name the file, the client and the field.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data.arrays import LARGEST_CLASS
from fedgsp.data.readers.growing_array import GrowingArray

if TYPE_CHECKING:
    from fedgsp.data.readers.encoding import Encoding

TRAIN, VALIDATION, TEST, UNSPLIT = 0, 1, 2, 3
SPLITS = ("train", "validation", "test", "unsplit")


class EntryWriter:
    """Samples on their way into a cache entry."""

    def __init__(self, folder: Path, encoding: Encoding, state: dict[str, Any] | None = None) -> None:
        state = state or {}
        self.encoding = encoding
        self.features = GrowingArray(folder, "features", state.get("features"))
        self.labels = GrowingArray(folder, "labels", state.get("labels"))
        self._owner = GrowingArray(folder, "client_index", state.get("owner"))
        self._part = GrowingArray(folder, "part", state.get("part"))
        self._numbers: dict[str, int] = {name: k for k, name in enumerate(state.get("clients", []))}
        self._texts: dict[str, int] = {name: k for k, name in enumerate(state.get("texts", []))}
        if "encoding" in state:
            encoding.kind = state["encoding"]
        self._folder = folder

    def state(self) -> dict[str, Any]:
        """Everything durable, and what is needed to go on from here."""
        return {
            "features": self.features.durable(),
            "labels": self.labels.durable(),
            "owner": self._owner.durable(),
            "part": self._part.durable(),
            "clients": list(self._numbers),
            "texts": list(self._texts),
            "encoding": self.encoding.kind,
        }

    def client(self, name: str) -> int:
        """The number of a client, new or known."""
        return self._numbers.setdefault(name, len(self._numbers))

    def add_features(self, block: NDArray[Any], where: str) -> None:
        """Features (n, ...) of some samples of one client; `where` names file and client."""
        if block.dtype == object or block.dtype.kind not in "buif":
            raise InputError(f"{where}: the features are not numbers of one shape.")
        if block.dtype.kind == "f" and not np.isfinite(block).all():
            row = int(np.argmin(np.isfinite(block.reshape(len(block), -1)).all(axis=1)))
            raise InputError(f"{where}: features contain NaN or infinity (sample {row} of this block).")
        if self.features.dtype is not None and tuple(block.shape[1:]) != self.features.shape:
            raise InputError(
                f"{where}: samples of unequal shape: {_shape(block.shape[1:])} here, {_shape(self.features.shape)} before."
            )
        self.features.append(self.encoding.encode(block, self.features, where))

    def add_labels(self, values: NDArray[Any], where: str) -> None:
        """Labels (n,) or targets (n, ...) of some samples; texts become class names."""
        if values.dtype.kind in "US":
            values = np.array([self._texts.setdefault(str(text), len(self._texts)) for text in values], dtype=np.int64)
        elif self._texts and len(values):
            raise InputError(f"{where}: a number is among labels that are texts elsewhere.")
        if values.dtype.kind in "bui":
            if values.ndim != 1:
                raise InputError(f"{where}: class labels must be one whole number a sample.")
            if len(values) and int(values.min()) < 0:
                raise InputError(f"{where}: label {int(values.min())} is negative; classes are numbered from 0.")
            if len(values) and int(values.max()) >= LARGEST_CLASS:
                raise InputError(f"{where}: label {int(values.max())} is out of range; there can be {LARGEST_CLASS} classes.")
            values = values.astype(np.int64)
        elif values.dtype.kind == "f":
            if not np.isfinite(values).all():
                raise InputError(f"{where}: labels contain NaN or infinity.")
            values = values.astype(np.float64)
        else:
            raise InputError(f"{where}: labels are neither whole numbers, nor real numbers, nor texts.")
        if self.labels.dtype is not None and len(values):
            if values.dtype.kind == "f" and self.labels.dtype.kind == "i":
                self.labels.convert(lambda block: block.astype(np.float64))
            values = values.astype(self.labels.dtype or values.dtype)
            if values.shape[1:] != self.labels.shape:
                raise InputError(f"{where}: labels of unequal shape.")
        if len(values):
            self.labels.append(values)

    def assign_client(self, client: str, part: int, where: str) -> int:
        """Say whose the samples since the last call are; features and labels must be as many. How many there were."""
        count = self.features.rows - self._owner.rows
        if self.labels.rows - self._owner.rows != count:
            raise InputError(f"{where}: {count} samples have {self.labels.rows - self._owner.rows} labels.")
        self._owner.append(np.full(count, self.client(client), dtype=np.int32))
        self._part.append(np.full(count, part, dtype=np.uint8))
        return count

    def assign_clients(self, clients: list[str], parts: NDArray[np.uint8], where: str) -> None:
        """The same for rows whose client changes from one to the next."""
        if not self.features.rows == self.labels.rows == self._owner.rows + len(clients):
            raise InputError(f"{where}: features, labels and clients are not equally many.")
        self._owner.append(np.array([self.client(name) for name in clients], dtype=np.int32))
        self._part.append(parts)

    @property
    def rows(self) -> int:
        """Samples taken in."""
        return self._owner.rows

    @property
    def clients(self) -> list[str]:
        """Names, in order of appearance."""
        return list(self._numbers)

    def finish(self, where: str, *, shape: tuple[int, ...] | None = None, **meta: Any) -> dict[str, Any]:
        """Make the arrays whole; the entry's metadata."""
        if self.rows == 0:
            raise InputError(f"{where} has no samples.")
        names = None
        if self._texts:
            names = sorted(self._texts)
            place = {name: k for k, name in enumerate(names)}
            codes = np.array([place[name] for name in self._texts], dtype=np.int64)
            order = codes[np.asarray(self.labels.mapped())]
            self.labels.close()
            self.labels = GrowingArray(self._folder, "labels")
            self.labels.append(order)
        self.features.finish(shape)
        for array in (self.labels, self._owner, self._part):
            array.finish()
        return {
            "clients": self.clients,
            "clients_count": len(self._numbers),
            "samples": self.rows,
            "class_names": names,
            "divisor": self.encoding.divisor,
            **meta,
        }


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"
