"""A small set of samples on the server (Yao et al. 2019's D_meta): a share of the clients' training samples, uploaded once.

The rows stay with their clients as well. `classes="as found"` draws from all training samples alike; "uniform" draws as many
of every class as there are (each class gets the same number, or all it has): the distribution a model is wanted for is the
user's choice, which is what "controllable" means. Traffic: a sample's features and label for each. Privacy: these are raw
samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Purpose, generator
from fedgsp.prepare.preparation import Preparation, Prepared

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData


@dataclass(frozen=True)
class MetaSet(Preparation):
    """A `share` of the training samples, at least one, held by the server too.

    Args:
        share: Share of the training samples that the server gets.
        classes: Drawn as they are found, or as many of every class.
    """

    kind: ClassVar[str] = "meta-set"

    share: float = 0.01
    classes: Literal["as found", "uniform"] = "as found"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"the preparation 'meta-set': share must be above 0 and at most 1, not {self.share}.")
        if self.classes not in ("as found", "uniform"):
            raise InputError(f"the preparation 'meta-set': classes must be 'as found' or 'uniform', not '{self.classes}'.")

    def prepare(self, data: FederatedData, clients: NDArray[np.int64], data_seed: int) -> Prepared:
        """Draw the rows; the clients' data is left as it is."""
        rows = np.concatenate([data.train[int(client)] for client in clients])
        rng, wanted = generator(data_seed, Purpose.META), max(1, round(self.share * len(rows)))
        if self.classes == "uniform":
            if not data.classes:
                raise InputError("the preparation 'meta-set': classes = 'uniform' needs data with classes.")
            labels = np.asarray(data.labels[rows])
            each = max(1, wanted // data.classes)
            parts = [rng.permutation(rows[labels == label])[:each] for label in range(data.classes)]
            drawn = np.sort(np.concatenate(parts))
        else:
            drawn = np.sort(rng.choice(rows, wanted, replace=False))
        sample = data.features[:1].nbytes + data.labels[:1].nbytes
        note = f"the server holds {len(drawn)} training samples of the clients' ({len(drawn) / len(rows):.1%}), raw."
        return Prepared(data, len(drawn) * sample, (note,), server_rows=drawn)
