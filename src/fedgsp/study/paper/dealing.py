"""The same samples, dealt to clients in other ways: what studies about skew and about few clients run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.data.in_memory import partition
from fedgsp.data.partitioners import IID, Dirichlet, Partitioner, Shards

if TYPE_CHECKING:
    from fedgsp.data import FederatedData

OWN = "own clients"
FEWEST = 10
"""Samples that every client has, so that all have some to train on and some to be judged on."""
SKEWS: Mapping[str, Callable[[int], Partitioner] | None] = {
    "i.i.d.": IID,
    OWN: None,
    "Dirichlet(1)": lambda clients: Dirichlet(clients, 1.0, FEWEST),
    "Dirichlet(0.1)": lambda clients: Dirichlet(clients, 0.1, FEWEST),
    "two classes": lambda clients: Shards(clients, 2),
}
"""From none to much: a random share each, the data's own clients (or some of them), and the usual ways to make label skew."""


@dataclass(frozen=True)
class Dealing:
    """A way to deal a federation's samples to so many clients.

    Args:
        skew: One of `SKEWS`.
        clients: How many clients there will be.

    Raises:
        InputError: There is no such way.
    """

    skew: str
    clients: int

    def __post_init__(self) -> None:
        if self.skew not in SKEWS:
            raise InputError(f"unknown skew '{self.skew}': {did_you_mean(self.skew, SKEWS)}")

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"{self.skew}, {self.clients}"

    def of(self, data: FederatedData) -> FederatedData:
        """The federation with the same samples in other hands; for the data's own clients, a random choice of them."""
        make = SKEWS[self.skew]
        if make is None:
            return data if self.clients >= len(data) else data.subset(self.clients, 0)
        rows = np.sort(np.concatenate([data.train.rows, data.validation.rows, data.test.rows]))
        made = partition((data.features[rows], data.labels[rows]), make(self.clients), classes=data.classes)
        return replace(made, divisor=data.divisor, class_names=data.class_names)
