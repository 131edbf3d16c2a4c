"""The shape of every preparation: from the clients' data to what they train on from round 1, with its traffic counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedgsp.data.federated import FederatedData


@dataclass(frozen=True)
class Prepared:
    """What a preparation leaves behind.

    `data` is what clients train on: rows may have been added at the end of the arrays or left out of a client's training
    part, none moved, so that test and validation rows are still where they were. `bytes` were sent for it, down and up.
    `server_rows` are rows of `data` that the server holds as well, for rules that train there (`fedgsp.server.Meta`).
    """

    data: FederatedData
    bytes: int = 0
    notes: tuple[str, ...] = ()
    server_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class Preparation(Protocol):
    """Done once before round 1, and again on resume, to the same bits."""

    def prepare(self, data: FederatedData, clients: NDArray[np.int64], data_seed: int) -> Prepared:
        """A pure function of its arguments; `clients` are those that may train, the others' data is not touched."""
        ...
