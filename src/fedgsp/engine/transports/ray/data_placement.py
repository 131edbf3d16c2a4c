"""What samples a worker has at hand: all of them, from files that its node sees or from the object store, or some clients'.

The driver has the whole federation. A worker is told of its files and looks whether they are the same there; where they are
not, it is sent the arrays, or, where these would not fit a node, the samples of some clients (shards), and then only does the
hops of those.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.data.augmentation import Renumbered
from fedgsp.data.federated import SPLITS, FederatedData, Rows, Split
from fedgsp.engine.transports.shared_memory import ArrayHandle

PROOF_BLOCKS, PROOF_BYTES = 64, 4096


@dataclass(frozen=True)
class ProvenFile:
    """An array in a file, and a digest of blocks all over it: another node's file of that name may be something else."""

    handle: ArrayHandle
    size: int
    proof: str

    @classmethod
    def of(cls, array: NDArray[Any]) -> ProvenFile | None:
        """The file that an array is mapped from, if it is."""
        handle = ArrayHandle.of_file(array)
        if handle is None:
            return None
        path = Path(str(handle.path)).resolve()  # another node's working directory is another one
        return cls(replace(handle, path=str(path)), path.stat().st_size, _proof(path))

    def open(self) -> NDArray[Any] | None:
        """The array, if the same file is here."""
        path = Path(str(self.handle.path))
        try:
            same = path.stat().st_size == self.size and _proof(path) == self.proof
        except OSError:
            return None
        return self.handle.open() if same else None


def _proof(path: Path) -> str:
    sha, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file:
        for block in range(PROOF_BLOCKS):
            file.seek(max(0, size - PROOF_BYTES) * block // (PROOF_BLOCKS - 1))
            sha.update(file.read(PROOF_BYTES))
    return sha.hexdigest()


@dataclass(frozen=True, eq=False)
class Files:
    """Features in a file, and labels in one too or, since they are small, as they are."""

    features: ProvenFile
    labels: ProvenFile | NDArray[Any]

    def open(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Both, if the same files are here."""
        features, labels = self.features.open(), self.labels.open() if isinstance(self.labels, ProvenFile) else self.labels
        return None if features is None or labels is None else (features, labels)


def files_of(data: FederatedData) -> Files | None:
    """Where the samples can be read in place, if they can."""
    features = ProvenFile.of(data.features)
    return None if features is None else Files(features, ProvenFile.of(data.labels) or np.asarray(data.labels))


def bare(data: FederatedData) -> FederatedData:
    """The federation without its samples: who has which rows."""
    return replace(data, features=data.features[:0].copy(), labels=data.labels[:0].copy(), memo=None)


@dataclass(frozen=True, eq=False)
class Piece:
    """The samples of some clients, as the rows that they have in the whole federation."""

    clients: tuple[int, ...]
    rows: Rows
    features: NDArray[Any]
    labels: NDArray[Any]


def piece_of(data: FederatedData, clients: Sequence[int]) -> Piece:
    """What these clients have, all parts."""
    parts = [getattr(data, name)[client] for name in SPLITS for client in clients]
    rows = np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)
    return Piece(tuple(clients), rows, np.asarray(data.features[rows]), np.asarray(data.labels[rows]))


def only(whole: FederatedData, pieces: Iterable[Piece]) -> FederatedData:
    """The federation in which only the clients of these pieces have samples; their numbers stay what they are."""
    held = list(pieces)
    rows, first = np.unique(np.concatenate([piece.rows for piece in held]), return_index=True)
    there = np.zeros(len(whole), dtype=bool)
    there[[client for piece in held for client in piece.clients]] = True
    parts: dict[str, Any] = {name: _placed(getattr(whole, name), there, rows) for name in SPLITS}
    features = np.concatenate([piece.features for piece in held])[first]
    labels = np.concatenate([piece.labels for piece in held])[first]
    anew = whole.augmentation
    if anew is not None and anew.needs_rows:
        anew = Renumbered(anew, rows)
    return replace(whole, features=features, labels=labels, augmentation=anew, **parts)


def local_rows(held: Iterable[Piece], rows: Rows) -> Rows:
    """Where `only` has put these rows."""
    return np.searchsorted(np.unique(np.concatenate([piece.rows for piece in held])), rows)


def cut(data: FederatedData, rows: Rows) -> FederatedData:
    """Just these rows, in this order: what an evaluation needs."""
    nobody = Split.empty(0)
    return FederatedData(
        np.asarray(data.features[rows]), np.asarray(data.labels[rows]), (), nobody, nobody, nobody, data.classes, data.divisor
    )


def _placed(part: Split, there: NDArray[np.bool_], rows: Rows) -> Split:
    sizes = np.where(there, part.sizes, 0)
    mine = part.rows[np.repeat(there, part.sizes)]
    return Split(np.searchsorted(rows, mine), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def shards(data: FederatedData, count: int) -> list[tuple[int, ...]]:
    """All clients in at most `count` shards that have about as many samples each, the largest client first."""
    count = max(1, min(count, len(data)))
    heap = [(0, shard) for shard in range(count)]
    dealt: list[list[int]] = [[] for _ in range(count)]
    for client in np.argsort(-data.sizes, kind="stable"):
        held, shard = heap[0]
        dealt[shard].append(int(client))
        heapq.heapreplace(heap, (held + int(data.sizes[client]), shard))
    return [tuple(sorted(clients)) for clients in dealt if clients]


def spread(holders: dict[int, frozenset[int]], count: int) -> dict[int, frozenset[int]]:
    """Who should hold which of `count` shards: all are held, numbers differ by at most one, and as few as can be move."""
    if not holders:
        return {}
    kept: dict[int, list[int]] = {}
    free = set(range(count))
    order = sorted(holders, key=lambda worker: (-len(holders[worker]), worker))
    shares = {worker: count // len(order) + (place < count % len(order)) for place, worker in enumerate(order)}
    for worker in order:
        kept[worker] = sorted(holders[worker] & free)[: shares[worker]]
        free -= set(kept[worker])
    rest = sorted(free)
    for worker in order:
        wanted = shares[worker] - len(kept[worker])
        kept[worker] += rest[:wanted]
        rest = rest[wanted:]
    return {worker: frozenset(numbers) for worker, numbers in kept.items()}
