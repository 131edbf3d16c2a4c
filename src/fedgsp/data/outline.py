"""A federation without its samples, for a server whose clients keep them, and how much each of them counts.

What clients say of themselves is not proved by anything. So a part (training, validation, test) of a client takes one row here,
however many samples it announces, and it counts for at most a multiple of what the middle one of all clients announces: a
minority cannot move a median.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.core.profiles import Profiles
from fedgsp.data.federated import FederatedData, Rows, Split


@dataclass(frozen=True, eq=False)
class CountedSplit(Split):
    """A split of which is also known what clients announced and what they count for.

    Args:
        rows: As in `Split`. In an outline, one row for each client that has samples at all.
        offsets: As in `Split`.
        announced: (K,) how many samples each client says it has.
        believed: (K,) how many of them count.
    """

    announced: Rows = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    believed: Rows = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def sizes(self) -> Rows:
        """(K,) samples per client, as announced."""
        return self.announced

    @property
    def counted(self) -> Rows:
        """(K,) the samples that each client counts for."""
        return self.believed

    def take(self, clients: Sequence[int] | Rows) -> CountedSplit:
        """The same split for some of the clients, in the order given."""
        chosen, some = super().take(clients), np.asarray(clients, dtype=np.int64)
        return CountedSplit(chosen.rows, chosen.offsets, self.announced[some], self.believed[some])


def outlined(announced: Rows, believed: Rows, first: int) -> CountedSplit:
    """A split without samples, whose rows are numbered from `first` on."""
    offsets = np.concatenate([[0], np.cumsum(announced > 0)]).astype(np.int64)
    return CountedSplit(np.arange(first, first + offsets[-1], dtype=np.int64), offsets, announced, believed)


def capped(sizes: Rows, bound: float | None) -> Rows:
    """(K,) sizes of which none counts for more than `bound` times the (lower) median of those above 0; None: no limit.

    Args:
        sizes: (K,) what clients announce.
        bound: The multiple, at least 1.

    Returns:
        (K,) what they count for.

    Example:
        >>> capped(np.array([10, 0, 12, 14, 1000000]), 5.0).tolist()
        [10, 0, 12, 14, 60]
    """
    there = np.sort(sizes[sizes > 0])
    if bound is None or len(there) == 0:
        return sizes
    return np.asarray(np.minimum(sizes, int(bound * int(there[(len(there) - 1) // 2]))), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class DataOutline(FederatedData):
    """A federation without its samples: who has how many of each split. What a server plans, weighs and asks by.

    Features and labels are a single zero that is looked at as often as there are rows, so it takes no memory; rows are numbered
    split by split, client by client. Class counts are those that clients tell, by their numbers. `identity` takes the
    fingerprint's place.
    """

    identity: str = ""
    told: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Samples of all splits of all clients, as announced."""
        return int(self.train.sizes.sum() + self.validation.sizes.sum() + self.test.sizes.sum())

    def profiles(self, clients: Rows | None = None) -> Profiles:
        """See `FederatedData.profiles`: the counts are those that were told."""
        chosen = np.arange(len(self)) if clients is None else clients
        counts = np.zeros((len(chosen), max(1, self.classes)), dtype=np.int64)
        for place, client in enumerate(chosen):
            own = self.told.get(int(client), ())
            counts[place, : len(own)] = own
        return Profiles(chosen.astype(np.int64), counts, self.train.counted[chosen])

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


def recounted(data: FederatedData, counted: Mapping[str, Rows]) -> FederatedData:
    """The same samples, of which clients count for as many as `counted` says, split by split."""

    def split(name: str) -> Split:
        own: Split = getattr(data, name)
        return CountedSplit(own.rows, own.offsets, own.sizes, counted[name])

    return replace(data, train=split("train"), validation=split("validation"), test=split("test"))


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
