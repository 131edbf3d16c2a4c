"""From a prepared cache entry to a federation: the last step of every reader, with the options that all of them share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.seeds import LARGEST_SEED, Purpose, generator
from fedgsp.data.arrays import check_labels, from_rows, rows_by
from fedgsp.data.class_labels import numbered
from fedgsp.data.federated import FederatedData, Rows, Split
from fedgsp.data.partitioners import PARTITIONERS, FeatureShift, Partitioner
from fedgsp.data.readers.entry_writer import UNSPLIT

if TYPE_CHECKING:
    from fedgsp.data.cache import Entry

FEMNIST_WRITER = re.compile(r"f\d{4}_\d{2}")
FEMNIST_CLASSES = 62


@dataclass(frozen=True)
class ReaderOptions:
    """Options that every source of files has.

    `classes`: how many (default: as many as the labels say). `test`: the share of each client's samples that is kept for
    testing where the source has no split of its own. `seed`: of that split and of a partition. `min_samples`: leave out
    smaller clients. `partition`: deal the samples to `clients` clients (iid, dirichlet, shards, quantity, feature_shift)
    instead of taking the clients that the source names, with `alpha`, `min_size`, `per_client` and `noise` as its parameters.
    """

    classes: int | None = None
    test: float = 0.1
    seed: int = 0
    min_samples: int = 1
    partition: str | None = None
    clients: int | None = None
    alpha: float | None = None
    min_size: int | None = None
    per_client: int | None = None
    noise: float | None = None

    def partitioner(self, where: str) -> Partitioner | None:
        """The partitioner these options describe, if any."""
        names = ("clients", "alpha", "min_size", "per_client", "noise")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.partition is None:
            if given:
                raise InputError(f"{where}: the option {next(iter(given))} needs a partition, e.g. partition=dirichlet.")
            return None
        if self.partition not in PARTITIONERS:
            raise InputError(f"{where}: unknown partition '{self.partition}': {did_you_mean(self.partition, PARTITIONERS)}")
        if "clients" not in given:
            raise InputError(f"{where}: partition={self.partition} needs clients=, how many there are to be.")
        kind: Any = PARTITIONERS[self.partition]
        odd = given.keys() - set(kind.__dataclass_fields__)
        if odd:
            raise InputError(f"{where}: the partition '{self.partition}' has no option '{min(odd)}'.")
        made: Partitioner = kind(**given)
        return made


def federate(entry: Entry, common: ReaderOptions, where: str) -> FederatedData:
    """The federation in a cache entry (arrays features, labels and, where known, client_index and part)."""
    features, labels = entry.array("features"), np.asarray(entry.array("labels"))
    dealt = common.partitioner(where)
    if dealt is not None:
        data = deal(features, labels, dealt, common, entry.meta.get("classes"), where)
    elif not entry.has("client_index"):
        raise InputError(
            f"{where} does not say whose each sample is; name a client column, or deal it: partition=iid,clients=10."
        )
    else:
        data = _owned(entry, features, labels, common, where)
    divisor = None if isinstance(dealt, FeatureShift) else entry.meta.get("divisor")
    known = tuple(map(str, entry.meta.get("class_names") or data.class_names))
    told = {"class_names": known, "vocabulary": int(entry.meta.get("vocabulary", 0)), "padding": entry.meta.get("padding")}
    memo = None if isinstance(dealt, FeatureShift) else entry.path  # what is remembered is of the features as they are there
    return replace(data, memo=memo, divisor=data.divisor if divisor is None else float(divisor), **told)


def deal(
    features: NDArray[Any], labels: NDArray[Any], how: Partitioner, common: ReaderOptions, classes: int | None, where: str
) -> FederatedData:
    """Central data, dealt to clients named 0, 1, .. and split."""
    check_seed(common.seed)
    classes = classes if common.classes is None else common.classes
    told = numbered(labels, classes, where)
    labels = told.labels
    classes = check_labels(labels, classes, where)
    rng = generator(common.seed, Purpose.PARTITION)
    owner = how.assign(labels, rng)
    if isinstance(how, FeatureShift):
        features = how.shifted(features, owner, rng)
    owned = rows_by(owner, how.clients)
    names = [str(k) for k in range(how.clients)]
    data = from_rows(features, labels, names, owned, classes, test_fraction=common.test, data_seed=common.seed)
    return replace(data, class_names=told.names, notes=told.notes)


def _owned(entry: Entry, features: NDArray[Any], labels: NDArray[Any], common: ReaderOptions, where: str) -> FederatedData:
    check_seed(common.seed)
    owner = np.asarray(entry.array("client_index")).astype(np.int64)
    names = entry.meta.get("clients")
    if names is None:
        names = [str(k) for k in range(int(owner.max()) + 1)]
    classes = common.classes
    if classes is None:
        classes = entry.meta.get("classes")
    if classes is None and labels.dtype.kind != "f" and all(FEMNIST_WRITER.fullmatch(name) for name in names):
        classes = max(FEMNIST_CLASSES, int(labels.max()) + 1)
    classes = check_labels(labels, classes, where)
    part = np.asarray(entry.array("part")) if entry.has("part") else None
    if part is None or (part == UNSPLIT).all():
        owned = rows_by(owner, len(names))
        data = from_rows(features, labels, names, owned, classes, test_fraction=common.test, data_seed=common.seed)
    else:
        data = _with_splits(features, labels, names, owner, part, classes)
    enough = np.flatnonzero(data.sizes >= common.min_samples)
    if len(enough) == 0:
        raise InputError(f"{where}: no client has {common.min_samples} samples.")
    return data if len(enough) == len(data) else data.select(enough)


def _with_splits(
    features: NDArray[Any], labels: NDArray[Any], names: Sequence[str], owner: Rows, part: NDArray[Any], classes: int
) -> FederatedData:
    """A federation that came with its split: train, validation and test are kept, each in the order of the source."""
    groups = rows_by(owner * 3 + part, 3 * len(names))
    return FederatedData(
        features=features,
        labels=labels,
        clients=tuple(names),
        train=Split.of(groups[0::3]),
        validation=Split.of(groups[1::3]),
        test=Split.of(groups[2::3]),
        classes=classes,
        divisor=255.0 if features.dtype == np.uint8 else 1.0,
    )


def check_seed(seed: int) -> None:
    """Seeds fit 32 bits, everywhere."""
    if not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"a seed is a whole number from 0 to {LARGEST_SEED}, not {seed}.")
