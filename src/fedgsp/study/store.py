"""The store of a study's finished runs: two files in place of a folder for each.

`units.parquet` has a row for every line of every journal (a column for every figure, and the seconds on the named fleets at the
end of that round), `units.json` what is known of every unit: its configuration, kernel, commit, versions, data, how it ended.

A run's identity is its configuration without rounds, workers, names and the data's place, the data's fingerprint, and the
kernel that trained it: these decide its bits. The versions of torch and of the package are recorded and are no part of it: a
new version should not ask for everything to be measured again. Instead nothing that is stored is ever replaced: a unit may only
grow longer, and only if the rounds that are there come out with the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from fedgsp.core.errors import InputError
from fedgsp.core.imports import need
from fedgsp.run.config import from_dict
from fedgsp.run.files import explained, write_whole
from fedgsp.run.trust import code_named
from fedgsp.study.columns import flat, nested, table_of
from fedgsp.study.records import Trace
from fedgsp.study.units import digest, key_of

if TYPE_CHECKING:
    from fedgsp.study.history import History

SCHEMA = 1
ROWS, MANIFEST, UNITS = "units.parquet", "units.json", "units"
FLEETS = "fleet"
RESULT = "result"


def require_parquet() -> None:
    """Refuse before anything starts where pyarrow is missing."""
    need("pyarrow.parquet", "parquet", "keeping a study's runs")


class UnitStore:
    """The finished runs of a folder of studies.

    Args:
        folder: Where `units.parquet` and `units.json` are, or will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        told = _manifest(folder / MANIFEST)
        self.units: dict[str, dict[str, Any]] = told["units"]
        self.studies: dict[str, dict[str, Any]] = told["studies"]
        self._rows: dict[str, list[dict[str, Any]]] | None = None
        self._by_key: dict[str, list[str]] = {}
        self._changed = False
        for unit in self.units:
            self._index(unit)

    def has(self, key: str, rounds: int) -> bool:
        """Whether a run with this key (`units.key_of`) has so many rounds, or diverged."""
        return self._best(key, rounds) is not None

    def find(self, key: str, rounds: int) -> Trace | None:
        """A run with this key (`units.key_of`), cut to so many rounds; None if there is none."""
        unit = self._best(key, rounds)
        return None if unit is None else self.trace(unit, rounds)

    def trace(self, unit: str, rounds: int | None = None) -> Trace:
        """A run by its name, whole or cut to so many rounds; without figures if it diverged."""
        if self.units[unit]["diverged"]:
            return Trace(unit, [], {}, {}, self.units[unit]["diverged"])
        history, times = self.lines(unit)
        cut = {what: {fleet: line[:rounds] for fleet, line in by_fleet.items()} for what, by_fleet in times.items()}
        return Trace(unit, history[:rounds], cut.get("seconds", {}), cut.get("computing", {}))

    def lines(self, unit: str) -> tuple[History, dict[str, dict[str, list[float]]]]:
        """(every line of a run's journal, what -> fleet -> the figure at the end of every round)."""
        history: History = []
        times: dict[str, dict[str, list[float]]] = {}
        for row in self.rows().get(unit, ()):
            line = nested(row)
            for what, by_fleet in line.pop(FLEETS, {}).items():
                for fleet, value in by_fleet.items():
                    times.setdefault(what, {}).setdefault(fleet, []).append(value)
            history.append(line)
        return history, times

    def result(self, unit: str) -> Any:
        """What a piece of computing gave."""
        return json.loads(self.rows()[unit][0][RESULT])

    def add_run(self, label: str, record: Mapping[str, Any], found: Trace) -> str:
        """Take a finished run in.

        Args:
            label: What its name begins with.
            record: What is known of it (`units.run_record`).
            found: Its figures.

        Returns:
            The name that it has here.

        Raises:
            InputError: The same run is here with other figures.
        """
        key = _key(record)
        known = [unit for unit in self._by_key.get(key, ()) if self.units[unit]["kernel"] == record["kernel"]]
        unit = known[0] if known else f"{label}-{digest([key, record['kernel']])}"
        rows = [_row(line, found, at) for at, line in enumerate(found.history)]
        if known:
            before = self.rows().get(unit, [])
            if any(_figures(old) != _figures(new) for old, new in zip(before, rows, strict=False)):
                raise InputError(
                    f"the run {label} came out with other figures than {unit} in {self.folder}, which has the same "
                    f"configuration, data and kernel: nothing that is stored is replaced; use another folder with `out=`."
                )
            if len(rows) <= len(before):
                return unit
        self._put(unit, {**record, "rounds": len(found.history)}, rows)
        return unit

    def add_result(self, unit: str, record: Mapping[str, Any], result: Any) -> None:
        """Take a piece of computing in."""
        self._put(unit, dict(record), [{RESULT: json.dumps(result, allow_nan=False)}])

    def add_study(self, name: str, asked: Mapping[str, Any]) -> None:
        """Remember what a study was asked for, so that its pages can be made again."""
        if self.studies.get(name) != asked:
            self.studies[name], self._changed = dict(asked), True

    def save(self) -> None:
        """Write both files, each whole or not at all: first the rows, so that a manifest never names what is not there.

        What another process has put there in the meantime is kept.
        """
        if not self._changed:
            return
        self.make_units()
        with FileLock(self.folder / UNITS / ".store.lock"):
            self._take_over(UnitStore(self.folder))
            self._write()
        self._changed = False

    def merge(self, other: UnitStore) -> list[str]:
        """Take in what another folder has: its runs, and its studies where there is none of that name here.

        Args:
            other: The other folder's store.

        Returns:
            The units that are new here, or longer than they were.

        Raises:
            InputError: Both have a run with other figures in the same rounds.
        """
        taken = []
        for unit, record in other.units.items():
            mine, theirs = self.rows().get(unit, []), other.rows().get(unit, [])
            if any(_figures(one) != _figures(two) for one, two in zip(mine, theirs, strict=False)):
                raise InputError(f"{unit} has other figures in {other.folder} than in {self.folder}; one of them is wrong.")
            if unit not in self.units or record.get("rounds", 0) > self.units[unit].get("rounds", 0):
                taken.append(unit)
        self._take_over(other)
        self._changed = True
        return taken

    def make_units(self) -> Path:
        """The folder in which runs are trained; git is asked to leave it out, since all that is needed of them is stored."""
        folder = self.folder / UNITS
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if not (folder / ".gitignore").exists():
            write_whole(folder / ".gitignore", b"*\n")
        return folder

    def _take_over(self, there: UnitStore) -> None:
        for unit, record in there.units.items():
            if unit not in self.units or record.get("rounds", 0) > self.units[unit].get("rounds", 0):
                self._put(unit, record, there.rows().get(unit, []))
        self.studies = there.studies | self.studies

    def _write(self) -> None:
        parquet = need("pyarrow.parquet", "parquet", "keeping a study's runs")
        arrow = need("pyarrow", "parquet", "keeping a study's runs")
        rows = [{"unit": unit, **row} for unit in sorted(self.units) for row in self.rows().get(unit, ())]
        sink = arrow.BufferOutputStream()
        parquet.write_table(table_of(arrow, rows), sink, compression="zstd", compression_level=12)
        write_whole(self.folder / ROWS, sink.getvalue().to_pybytes())
        lines = [f'"schema": {SCHEMA}', f'"studies": {{\n{_lines(self.studies)}\n}}', f'"units": {{\n{_lines(self.units)}\n}}']
        write_whole(self.folder / MANIFEST, ("{\n" + ",\n".join(lines) + "\n}\n").encode())

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """unit -> its rows, read when they are first needed."""
        if self._rows is None:
            self._rows = {}
            for row in _read(self.folder / ROWS) if self.units else ():
                self._rows.setdefault(row.pop("unit"), []).append(row)
            missing = [unit for unit, told in self.units.items() if told.get("rounds", 1) and unit not in self._rows]
            if missing:
                raise InputError(f"{self.folder / ROWS} has nothing of {missing[0]}, which {MANIFEST} names.")
        return self._rows

    def _put(self, unit: str, record: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        self.rows()[unit], self._changed = rows, True
        new = unit not in self.units
        self.units[unit] = record
        if new:
            self._index(unit)

    def _index(self, unit: str) -> None:
        record = self.units[unit]
        if "config" in record and not code_named({"method": record["config"].get("method")}):  # no code of a file's runs here
            self._by_key.setdefault(_key(record), []).append(unit)

    def _best(self, key: str, rounds: int) -> str | None:
        """Of those that are long enough the shortest: so what a study gets does not change when a longer run comes along."""
        known = [(self.units[unit]["rounds"], unit) for unit in self._by_key.get(key, ())]
        fit = [(have, unit) for have, unit in known if have >= rounds or self.units[unit]["diverged"]]
        return min(fit)[1] if fit else None


def _key(record: Mapping[str, Any]) -> str:
    """By today's reading of the configuration, in which entries that it lacks have their defaults."""
    return key_of(from_dict(record["config"], MANIFEST), record["data"]["fingerprint"])


def _row(line: Mapping[str, Any], found: Trace, at: int) -> dict[str, Any]:
    row = flat(line)
    for what, by_fleet in (("seconds", found.seconds), ("computing", found.computing)):
        row |= flat({FLEETS: {what: {fleet: values[at] for fleet, values in by_fleet.items()}}})
    return row


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same whenever and wherever a run is repeated."""
    return {name: value for name, value in row.items() if not name.startswith("timings/")}


def _read(file: Path) -> Iterator[dict[str, Any]]:
    parquet = need("pyarrow.parquet", "parquet", "reading a study's runs")
    try:
        table = parquet.read_table(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {error}.") from error
    names, columns = table.column_names, [column.to_pylist() for column in table.columns]
    for values in zip(*columns, strict=True):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _manifest(file: Path) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"units": {}, "studies": {}}
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {error}.") from error
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        raise InputError(f"{file} is of another version of fedgsp; use another folder with `out=`.")
    return told


def _lines(table: Mapping[str, Any]) -> str:
    """A line for each, so that git shows which are new."""
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(table[name], allow_nan=False)}" for name in sorted(table))
