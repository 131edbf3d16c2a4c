"""The shape of every preparation: from the clients' data to what they train on from round 1, with its traffic counted."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.part import Part
from fedgsp.data.federated import FederatedData, Rows

LABEL_BYTES = 4
"""A class label on the wire."""


@dataclass(frozen=True)
class WarmUp:
    """Samples that the server trains the initial model on before round 1, and for how many epochs.

    Args:
        rows: The samples.
        epochs: How often each is trained on.
    """

    rows: Rows
    epochs: int


@dataclass(frozen=True)
class Prepared:
    """What a preparation leaves behind.

    `data` is what clients train on: rows may have been added at the end of the arrays, left out of a client's training part or
    put into several, none moved, so that test and validation rows are still where they were. `bytes` were sent for it,
    down and up. Clients `set_aside` have no further part in the run: they neither train nor are they judged. `warm_up` changes
    the initial weights. `at_server` are numbers of clients that were added at the end of `data`: the server's own samples,
    which train like a client's but to and from which nothing is sent.
    `server_rows` are rows of `data` that the server holds as well, for rules that train there (`fedgsp.server.Meta`).

    Args:
        data: What clients train on.
        bytes: What was sent for it.
        notes: Sentences for the run's first lines.
        set_aside: Clients that have no further part in the run.
        warm_up: What the initial model is trained on; None: nothing.
        at_server: Clients that are the server's own samples.
        server_rows: Rows that the server holds as well.
    """

    data: FederatedData
    bytes: int = 0
    notes: tuple[str, ...] = ()
    set_aside: tuple[int, ...] = ()
    warm_up: WarmUp | None = None
    at_server: tuple[int, ...] = ()
    server_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class Preparation(Part):
    """The base of all preparations: done once before round 1, and again on resume, to the same bits."""

    pools: ClassVar[bool] = False
    """Whether it adds a client at the server, which the planner `WithPool` trains in every round."""

    @abstractmethod
    def prepare(self, data: FederatedData, clients: NDArray[np.int64], data_seed: int) -> Prepared:
        """From the clients' data to what they train on: a pure function of its arguments.

        Args:
            data: The federation as it came.
            clients: Those that may train; the others' data is not touched.
            data_seed: The seed of whatever is drawn.

        Returns:
            What the run goes on with, and what it cost.
        """


def sample_bytes(data: FederatedData) -> int:
    """What one raw sample is on the wire: its features as they are stored, and its label."""
    return int(np.prod(data.sample_shape, dtype=np.int64)) * data.features.dtype.itemsize + LABEL_BYTES


def level_for(counts: NDArray[np.int64], budget: int) -> int:
    """The largest level L with sum_y min(counts_y, L) <= budget: as many of each class as there are, up to the same number."""
    level = 0
    for step in np.unique(counts[counts > 0]).tolist():
        above = int((counts > level).sum())
        spent = int(np.minimum(counts, level).sum())
        reach = min(step, level + (budget - spent) // above)
        level = reach
        if reach < step:
            break
    return level


def drawn_by_class(
    labels: NDArray[np.int64], rows: Rows, level: int, rng: np.random.Generator
) -> Rows:  # fmt: skip
    """At most `level` rows of each class, drawn at random, sorted."""
    chosen = [rng.permutation(rows[labels == label])[:level] for label in np.unique(labels)]
    return np.sort(np.concatenate(chosen)) if chosen else rows[:0]
