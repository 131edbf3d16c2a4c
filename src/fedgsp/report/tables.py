"""Clients to be grouped, from a file or a data source: one non-negative vector each, and what is known of them besides."""

from __future__ import annotations

import csv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedgsp.core.errors import InputError
from fedgsp.plan.groupers import Counts, checked_counts

if TYPE_CHECKING:
    from fedgsp.data import FederatedData

NAMES, SITES, SECONDS = ("client", "clients", "id"), ("site", "sites"), ("seconds",)


@dataclass(frozen=True, eq=False)
class ClientTable:
    """`names` (K,), `counts` (K, F), and where they are given `sites` and `seconds` (K,), and what classes are called."""

    names: list[str]
    counts: Counts
    sites: NDArray[Any] | None = None
    seconds: NDArray[Any] | None = None
    class_names: tuple[str, ...] = ()


def read_clients(source: str) -> ClientTable:
    """Clients from a .csv of counts, an .npz with an array `counts`, or any data source (`glyphs`, `npz:FILE:...`).

    In a table a row is a client; columns (or arrays) named client, site and seconds are what they say, all others are counts.
    """
    path = Path(source)
    if path.suffix.lower() == ".csv":
        return _read_csv(path)
    if path.suffix.lower() == ".npz" and path.exists():
        table = _read_npz(path)
        if table is not None:
            return table
    from fedgsp.data.sources import load

    data = load(source)
    return ClientTable(list(data.clients), data.profiles().counts, class_names=data.class_names)


def clients_of(data: str | FederatedData | ArrayLike) -> ClientTable:
    """Clients to be grouped: of a federation, a source text, a file of counts, or counts themselves."""
    from fedgsp.data import FederatedData

    if isinstance(data, FederatedData):
        return ClientTable(list(data.clients), data.profiles().counts, class_names=data.class_names)
    if isinstance(data, (str, Path)):
        return read_clients(str(data))
    return _table("group", np.asarray(checked_counts("group", data)), None, None, None)


def _read_csv(path: Path) -> ClientTable:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = next(csv.reader(file), [])
        header = [cell.strip().lower() for cell in first] if any(not _is_number(cell) for cell in first) else []
        special = {}
        for names in (NAMES, SITES, SECONDS):
            special[names] = next((at for at, name in enumerate(header) if name in names), None)
        numbers = [at for at in range(len(first)) if at not in special.values()]
        options: dict[str, Any] = {"delimiter": ",", "skiprows": int(bool(header)), "encoding": "utf-8-sig", "comments": None}
        if not numbers:
            raise InputError(f"{path} has no columns of counts.")
        counts = np.loadtxt(path, usecols=numbers, ndmin=2, **options)
        columns = {
            names: None if at is None else np.loadtxt(path, usecols=at, ndmin=1, dtype=str, **options)
            for names, at in special.items()
        }
    except FileNotFoundError:
        raise InputError(f"there is no file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}.") from error
    except ValueError as error:
        raise InputError(f"{path} is not a table of numbers with a row for each client: {error}") from None
    if not len(counts):
        raise InputError(f"{path} has no clients.")
    return _table(str(path), counts, columns[NAMES], columns[SITES], columns[SECONDS])


def _read_npz(path: Path) -> ClientTable | None:
    """The table in an .npz, or None if it has no array `counts` (then it is a federation's data)."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if "counts" not in getattr(archive, "files", ()):
                return None
            arrays = {
                names: next((archive[name] for name in names if name in archive.files), None)
                for names in (NAMES, SITES, SECONDS)
            }
            return _table(str(path), archive["counts"], arrays[NAMES], arrays[SITES], arrays[SECONDS])
    except (ValueError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise InputError(f"{path} cannot be read as .npz: {error}.") from error


def _table(
    where: str, counts: NDArray[Any], names: NDArray[Any] | None, sites: NDArray[Any] | None, seconds: NDArray[Any] | None
) -> ClientTable:  # fmt: skip
    vectors = checked_counts(where, counts)
    if vectors.dtype.kind == "f" and np.array_equal(vectors, np.rint(vectors)) and vectors.max(initial=0) < 2**53:
        vectors = vectors.astype(np.int64)
    for column, values in (("client", names), ("site", sites), ("seconds", seconds)):
        if values is not None and values.shape != (len(vectors),):
            raise InputError(f"{where}: {column} has shape {values.shape}, but there are {len(vectors)} clients.")
    try:
        times = None if seconds is None else seconds.astype(np.float64)
    except ValueError:
        raise InputError(f"{where}: seconds must be numbers.") from None
    return ClientTable([str(n) for n in (range(len(vectors)) if names is None else names.tolist())], vectors, sites, times)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
