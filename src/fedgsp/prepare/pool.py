"""Hybrid-FL (Yoshida et al. 2020): a few clients upload their data, and the server trains on that pool like one more client.

    before round 1:  a share p of the clients (at least one) sends all its training samples up;   pool = a class-balanced part:
                     of each class as many as there are, up to the median over the classes that occur
    every round:     w <- (|pool| w_server + sum_k n_k w_k) / (|pool| + sum_k n_k),   w_server from E epochs on the pool

This is the smallest version: the paper's choice of clients by deadline and bandwidth is left to the planner. Those who uploaded
go on as clients. The pool is the client called `server pool`, with the last number, in a chain of its own every round (planner
`with-pool`); nothing is sent to or from it. Traffic: once a sample's bytes for each that was uploaded, then as FedAvg.

To tune: p over 0.01, 0.02, 0.05; the client's lr as for FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Purpose, generator
from fedgsp.data.federated import FederatedData, Split
from fedgsp.prepare.preparation import Preparation, Prepared, drawn_by_class, sample_bytes

SERVER = "server pool"


@dataclass(frozen=True, kw_only=True)
class PoolData(Preparation):
    """Gather the training samples of a share `p` of the clients at the server.

    Args:
        p: Share of the clients that upload their samples.
    """

    kind: ClassVar[str] = "pool-data"

    p: float = 0.01

    pools: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise InputError(f"the preparation 'pool-data': p must be above 0 and at most 1, not {self.p}.")

    def prepare(self, data: FederatedData, clients: NDArray[np.int64], data_seed: int) -> Prepared:
        """Add the pool as one more client, behind all others."""
        if not data.classes:
            raise InputError("hybrid-fl balances the classes of its pool, and this data has none (it is a regression).")
        rng = generator(data_seed, Purpose.POOL)
        count = max(1, floor(self.p * len(clients)))
        givers = np.sort(rng.choice(clients, count, replace=False))
        rows = data.train.take(givers).rows
        labels = np.asarray(data.labels[rows]).astype(np.int64)
        counts = np.bincount(labels)
        pool = drawn_by_class(labels, rows, max(1, int(np.median(counts[counts > 0]))), rng)
        nothing = np.empty(0, dtype=np.int64)
        widened = replace(
            data,
            clients=(*data.clients, SERVER),
            train=Split.of([*data.train, pool]),
            validation=Split.of([*data.validation, nothing]),
            test=Split.of([*data.test, nothing]),
            memo=None,
        )
        note = f"{count} client(s) uploaded {len(rows)} training samples; the server trains on {len(pool)} of them."
        return Prepared(widened, len(rows) * sample_bytes(data), (note,), at_server=(len(data),))
