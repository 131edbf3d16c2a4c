"""A federation without its samples, for a server whose clients keep them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data.federated import FederatedData, Split


@dataclass(frozen=True, eq=False)
class DataOutline(FederatedData):
    """A federation without its samples: who has how many of each split. What a server plans, weighs and asks by.

    Features and labels are a single zero that is looked at as often as there are rows, so it takes no memory; rows are numbered
    split by split, client by client. Class counts are those that clients tell. `identity` takes the fingerprint's place.
    """

    identity: str = ""
    told: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))

    @property
    def _counts(self) -> NDArray[np.int64]:
        return self.told

    @property
    def fingerprint(self) -> str:
        """See `identity`."""
        return self.identity

    def count_tokens(self) -> int:
        """The largest token is not known here."""
        if super().count_tokens() and not self.vocabulary:
            raise InputError(
                "a server without samples cannot see how many tokens there are; give a model of your own that has the number."
            )
        return super().count_tokens()

    def with_validation(self, fraction: float, data_seed: int) -> FederatedData:
        """Clients have carved it out already."""
        return self


def stand_in(like: FederatedData, samples: int = 64) -> FederatedData:
    """Two clients with random samples of the same kind, for a server that has none but must try something out."""
    rng, shape, dtype = np.random.default_rng(0), like.sample_shape, like.features.dtype
    if np.issubdtype(dtype, np.floating):
        features = rng.normal(size=(2 * samples, *shape)).astype(dtype)
    else:
        features = rng.integers(0, 256 if dtype == np.uint8 else 2, (2 * samples, *shape)).astype(dtype)
    labels = rng.integers(0, like.classes, 2 * samples) if like.classes else rng.normal(size=2 * samples).astype(np.float32)
    train = Split.of([np.arange(samples), np.arange(samples, 2 * samples)])
    return FederatedData(
        features, labels, ("made up 1", "made up 2"), train, Split.empty(2), Split.empty(2), like.classes, like.divisor
    )
