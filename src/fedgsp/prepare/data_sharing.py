"""Data sharing (Zhao et al. 2018): a small set that looks like everybody is given to all clients, and warms the model up.

    G: class-uniform, disjoint from the clients' data D, |G| = beta |D|
    w_0 = SGD on G for `warm_up` epochs;   client k trains on D_k + G_k,   G_k a random share alpha of G;   n_k counts both

G comes from the training samples of a share `donors` of the clients, drawn at random and set aside: they neither train nor are
they judged, so nothing is counted twice and test samples come from neither. As many of each class are taken as there are, up to
the same number L, the largest with |G| <= beta |D|: rare classes limit it, and a note says how far.

Every other client downloads its G_k once: alpha |G| samples of features and label. The warm-up model costs nothing more, it is
what round 1 sends anyway. With alpha = 0 and warm_up = 0 it is FedAvg without the donors, to the bit. Methods without extra
data are at a disadvantage beside it: say so where figures are compared.

To tune: beta over 0.025, 0.05, 0.1, 0.25, alpha over 0.05, 0.5, 1; the client's lr as for FedAvg.
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
from fedgsp.prepare.preparation import Preparation, Prepared, WarmUp, drawn_by_class, level_for, sample_bytes


@dataclass(frozen=True, kw_only=True)
class ShareData(Preparation):
    """Share a class-uniform set, and start from a model that was trained on it.

    Args:
        alpha: Share of the common set that each client gets.
        beta: Size of the common set, as a share of the clients' samples.
        donors: Share of the clients that it is taken from; they are set aside.
        warm_up: Epochs that the initial model is trained on it for.
    """

    kind: ClassVar[str] = "share-data"

    alpha: float = 0.5
    beta: float = 0.1
    donors: float = 0.1
    warm_up: int = 5

    def __post_init__(self) -> None:
        who = "the preparation 'share-data'"
        if not 0 <= self.alpha <= 1:
            raise InputError(
                f"{who}: alpha must be from 0 to 1, not {self.alpha}; it is the share of the set that a client gets."
            )
        for name in ("beta", "donors"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{who}: {name} must be above 0 and below 1, not {getattr(self, name)}.")
        if self.warm_up < 0:
            raise InputError(f"{who}: warm_up must be at least 0 epochs, not {self.warm_up}.")

    def prepare(self, data: FederatedData, clients: NDArray[np.int64], data_seed: int) -> Prepared:
        """Set donors aside, build G, give everybody else a share of it."""
        if not data.classes:
            raise InputError("data sharing balances classes, and this data has none (it is a regression).")
        if len(clients) < 2:
            raise InputError("data sharing sets clients aside for the shared set, and there is only one.")
        rng = generator(data_seed, Purpose.SHARE, 0)
        count = min(len(clients) - 1, max(1, floor(self.donors * len(clients))))
        aside = np.sort(rng.choice(clients, count, replace=False))
        rest = np.setdiff1d(clients, aside)
        rows = data.train.take(aside).rows
        labels = np.asarray(data.labels[rows]).astype(np.int64)
        counts = np.bincount(labels, minlength=data.classes)
        budget = floor(self.beta * int(data.train.sizes[rest].sum()))
        shared = drawn_by_class(labels, rows, level_for(counts, budget), rng)
        if not len(shared):
            raise InputError(
                f"data sharing: beta = {self.beta:g} leaves room for {budget} shared samples of {int((counts > 0).sum())} "
                f"classes, not one of each; take a larger beta."
            )
        each = floor(self.alpha * len(shared))
        rows_of = list(data.train)
        for client in rest.tolist():
            drawn = generator(data_seed, Purpose.SHARE, client + 1).choice(len(shared), each, replace=False)
            rows_of[client] = np.concatenate([rows_of[client], shared[np.sort(drawn)]])
        note = (
            f"{count} of {len(clients)} clients were set aside for a shared set of {len(shared)} samples (budget {budget}, "
            f"{data.classes - int((counts > 0).sum())} classes missing); every other client was sent {each} of them."
        )
        return Prepared(
            replace(data, train=Split.of(rows_of), memo=None),
            each * len(rest) * sample_bytes(data),
            (note,),
            set_aside=tuple(aside.tolist()),
            warm_up=WarmUp(shared, self.warm_up),
        )
