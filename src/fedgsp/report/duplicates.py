"""Samples that are there more than once: within a client, across clients, and (what spoils results) in train and test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedgsp.data.cache import Progress, silent

if TYPE_CHECKING:
    from fedgsp.data import FederatedData

BLOCK_ROWS = 2048


@dataclass(frozen=True)
class Duplicates:
    """How many samples repeat another one's features exactly.

    `within_clients`: repeats inside a client's own samples. `across_clients`: distinct samples that more than one client
    holds. `test_in_train`: test samples whose features some client trains on; `test_in_own_train`: the same client.
    `conflicting`: distinct samples that carry more than one label.
    """

    within_clients: int
    across_clients: int
    test_in_train: int
    test_in_own_train: int
    conflicting: int


def duplicates(data: FederatedData, progress: Progress = silent) -> Duplicates:
    """Count exact repeats, by a 64-bit digest of each sample's bytes."""
    parts = (data.train, data.validation, data.test)
    rows = np.concatenate([part.rows for part in parts])
    owner = np.concatenate([np.repeat(np.arange(len(data)), part.sizes) for part in parts])
    kind = np.repeat(np.arange(3), [len(part.rows) for part in parts])
    digests = _digests(data, rows, progress)
    same = np.unique(digests, return_inverse=True)[1]
    mine = np.unique(np.stack([owner, same]), axis=1)
    holders = np.bincount(mine[1])
    labels = np.asarray(data.labels[rows]).reshape(len(rows), -1)[:, 0]
    labelled = np.unique(np.stack([same, np.unique(labels, return_inverse=True)[1]]), axis=1)
    train, test = kind == 0, kind == 2
    pair = owner * (int(same.max(initial=0)) + 1) + same
    return Duplicates(
        within_clients=len(rows) - mine.shape[1],
        across_clients=int((holders > 1).sum()),
        test_in_train=int(np.isin(same[test], same[train]).sum()),
        test_in_own_train=int(np.isin(pair[test], pair[train]).sum()),
        conflicting=int((np.bincount(labelled[0]) > 1).sum()),
    )


def _digests(data: FederatedData, rows: NDArray[np.int64], progress: Progress) -> NDArray[np.uint64]:
    made = np.empty(len(rows), dtype=np.uint64)
    order = np.argsort(rows, kind="stable")  # memory-mapped: read in the order of the file
    for begin in range(0, len(rows), BLOCK_ROWS):
        some = order[begin : begin + BLOCK_ROWS]
        block = np.ascontiguousarray(data.features[rows[some]])
        flat = block.reshape(len(block), -1).view(np.uint8) if block.size else block.reshape(len(block), 0)
        digests = b"".join(hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in flat)
        made[some] = np.frombuffer(digests, dtype=np.uint64)
        progress("looking for duplicates", begin + len(some), len(rows))
    return made
