"""Federations in a NumPy .npz file: `features`/`images`, `labels`, `client_index`/`writer_index`, `clients`/`writers`.

`fedgsp data export` adds `part` (0 train, 1 validation, 2 test), `classes` and `divisor`, so that a federation comes back
exactly as it was. The archive is copied member by member into the cache, never through memory, and nothing in it is trusted:
see `npz_archive`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.data.arrays import check_features, check_labels, client_names, from_rows
from fedgsp.data.assemble import ReaderOptions, federate
from fedgsp.data.cache import Entry, Progress, get_or_build, save_array, silent
from fedgsp.data.digests import digest_of
from fedgsp.data.readers.npz_archive import Archive, open_archive

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData

NAMES = {
    "features": ("features", "images"),
    "labels": ("labels",),
    "client_index": ("client_index", "writer_index"),
    "clients": ("clients", "writers"),
    "part": ("part",),
    "classes": ("classes",),
    "divisor": ("divisor",),
}
FEDERATIONS = ("all", "femnist-368")
FEMNIST_CLASSES = 62


def load_npz(path: str, *, federation: str = "all", progress: Progress = silent, **common: Any) -> FederatedData:
    """Read an .npz federation; its arrays are copied once into the cache so that they can be memory-mapped."""
    options = ReaderOptions(**common)
    entry = _prepare(Path(path), progress)
    if federation == "femnist-368":
        return replace(_femnist_368(entry, path), memo=entry.path)
    if federation == "all":
        if not entry.has("client_index") and options.partition is None:
            raise InputError(
                f"{path} has no array '{' or '.join(NAMES['client_index'])}'; it has: {', '.join(entry.meta['arrays'])}. "
                f"To deal its samples to clients, say partition=iid,clients=10."
            )
        return federate(entry, options, path)
    raise InputError(f"unknown federation '{federation}' of {path}: {did_you_mean(federation, FEDERATIONS)}")


def _femnist_368(entry: Entry, path: str) -> FederatedData:
    """The standard federation for studies: 368 of the writers with at least 20 samples, always the same ones."""
    names = entry.meta["clients"] if entry.has("client_index") else None
    index = np.asarray(entry.array("client_index")) if names else np.empty(0, dtype=np.int64)
    counts = np.bincount(index, minlength=len(names or ()))
    eligible = sorted(np.flatnonzero(counts >= 20).tolist(), key=lambda k: names[k] if names else k)
    if names is None or len(eligible) != 526:
        raise InputError(
            f"{path}: the federation femnist-368 is defined on a file with 526 named writers of at least 20 samples; "
            f"this one has {len(eligible)}."
        )
    chosen = np.sort(np.random.default_rng(0).permutation(526)[:368])
    rows_of = [np.flatnonzero(index == eligible[i]) for i in chosen]
    return from_rows(
        entry.array("features"), entry.array("labels"), [names[eligible[i]] for i in chosen], rows_of,
        FEMNIST_CLASSES, split_keys=chosen.tolist(),
    )  # fmt: skip


def _prepare(path: Path, progress: Progress) -> Entry:
    if not path.exists():
        raise InputError(f"there is no data file {path}.")
    return get_or_build(f"npz-v2-{digest_of(path)[:32]}", lambda folder: _convert(path, folder, progress))


def _convert(path: Path, folder: Path, progress: Progress) -> dict[str, Any]:
    with open_archive(path) as archive:
        found = {key: next((n for n in names if n in archive.names), None) for key, names in NAMES.items()}
        for key in ("features", "labels"):
            if found[key] is None:
                there = ", ".join(archive.names)
                raise InputError(f"{path} has no array '{' or '.join(NAMES[key])}'; it has: {there or 'nothing'}.")
        archive.copy(str(found["features"]), folder / "features.npy", progress)
        labels = archive.read(str(found["labels"]))
        index = archive.read(found["client_index"]) if found["client_index"] else None
        part = archive.read(found["part"]) if found["part"] else None
        meta: dict[str, Any] = {key: _single(archive, found[key], path) for key in ("classes", "divisor")}
        meta["arrays"] = archive.names
        clients = archive.read(found["clients"]) if found["clients"] else None
    features = np.load(folder / "features.npy", mmap_mode="r", allow_pickle=False)
    meta.update(_check(path, features, labels, index, clients, part, meta))
    save_array(folder, "labels", labels)
    if index is not None:
        save_array(folder, "client_index", index)
    if part is not None:
        save_array(folder, "part", part.astype(np.uint8))
    return {"kind": "npz", "origin": path.name, **meta}


def _check(
    path: Path, features: NDArray[Any], labels: NDArray[Any], index: NDArray[Any] | None, clients: NDArray[Any] | None,
    part: NDArray[Any] | None, meta: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Everything that a person's own file may get wrong, found once, when it is converted."""
    where = str(path)
    if features.ndim == 0 or labels.ndim == 0:
        raise InputError(f"{where}: features and labels must have one entry for each sample.")
    count = len(features)
    lengths = {"features": features, "labels": labels, "client numbers": index, "part numbers": part}
    counts = {name: len(np.atleast_1d(array)) for name, array in lengths.items() if array is not None}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{number} {name}" for name, number in counts.items())
        raise InputError(f"{where}: unequal lengths: {shown}; they must be one for each sample.")
    if count == 0:
        raise InputError(f"{where} has no samples.")
    if clients is not None and clients.ndim != 1:
        raise InputError(f"{where}: the clients' names must be a flat array, not of shape {clients.shape}.")
    if clients is not None and clients.dtype.kind not in "USiu":
        raise InputError(f"{where}: the clients' names are {clients.dtype}, not texts.")
    names: tuple[str, ...] = ("?",)
    owner: NDArray[Any] = np.zeros(count, dtype=np.int64)
    if index is not None:
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise InputError(f"{where}: client numbers must be whole numbers, one for each sample, not {index.dtype}.")
        names, owner = client_names(None if clients is None else clients.tolist(), index, where), index
        missing = np.flatnonzero(np.bincount(index.astype(np.int64), minlength=len(names)) == 0)
        if len(missing) and part is None:
            raise InputError(f"{where}: client '{names[int(missing[0])]}' is empty; remove it or give it samples.")
    if part is not None and (part.ndim != 1 or part.dtype.kind not in "iu" or not np.isin(part, (0, 1, 2)).all()):
        raise InputError(f"{where}: 'part' must be 0 (train), 1 (validation) or 2 (test) for each sample.")
    check_features(features, owner, names, where)
    check_labels(labels, None if labels.dtype.kind != "f" else 0, where)
    if meta["divisor"] is not None and not meta["divisor"] > 0:
        raise InputError(f"{where}: 'divisor' must be positive.")
    named = list(names) if index is not None else None
    return {"clients": named, "clients_count": len(names) if named else None, "samples": count}


def _single(archive: Archive, name: str | None, path: Path) -> int | float | None:
    if name is None:
        return None
    value = archive.read(name)
    if value.size != 1 or value.dtype.kind not in "iuf" or not np.isfinite(value).all():
        raise InputError(f"{path}: '{name}' must be a single number.")
    number: int | float = value.reshape(()).item()
    return number
