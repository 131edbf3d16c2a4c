"""Federations written out: as one .npz file or as a LEAF directory, both of which `load` reads back exactly.

"Exactly" is the fingerprint: the same clients in the same order with the same samples in the same parts. What LEAF's JSON
has no place for (dtype, shape, number of classes) stands in a small file beside it that other readers of LEAF ignore.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data.cache import Progress, silent
from fedgsp.data.readers.leaf import SIDECAR

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData, Rows, Split

BLOCK_ROWS = 4096
USERS_A_SHARD = 100
FORMATS = ("npz", "leaf")


def export(data: FederatedData, to: str, out: Path, progress: Progress = silent) -> None:
    """Write a federation so that `load` reads it back exactly: the same fingerprint.

    Args:
        data: The federation.
        to: "npz" for one file, "leaf" for a LEAF directory.
        out: Where; an existing file or directory is never replaced.
        progress: Called as the work goes on.

    Raises:
        InputError: If `out` exists or cannot be written, or the format cannot hold the data.
    """
    if to not in FORMATS:
        raise InputError(f"data can be exported to {' or '.join(FORMATS)}, not to '{to}'.")
    if out.exists():
        raise InputError(f"{out} exists already; name another place.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _export_npz(data, out, progress) if to == "npz" else _export_leaf(data, out, progress)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}.") from error


def _export_npz(data: FederatedData, out: Path, progress: Progress) -> None:
    odd = next((name for name in data.clients if name.endswith("\0")), None)
    if odd is not None:
        raise InputError(f"the client name {odd!r} ends in a zero character, which .npz cannot hold; export to leaf.")
    rows, owner, part = _in_order(data)
    with _scratch(out) as place, zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        _write_array(archive, "features", data.features, rows, progress)
        _write_array(archive, "labels", data.labels, rows, silent)
        small: dict[str, NDArray[Any]] = {
            "client_index": owner, "part": part, "clients": np.array(data.clients, dtype=np.str_),
            "classes": np.array(data.classes), "divisor": np.array(data.divisor),
        }  # fmt: skip
        for name, array in small.items():
            _write_array(archive, name, array, None, silent)


def _in_order(data: FederatedData) -> tuple[Rows, NDArray[np.int32], NDArray[np.uint8]]:
    """(rows, client, part), client by client and within each train, validation, test."""
    parts = (data.train, data.validation, data.test)
    rows = [part[client] for client in range(len(data)) for part in parts]
    sizes = [len(some) for some in rows]
    owner = np.repeat(np.repeat(np.arange(len(data), dtype=np.int32), 3), sizes)
    part = np.repeat(np.tile(np.arange(3, dtype=np.uint8), len(data)), sizes)
    return np.concatenate(rows).astype(np.int64), owner, part


def _write_array(archive: zipfile.ZipFile, name: str, array: NDArray[Any], rows: Rows | None, progress: Progress) -> None:
    """One array, in blocks: it may be larger than memory."""
    shape = array.shape if rows is None else (len(rows), *array.shape[1:])
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        header = {"descr": array.dtype.str, "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(member, header)
        if rows is None:
            member.write(np.ascontiguousarray(array).tobytes())
            return
        for begin in range(0, len(rows), BLOCK_ROWS):
            member.write(np.ascontiguousarray(array[rows[begin : begin + BLOCK_ROWS]]).tobytes())
            progress("writing", min(begin + BLOCK_ROWS, len(rows)), len(rows))


def _export_leaf(data: FederatedData, out: Path, progress: Progress) -> None:
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    written = 0
    with _scratch(out) as place:
        place.mkdir()
        for name, part in parts.items():
            if name == "validation" and not len(part.rows):
                continue
            (place / name).mkdir()
            for begin in range(0, len(data), USERS_A_SHARD):
                users = range(begin, min(begin + USERS_A_SHARD, len(data)))
                with (place / name / f"all_data_{begin // USERS_A_SHARD}_{name}.json").open("w", encoding="utf-8") as file:
                    _write_shard(file, data, part, users)
                    file.flush()
                    os.fsync(file.fileno())
                written += int(part.sizes[users.start : users.stop].sum())
                progress("writing", written, data.samples)
        note = {
            "schema": 1, "written_by": "fedgsp", "dtype": data.features.dtype.str, "shape": list(data.sample_shape),
            "divisor": data.divisor, "label_dtype": data.labels.dtype.str, "classes": data.classes,
        }  # fmt: skip
        (place / SIDECAR).write_text(json.dumps(note, indent=2), encoding="utf-8")


def _write_shard(file: TextIO, data: FederatedData, part: Split, users: range) -> None:
    """As LEAF's scripts write it; sample by sample, so that a shard need not fit in memory."""
    file.write('{"users": ' + json.dumps([data.clients[k] for k in users]))
    file.write(', "num_samples": ' + json.dumps([int(part.sizes[k]) for k in users]) + ', "user_data": {')
    pixels = data.features.dtype == np.uint8 and data.divisor == 255.0
    for place, k in enumerate(users):
        file.write((", " if place else "") + json.dumps(data.clients[k]) + ': {"x": [')
        for number, row in enumerate(part[k]):
            values = np.asarray(data.features[row]).reshape(-1)
            values = values / 255.0 if pixels else values.astype(np.uint8) if values.dtype.kind == "b" else values
            file.write((", " if number else "") + json.dumps(values.tolist()))
        file.write('], "y": ' + json.dumps(np.asarray(data.labels[part[k]]).tolist()) + "}")
    file.write("}}")


@contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A place beside `out` that takes its name only when it is whole."""
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        yield folder / out.name
        made = folder / out.name
        if made.is_file():
            with made.open("rb") as file:
                os.fsync(file.fileno())
        if out.exists():
            raise InputError(f"{out} exists already; name another place.")
        made.rename(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
