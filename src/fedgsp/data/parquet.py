"""Parquet files with a client column, in the schema of Hugging Face's `flwrlabs/femnist` or any other: `parquet:PATH`.

`hf:OWNER/NAME` fetches a data set's parquet files from the hub first. Rows are streamed in small batches; a row's client,
label and features are columns that are named or recognised by their usual names.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.data.assemble import Common, federate
from fedgsp.data.cache import Entry, get_or_build
from fedgsp.data.columns import CLIENT, FEATURES, LABEL, labels, must, pick, stacked
from fedgsp.data.digests import digest_of_files
from fedgsp.data.extras import need
from fedgsp.data.federated import FederatedData
from fedgsp.data.intake import TEST, TRAIN, UNSPLIT, VALIDATION, Intake
from fedgsp.data.numbers import Encoding
from fedgsp.data.progress import Progress, silent

VERSION = 1
BATCH = 1024
MOST_ROWS_A_BYTE = 64
SPLITS = {"train": TRAIN, "validation": VALIDATION, "valid": VALIDATION, "test": TEST}
MOST_UNPACKED = 1000
"""A file may claim at most so many times its own size: a damaged or hostile footer must not exhaust memory."""


def load_parquet(
    path: str, *, client: str = "", label: str = "", features: str = "", progress: Progress = silent, **common: Any
) -> FederatedData:
    """Read a parquet file, or all *.parquet files below a directory.

    `client`, `label` and `features` name columns; without `features` and a column of a usual name (image, x, ..), all other
    columns of numbers together are the features. Files called train-* and test-*, as on the hub, keep that split.
    """
    need("pyarrow.parquet", "parquet", "reading parquet files")
    options = Common(**common)
    files = _files(Path(path))
    content = digest_of_files([(name, file) for name, file, _ in files], progress)
    central = options.partition is not None
    key = hashlib.sha256(f"{content}|{client}|{label}|{features}|{central}".encode()).hexdigest()[:32]
    columns = {"client": client, "label": label, "features": features}

    def build(folder: Path) -> dict[str, Any]:
        return {"kind": "parquet", "origin": Path(path).name, **_convert(files, folder, columns, central, progress)}

    entry: Entry = get_or_build(f"parquet-v{VERSION}-{key}", build)
    return federate(entry, options, path)


def load_hub(
    path: str, *, client: str = "", label: str = "", features: str = "", progress: Progress = silent, **common: Any
) -> FederatedData:
    """The parquet files of a data set on the Hugging Face hub, by its id; they stay in the hub's own cache."""
    hub = need("huggingface_hub", "hub", "fetching data from the Hugging Face hub")
    progress(f"fetching {path}", 0, 0)
    try:
        folder = hub.snapshot_download(repo_id=path, repo_type="dataset", allow_patterns=["*.parquet"])
    except Exception as error:  # anything from a wrong name to a missing network
        brief = " ".join(str(error).split())[:200]
        raise InputError(f"cannot fetch '{path}' from the hub: {brief or type(error).__name__}.") from error
    return load_parquet(str(folder), client=client, label=label, features=features, progress=progress, **common)


def _files(path: Path) -> list[tuple[str, Path, int]]:
    """(name, file, part): the split is kept where there is both a train and a test file."""
    if not path.exists():
        raise InputError(f"there is no parquet file or directory {path}.")
    if path.is_file():
        return [(path.name, path, UNSPLIT)]
    found = [(file.relative_to(path).as_posix(), file) for file in sorted(path.rglob("*.parquet")) if file.is_file()]
    if not found:
        raise InputError(f"{path} has no *.parquet files.")
    parts = [SPLITS.get(re.split(r"[-_./]", file.name)[0].lower(), UNSPLIT) for _, file in found]
    if not {TRAIN, TEST} <= set(parts):
        parts = [UNSPLIT] * len(found)
    elif UNSPLIT in parts:
        odd = found[parts.index(UNSPLIT)][0]
        raise InputError(f"{path}: is {odd} for training or for testing? Beside train-* and test-* every name must say it.")
    return [(name, file, part) for (name, file), part in zip(found, parts, strict=True)]


def _convert(
    files: list[tuple[str, Path, int]], folder: Path, columns: dict[str, str], central: bool, progress: Progress
) -> dict[str, Any]:
    intake = Intake(folder, Encoding("text"))
    names: list[str] | None = None
    total = sum(file.stat().st_size for _, file, _ in files)
    before = 0
    arrow = need("pyarrow", "parquet", "reading parquet files")
    for _, file, part in files:
        try:
            with file.open("rb") as raw:
                tick = partial(_tick, progress, before, file.stat().st_size, total)
                found = _read(raw, file, part, columns, central, intake, tick)
        except (arrow.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
            brief = " ".join(str(error).split())[:200].rstrip(".")
            raise InputError(f"{file} cannot be read as parquet: {brief or type(error).__name__}.") from error
        if names is not None and found is not None and found != names:
            raise InputError(f"{file}: its class names are not those of the files before it.")
        names = names or found
        before += file.stat().st_size
        progress("converting", before, total)
    meta = intake.finish(str(files[0][1].parent))
    if names is not None and meta["class_names"] is None:
        meta.update(class_names=names, classes=len(names))
    return meta


def _tick(progress: Progress, before: int, size: int, total: int, share: float) -> None:
    progress("converting", before + int(share * size), total)


def _read(
    raw: Any, file: Path, part: int, columns: dict[str, str], central: bool, intake: Intake, tick: Any
) -> list[str] | None:
    parquet = need("pyarrow.parquet", "parquet", "reading parquet files")
    table = parquet.ParquetFile(raw)
    there = table.schema_arrow.names
    where = str(file)
    size = file.stat().st_size
    groups = [table.metadata.row_group(k) for k in range(table.metadata.num_row_groups)]
    if sum(max(0, group.total_byte_size) for group in groups) > MOST_UNPACKED * size + (1 << 24):
        raise InputError(f"{file} claims to unpack more than {MOST_UNPACKED}-fold; it is damaged or hostile.")
    if table.metadata.num_rows > MOST_ROWS_A_BYTE * size:
        raise InputError(f"{file} claims {table.metadata.num_rows} rows in {size} bytes; it is damaged or hostile.")
    owner = pick(there, columns["client"], CLIENT, "client", where)
    if owner is None and not central:
        must(None, "client", "client", there, where)
    target = must(pick(there, columns["label"], LABEL, "label", where), "label", "label", there, where)
    single = pick(there, columns["features"], FEATURES, "features", where)
    used = [single] if single else _number_columns(table, {owner, target}, where)
    wanted = list(dict.fromkeys([*used, target, *([owner] if owner else [])]))
    done = 0
    for batch in table.iter_batches(batch_size=BATCH, columns=wanted, use_threads=False):
        rows = f"{file}: rows {done}-{done + batch.num_rows - 1}"
        column = {name: batch.column(name).to_pylist() for name in wanted}
        if single:
            block = stacked(column[single], f"{rows}, column '{single}'")
        else:
            block = np.stack([labels(column[name], f"{rows}, column '{name}'") for name in used], axis=1).astype(np.float32)
        clients = ["0"] * batch.num_rows if owner is None else [_name(value, rows, owner) for value in column[owner]]
        intake.add_features(block, f"{rows}, column '{single or used[0]}'")
        intake.add_labels(labels(column[target], f"{rows}, column '{target}'"), f"{rows}, column '{target}'")
        intake.own_rows(clients, np.full(batch.num_rows, part, dtype=np.uint8), rows)
        done += batch.num_rows
        tick(done / max(1, table.metadata.num_rows))
    return _class_names(table.schema_arrow.metadata, target)


def _number_columns(table: Any, taken: set[str | None], where: str) -> list[str]:
    types = need("pyarrow.types", "parquet", "reading parquet files")
    schema = table.schema_arrow
    found = [
        field.name
        for field in schema
        if field.name not in taken and (types.is_floating(field.type) or types.is_integer(field.type))
    ]
    if not found:
        raise InputError(f"{where}: no column can be the features; say features=NAME; there are: {', '.join(schema.names)}.")
    return found


def _name(value: Any, where: str, column: str) -> str:
    if value is None:
        raise InputError(f"{where}, column '{column}': a row has no client.")
    return str(value)


def _class_names(metadata: dict[bytes, bytes] | None, label: str) -> list[str] | None:
    """The names that Hugging Face keeps beside the schema for a class label."""
    try:
        names = json.loads((metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return None
    return [str(name) for name in names] if isinstance(names, list) and names else None
