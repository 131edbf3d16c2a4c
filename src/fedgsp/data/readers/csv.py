"""A CSV file of features with a label and a client column: `csv:FILE:label=y,client=site`."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.data.assemble import ReaderOptions, federate
from fedgsp.data.cache import Progress, get_or_convert, silent
from fedgsp.data.digests import digest_of
from fedgsp.data.readers.columns import CLIENT, LABEL, find_column, require_column
from fedgsp.data.readers.encoding import Encoding
from fedgsp.data.readers.entry_writer import UNSPLIT, EntryWriter

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData

VERSION = 1
BLOCK_ROWS = 2048
MOST_COLUMNS = 100_000
LONGEST_LINE = 1 << 24


def load_csv(
    path: str, *, label: str = "", client: str = "", ignore: str = "", progress: Progress = silent, **common: Any
) -> FederatedData:
    """Read a CSV file with a header line; all columns but the label, the client and the ignored ones are features.

    `ignore` names columns to leave out, joined by '+'. Features are stored as float32. Labels may be whole numbers (classes),
    texts (classes, in sorted order) or real numbers (regression).
    """
    options = ReaderOptions(**common)
    file = Path(path)
    if not file.exists():
        raise InputError(f"there is no CSV file {path}.")
    if file.is_dir():
        raise InputError(f"{path} is a directory, not a CSV file.")
    central = options.partition is not None
    wanted = (label, client, ignore)
    entry = get_or_convert(
        "csv", VERSION, digest_of(file), [*wanted, central], file.name,
        lambda folder: _convert(file, folder, wanted, central, progress),
    )  # fmt: skip
    return federate(entry, options, path)


def _convert(file: Path, folder: Path, wanted: tuple[str, str, str], central: bool, progress: Progress) -> dict[str, Any]:
    writer = EntryWriter(folder, Encoding("float32"))
    total = file.stat().st_size
    try:
        with file.open("rb") as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
            lines = csv.reader(_lines(text, file), strict=True)
            header = next(lines, [])
            label, client, features = _columns(header, wanted, central, str(file))
            targets = _Targets()
            for first, rows in _blocks(lines, len(header), file):
                writer.add_features(
                    _numbers(rows, features, header, first, file), f"{file}: lines {first}-{first + len(rows) - 1}"
                )
                targets.add(row[label] for row in rows)
                names = [row[client] if client is not None else "0" for row in rows]
                if "" in names:
                    raise InputError(f"{file}: line {first + names.index('')} has no client in column '{header[client or 0]}'.")
                parts = np.full(len(rows), UNSPLIT, dtype=np.uint8)
                writer.labels.append(np.zeros(len(rows)))  # a place; the values come when all have been seen
                writer.assign_clients(names, parts, str(file))
                progress("converting", min(total, raw.tell()), total)
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not text in UTF-8 (byte {error.start} of a block).") from error
    except csv.Error as error:
        raise InputError(f"{file} is not a valid CSV file: {error}.") from error
    if writer.rows == 0:
        raise InputError(f"{file} has no samples.")
    writer.labels.close()
    writer.labels = type(writer.labels)(folder, "labels")
    writer.add_labels(targets.values(f"{file}: column '{header[label]}'"), f"{file}: column '{header[label]}'")
    return writer.finish(str(file))


def _columns(header: list[str], wanted: tuple[str, str, str], central: bool, where: str) -> tuple[int, int | None, list[int]]:
    if not header or len(header) > MOST_COLUMNS:
        raise InputError(f"{where} does not begin with a line of column names.")
    twice = next((name for name in header if header.count(name) > 1), None) if len(set(header)) < len(header) else None
    if twice is not None:
        raise InputError(f"{where}: two columns are called '{twice}'.")
    label = require_column(find_column(header, wanted[0], LABEL, "label", where), "label", "label", header, where)
    client = find_column(header, wanted[1], CLIENT, "client", where)
    if client is None and not central:
        require_column(None, "client", "client", header, where)
    ignored = set(filter(None, wanted[2].split("+")))
    for name in ignored:
        find_column(header, name, (), "ignored columns", where)
    features = [k for k, name in enumerate(header) if name not in {label, client} | ignored]
    if not features:
        raise InputError(f"{where} has no columns left for the features.")
    return header.index(label), None if client is None else header.index(client), features


def _lines(text: TextIO, file: Path) -> Iterator[str]:
    """Lines of bounded length: a file without line breaks must not be read whole."""
    while line := text.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise InputError(f"{file} has a line of more than {LONGEST_LINE} characters; it is not a CSV file.")
        yield line


def _blocks(lines: Any, width: int, file: Path) -> Iterator[tuple[int, list[list[str]]]]:
    """Lines of values in blocks, each with the number of its first line."""
    rows: list[list[str]] = []
    first = lines.line_num + 1
    for row in lines:
        if not row:
            continue
        if len(row) != width:
            raise InputError(f"{file}: line {lines.line_num} has {len(row)} values; the header has {width}.")
        rows.append(row)
        if len(rows) == BLOCK_ROWS:
            yield first, rows
            rows, first = [], lines.line_num + 1
    if rows:
        yield first, rows


def _numbers(rows: list[list[str]], features: list[int], header: list[str], first: int, file: Path) -> NDArray[np.float64]:
    try:
        flat = array("d", (float(row[k]) for row in rows for k in features))
    except ValueError:
        for number, row in enumerate(rows):
            for k in features:
                try:
                    float(row[k])
                except ValueError:
                    raise InputError(
                        f"{file}: line {first + number}, column '{header[k]}': '{row[k][:40]}' is not a number."
                    ) from None
        raise
    return np.frombuffer(flat, dtype=np.float64).reshape(len(rows), len(features))


class _Targets:
    """The label column: what its texts mean is known only when all have been seen."""

    def __init__(self) -> None:
        self._codes = array("q")
        self._texts: dict[str, int] = {}

    def add(self, texts: Iterator[str]) -> None:
        """More labels."""
        self._codes.extend(self._texts.setdefault(text.strip(), len(self._texts)) for text in texts)

    def values(self, where: str) -> NDArray[Any]:
        """All of them as whole numbers if they can be, else as real numbers, else as texts."""
        codes = np.frombuffer(self._codes, dtype=np.int64)
        for kind in (int, float):
            try:
                table = np.array([kind(text) for text in self._texts])
            except (ValueError, OverflowError):
                continue
            if table.dtype.kind not in "if":
                raise InputError(f"{where}: a label is too large.")
            return np.asarray(table[codes])
        if "" in self._texts:
            raise InputError(f"{where}: a label is missing.")
        return np.array(list(self._texts), dtype=np.str_)[codes]
