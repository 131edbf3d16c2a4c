"""LEAF's JSON (Caldas et al. 2018): `leaf:DIR`, with train/ and test/ kept as LEAF split them, or one folder to be split.

A shard is `{"users": [..], "num_samples": [..], "user_data": {user: {"x": [..], "y": [..]}}}`. Sets of many GB are converted
once, shard by shard, in bounded memory, into a memory-mapped cache entry keyed by what is in the files.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.core.imports import import_named
from fedgsp.data.assemble import ReaderOptions, federate
from fedgsp.data.cache import Entry, Progress, get_or_convert, silent
from fedgsp.data.digests import digest_of_files
from fedgsp.data.readers.encoding import parse_shape
from fedgsp.data.readers.entry_writer import SPLITS, UNSPLIT
from fedgsp.data.readers.leaf_convert import Encoder, LeafFile, convert
from fedgsp.data.readers.leaf_pictures import CELEBA, CLASSES, PictureEncoder, picture_encoder
from fedgsp.data.readers.leaf_text import ENCODERS, TextEncoder

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData

VERSION = 1
SIDECAR = "fedgsp.json"
UNMATCHED = ("refuse", "keep", "drop")
SMALLEST_SQUARE = 64


def load_leaf(
    path: str,
    *,
    shape: str = "",
    encoder: str | Encoder | None = None,
    unmatched: str = "refuse",
    images: str = "",
    size: str = "",
    progress: Progress = silent,
    **common: Any,
) -> FederatedData:
    """Read a LEAF directory; it is converted once, into the cache.

    Args:
        path: The directory with train/ and test/, or with JSON files to be split.
        shape: What a sample's numbers are arranged in ("28x28", "flat"); square pixel images are found by themselves.
        encoder: "shakespeare" or "sent140" for text, "celeba" for names of pictures, or a function (or its name,
            `package.module:function`) from a client's raw x and y lists to arrays.
        unmatched: What to do about clients that are in train/ or in test/ only: "refuse", "keep" or "drop" them.
        images: For "celeba": the folder of the pictures; "": where LEAF's scripts want it, `raw/img_align_celeba`.
        size: For "celeba": "WIDTHxHEIGHT" that pictures are brought to; "": LEAF's 84x84.
        progress: Called as the work goes on.
        **common: Options that all readers share: classes, test, seed, min_samples, partition and its parameters.

    Returns:
        The federation.

    Raises:
        InputError: If the directory or a file in it cannot be read; the sentence names the file and the client.
    """
    options = ReaderOptions(**common)
    known = ENCODERS.get(encoder) if isinstance(encoder, str) else None
    if known is not None:
        encoder = known
        options = options if options.classes is not None else replace(options, classes=known.classes)
    if unmatched not in UNMATCHED:
        raise InputError(f"unmatched must be one of {', '.join(UNMATCHED)}, not '{unmatched}'.")
    wanted = parse_shape(shape)
    folder = Path(path)
    shards = find_shards(folder)
    if encoder == CELEBA:
        encoder = picture_encoder(folder, images, size)
        options = options if options.classes is not None else replace(options, classes=len(CLASSES))
    elif images or size:
        raise InputError(f"{path}: images= and size= are for encoder=celeba.")
    sidecar = read_sidecar(folder)
    entry = _prepare(folder, shards, sidecar, encoder, progress)
    keep = _matched(entry, unmatched, path)
    data = federate(entry, options, path)
    if keep is not None and options.partition is None:
        data = data.select([k for k, name in enumerate(data.clients) if name in keep])
        if len(data) == 0:
            raise InputError(f"{path}: no client is in both train/ and test/.")
    if known is not None:
        data = replace(data, vocabulary=known.vocabulary, padding=known.padding)
    if isinstance(encoder, PictureEncoder) and data.classes == len(CLASSES):
        data = replace(data, class_names=CLASSES)
    return _arranged(data, wanted, sidecar, path)


def find_shards(folder: Path) -> list[LeafFile]:
    """The JSON files of a LEAF directory, in their natural order, each with the part it belongs to."""
    if not folder.exists():
        raise InputError(f"there is no LEAF directory {folder}.")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; leaf: wants the directory that holds train/ and test/, or *.json files.")
    for base in (folder, folder / "data"):
        parts = {name: base / name for name in SPLITS[:3] if (base / name).is_dir()}
        if "train" in parts:
            if "test" not in parts:
                raise InputError(f"{base} has a train/ but no test/; to split it yourself, name {base / 'train'}.")
            found = [
                LeafFile(SPLITS.index(part), f"{part}/{file.name}", file) for part in parts for file in _files(parts[part])
            ]
            empty = [part for part in ("train", "test") if not any(shard.part == SPLITS.index(part) for shard in found)]
            if empty:
                raise InputError(f"{base / empty[0]} has no *.json files.")
            return found
    for base in (folder, folder / "all_data", folder / "data" / "all_data"):
        found = [LeafFile(UNSPLIT, file.name, file) for file in _files(base)] if base.is_dir() else []
        if found:
            return found
    raise InputError(f"{folder} has no LEAF data: neither train/ and test/ nor *.json files.")


def read_sidecar(folder: Path) -> dict[str, Any]:
    """What `fedgsp data export` noted beside LEAF's own files, so that they come back exactly as they were."""
    path = folder / SIDECAR
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("schema") != 1:
            raise InputError(f"{path} is not of schema 1, which this version of fedgsp reads.")
        dtype = np.dtype(found["dtype"])
        ok = dtype.kind in "buif" and np.dtype(found["label_dtype"]).kind in "buif"
        ok = ok and all(isinstance(side, int) and side >= 0 for side in found["shape"]) and float(found["divisor"]) > 0
        if not ok or not isinstance(found["classes"], int) or found["classes"] < 0:
            raise ValueError
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError(f"{path} is damaged; delete it to read the folder as plain LEAF.") from None
    return found


def _prepare(
    folder: Path, shards: list[LeafFile], sidecar: dict[str, Any], encoder: str | Encoder | None, progress: Progress
) -> Entry:
    content = digest_of_files([(shard.name, shard.path) for shard in shards], progress)
    function, version = _encoder(encoder)
    return get_or_convert(
        "leaf",
        VERSION,
        content,
        [json.dumps(sidecar, sort_keys=True), version],
        folder.name,
        lambda scratch: convert(shards, scratch, sidecar, function, progress),
        resumable=True,
        waiting=lambda: progress("waiting for another process that prepares the same data", 0, 0),
    )


def _encoder(given: str | Encoder | None) -> tuple[Encoder | None, str]:
    """The function, and a text that changes when its code does, so that the cache is not asked for what another one made."""
    if given is None:
        return None, ""
    function: Callable[..., Any]
    if callable(given):
        function = given
    else:
        if ":" not in given:
            raise InputError(
                f"encoder must be {', '.join([*ENCODERS, CELEBA])} or look like package.module:function, not '{given}'."
            )
        function = import_named(given, "cannot import the encoder")
    if isinstance(given, PictureEncoder):
        return function, given.version()
    if isinstance(given, TextEncoder):
        code = f"{given!r} {inspect.getsource(inspect.getmodule(TextEncoder) or TextEncoder)}"
        return function, hashlib.sha256(code.encode()).hexdigest()
    try:
        code = inspect.getsource(inspect.getmodule(function) or function)
    except (OSError, TypeError):
        code = repr(function)
    return function, hashlib.sha256(code.encode()).hexdigest()


def _matched(entry: Entry, unmatched: str, path: str) -> set[str] | None:
    """The clients to keep, or None for all."""
    odd: list[list[str]] = entry.meta["unmatched"]
    if not odd or unmatched == "keep":
        return None
    if unmatched == "drop":
        return set(entry.meta["clients"]) - {client for client, _, _ in odd}
    client, part, file = odd[0]
    more = f" (and {len(odd) - 1} more such clients)" if len(odd) > 1 else ""
    raise InputError(
        f"{path}/{file}: client '{client}' is in {part}/ only{more}; say unmatched=drop to leave such clients out or "
        f"unmatched=keep to keep them."
    )


def _arranged(data: FederatedData, wanted: tuple[int, ...] | None, sidecar: dict[str, Any], path: str) -> FederatedData:
    flat = int(np.prod(data.sample_shape, dtype=np.int64))
    if wanted == (-1,):
        wanted = (flat,)
    elif wanted is None and sidecar:
        wanted = tuple(sidecar["shape"])
    elif wanted is None and data.features.dtype == np.uint8 and len(data.sample_shape) == 1:
        side = round(flat**0.5)
        wanted = (side, side) if side * side == flat >= SMALLEST_SQUARE else None
    if wanted is not None:
        if int(np.prod(wanted, dtype=np.int64)) != flat:
            shown = "x".join(map(str, wanted))
            raise InputError(f"{path}: samples of {flat} numbers cannot be arranged as {shown}.")
        data = replace(data, features=data.features.reshape(len(data.features), *wanted))
    if sidecar and np.dtype(sidecar["label_dtype"]) != data.labels.dtype:
        data = replace(data, labels=data.labels.astype(sidecar["label_dtype"]))
    return data


def _files(folder: Path) -> list[Path]:
    """The JSON files of a folder, 2 before 10."""
    found = [file for file in folder.iterdir() if file.suffix == ".json" and file.name != SIDECAR and file.is_file()]
    return sorted(found, key=lambda file: [int(bit) if bit.isdigit() else bit for bit in re.split(r"(\d+)", file.name)])
