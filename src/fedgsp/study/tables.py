"""Tables as plain data: to CSV with every digit, to Markdown as a person reads them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fedgsp.study.noise import Estimate

NOTHING = "-"
"""No figure: a target that was not reached, a method that diverged, a number that the paper does not give."""


def percent(value: float) -> str:
    """A share as per cent."""
    return f"{100 * value:.1f}"


def number(digits: int = 0) -> Callable[[float], str]:
    """With so many digits behind the point, thousands apart."""
    return lambda value: f"{value:,.{digits}f}"


def bytes_unit(largest: float) -> tuple[float, str]:
    """(how many bytes, the unit) in which up to so many are best told."""
    return (1e9, "GB") if largest >= 1e9 else (1e6, "MB")


def time_unit_of(largest: float) -> tuple[float, str]:
    """(how many seconds, the unit) in which up to so many are best told."""
    return (3600.0, "hours") if largest >= 3600 else (60.0, "minutes") if largest >= 120 else (1.0, "seconds")


def bytes_(value: float) -> str:
    """In MB or GB."""
    size, unit = bytes_unit(value)
    return f"{value / size:,.{2 if unit == 'GB' else 1}f} {unit}"


@dataclass(frozen=True)
class Column:
    """A heading, and how a person reads what stands below it."""

    name: str
    form: Callable[[Any], str] = str


@dataclass(frozen=True)
class Table:
    """A table as plain data.

    Args:
        name: The name of its CSV file.
        title: Its heading.
        columns: Headings, and how values are shown.
        rows: Plain values, `Estimate`s (two columns in CSV) or None for nothing.
        note: What stands below it.
        kept: Whether it has a CSV file of its own; a lesser table is on the page and in STUDY.json only.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    kept: bool = True

    def csv(self) -> str:
        """Every digit; an estimate is its mean and, in a column beside it, the half-width of its interval."""
        split = [any(isinstance(row[at], Estimate) for row in self.rows) for at in range(len(self.columns))]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        heads = [[c.name, f"{c.name} ±"] if two else [c.name] for c, two in zip(self.columns, split, strict=True)]
        writer.writerow([name for head in heads for name in head])
        for row in self.rows:
            writer.writerow([v for value, two in zip(row, split, strict=True) for v in _plain(value, two)])
        return text.getvalue()

    def markdown(self) -> str:
        """Title, table, note."""
        lines = [f"**{self.title}**", "", _row(c.name for c in self.columns), _row("---" for _ in self.columns)]
        lines += [_row(row) for row in self.shown()]
        return "\n".join([*lines, *(["", self.note] if self.note else [])]) + "\n"

    def shown(self) -> list[list[str]]:
        """The rows as a person reads them."""
        return [[_shown(v, c.form) for v, c in zip(row, self.columns, strict=True)] for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        """The rows as dicts by the columns' names; the half-width of an interval stands beside its mean."""
        found = []
        for row in self.rows:
            record: dict[str, Any] = {}
            for column, value in zip(self.columns, row, strict=True):
                record[column.name] = value.mean if isinstance(value, Estimate) else value
                if isinstance(value, Estimate) and value.half is not None:
                    record[f"{column.name} ±"] = value.half
            found.append(record)
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "title": self.title,
            "columns": [c.name for c in self.columns],
            "rows": [list(map(_json, r)) for r in self.rows],
        }


def _plain(value: Any, two: bool) -> list[Any]:
    if isinstance(value, Estimate):
        return [value.mean, "" if value.half is None else value.half]
    return ["" if value is None else value, *([""] if two else [])]


def _json(value: Any) -> Any:
    return {"mean": value.mean, "half": value.half, "n": value.n} if isinstance(value, Estimate) else value


def _shown(value: Any, form: Callable[[Any], str]) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, Estimate):
        return form(value.mean) + ("" if value.half is None else f" ± {form(value.half)}")
    return value if isinstance(value, str) else form(value)


def _row(cells: Any) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"
