"""Parquet files with a client column, in the schema of Hugging Face's `flwrlabs/femnist` or any other: `parquet:PATH`.

Rows are streamed in small batches; a row's client,
label and features are columns that are named or recognised by their usual names.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.errors import InputError, brief
from fedgsp.core.imports import need
from fedgsp.data.assemble import ReaderOptions, federate
from fedgsp.data.cache import Progress, get_or_convert, silent, within
from fedgsp.data.digests import digest_of_files
from fedgsp.data.readers.columns import CLIENT, FEATURES, LABEL, find_column, labels, require_column, stacked
from fedgsp.data.readers.encoding import Encoding
from fedgsp.data.readers.entry_writer import TEST, TRAIN, UNSPLIT, VALIDATION, EntryWriter

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData

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
    options = ReaderOptions(**common)
    files = _files(Path(path))
    content = digest_of_files([(name, file) for name, file, _ in files], progress)
    central = options.partition is not None
    columns = {"client": client, "label": label, "features": features}
    entry = get_or_convert(
        "parquet", VERSION, content, [*columns.values(), central], Path(path).name,
        lambda folder: _convert(files, folder, columns, central, progress),
    )  # fmt: skip
    return federate(entry, options, path)


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
    writer = EntryWriter(folder, Encoding("text"))
    names: list[str] | None = None
    total = sum(file.stat().st_size for _, file, _ in files)
    before = 0
    arrow = need("pyarrow", "parquet", "reading parquet files")
    for _, file, part in files:
        try:
            with file.open("rb") as raw:
                found = _read(raw, file, part, columns, central, writer, within(progress, "converting", before, total))
        except (arrow.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
            raise InputError(f"{file} cannot be read as parquet: {brief(error)}.") from error
        if names is not None and found is not None and found != names:
            raise InputError(f"{file}: its class names are not those of the files before it.")
        names = names or found
        before += file.stat().st_size
        progress("converting", before, total)
    meta = writer.finish(str(files[0][1].parent))
    if names is not None and meta["class_names"] is None:
        meta.update(class_names=names, classes=len(names))
    return meta


def _read(
    raw: Any, file: Path, part: int, columns: dict[str, str], central: bool, writer: EntryWriter, tick: Any
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
    owner = find_column(there, columns["client"], CLIENT, "client", where)
    if owner is None and not central:
        require_column(None, "client", "client", there, where)
    target = require_column(find_column(there, columns["label"], LABEL, "label", where), "label", "label", there, where)
    single = find_column(there, columns["features"], FEATURES, "features", where)
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
        writer.add_features(block, f"{rows}, column '{single or used[0]}'")
        writer.add_labels(labels(column[target], f"{rows}, column '{target}'"), f"{rows}, column '{target}'")
        writer.assign_clients(clients, np.full(batch.num_rows, part, dtype=np.uint8), rows)
        done += batch.num_rows
        tick(size * done // max(1, table.metadata.num_rows))
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
