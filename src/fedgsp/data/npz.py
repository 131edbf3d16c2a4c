"""Federations in a NumPy .npz file: `features`/`images`, `labels`, `client_index`/`writer_index`, `clients`/`writers`."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.data.build import from_arrays, from_rows
from fedgsp.data.cache import Entry, get_or_build, save_array
from fedgsp.data.federated import FederatedData

NAMES = {
    "features": ("features", "images"),
    "labels": ("labels",),
    "client_index": ("client_index", "writer_index"),
    "clients": ("clients", "writers"),
}
FEDERATIONS = ("all", "femnist-368")
FEMNIST_CLASSES = 62
UNREADABLE = (ValueError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError, NotImplementedError, RuntimeError)
"""What numpy and zipfile raise on a damaged, encrypted or foreign file."""


def load_npz(
    path: str, *, federation: str = "all", classes: int | None = None, test: float = 0.1, seed: int = 0, min_samples: int = 1
) -> FederatedData:
    """Read an .npz federation; its arrays are copied once into the cache so that they can be memory-mapped."""
    entry = _prepare(Path(path))
    arrays = {name: entry.array(name) for name in NAMES if name != "clients"}
    names = [str(name) for name in entry.meta["clients"]] if entry.meta["clients"] is not None else None
    if federation == "femnist-368":
        data = _femnist_368(arrays, names, path)
    elif federation == "all":
        whole = from_arrays(
            arrays["features"], arrays["labels"], arrays["client_index"], names,
            classes=classes, test_fraction=test, data_seed=seed, where=path,
        )  # fmt: skip
        enough = np.flatnonzero(whole.sizes >= min_samples)
        if len(enough) == 0:
            raise InputError(f"{path}: no client has {min_samples} samples.")
        data = whole if len(enough) == len(whole) else whole.select(enough)
    else:
        raise InputError(f"unknown federation '{federation}' of {path}: {did_you_mean(federation, FEDERATIONS)}")
    return _remembering(data, entry)


def _femnist_368(arrays: dict[str, NDArray[Any]], names: list[str] | None, path: str) -> FederatedData:
    """The standard federation for studies: 368 of the writers with at least 20 samples, always the same ones."""
    index = np.asarray(arrays["client_index"])
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
        arrays["features"], arrays["labels"], [names[eligible[i]] for i in chosen], rows_of,
        FEMNIST_CLASSES, split_keys=chosen.tolist(),
    )  # fmt: skip


def _remembering(data: FederatedData, entry: Entry) -> FederatedData:
    from dataclasses import replace

    return replace(data, memo=entry.path)


def _prepare(path: Path) -> Entry:
    if not path.exists():
        raise InputError(f"there is no data file {path}.")
    try:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    return get_or_build(f"npz-{content[:32]}", lambda folder: _convert(path, folder))


def _convert(path: Path, folder: Path) -> dict[str, Any]:
    with _opened(path) as archive:
        found = {key: next((n for n in names if n in archive.files), None) for key, names in NAMES.items()}
        for key in ("features", "labels", "client_index"):
            name = found[key]
            if name is None:
                raise InputError(f"{path} has no array '{' or '.join(NAMES[key])}'; it has: {', '.join(archive.files)}.")
            save_array(folder, key, _read(archive, name, path))
        clients = _names(_read(archive, found["clients"], path), path) if found["clients"] else None
    return {"kind": "npz", "origin": path.name, "clients": clients}


def _opened(path: Path) -> NpzFile:
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is not an .npz archive; numpy.savez writes one.")
    try:
        archive: NpzFile = np.load(path, allow_pickle=False)
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be read as .npz: {error or type(error).__name__}.") from error
    return archive


def _read(archive: NpzFile, name: str, path: Path) -> NDArray[Any]:
    try:
        return np.asarray(archive[name])
    except UNREADABLE as error:
        reason = "it holds pickled objects" if "allow_pickle" in str(error) else str(error) or type(error).__name__
        raise InputError(f"{path}: the array '{name}' cannot be read: {reason}.") from error


def _names(array: NDArray[Any], path: Path) -> list[str]:
    if array.ndim != 1:
        raise InputError(f"{path}: the clients' names must be a flat array, not of shape {array.shape}.")
    return [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in array.tolist()]
