"""Rows for a person: as lines of text, as an HTML table for a notebook, as a data frame of pandas or polars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Literal

from fedgsp.core.imports import need

CELL = "padding:2px 10px 2px 0;text-align:left"


def text_table(heads: Sequence[str], rows: Sequence[Sequence[Any]], most: int) -> list[str]:
    """Lines of aligned columns, the first `most` rows of them."""
    shown = [[str(cell) for cell in row] for row in (heads, *rows[:most])]
    widths = [max(len(row[at]) for row in shown) for at in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    return [f"  {line}" for line in lines] + ([f"  ... {len(rows) - most} more"] if len(rows) > most else [])


def html_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "", most: int = 50) -> str:
    """A table with its title and note; every text is escaped."""
    head = "".join(f'<th style="{CELL}">{escape(str(name))}</th>' for name in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{CELL}">{escape(str(cell))}</td>' for cell in row) + "</tr>" for row in rows[:most]
    )
    more = f"<p>{len(rows) - most} more</p>" if len(rows) > most else ""
    caption = f"<p><b>{escape(title)}</b></p>" if title else ""
    below = f"<p><small>{escape(note)}</small></p>" if note else ""
    top = f"<thead><tr>{head}</tr></thead>" if any(heads) else ""
    return f"{caption}<table>{top}<tbody>{body}</tbody></table>{more}{below}"


def flat(entry: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A nested record as one level: `{"timings": {"train": 1.0}}` as `{"timings.train": 1.0}`."""
    found: dict[str, Any] = {}
    for name, value in entry.items():
        found |= flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return found


def frame(library: Literal["pandas", "polars"], rows: Sequence[Mapping[str, Any]]) -> Any:
    """A DataFrame of records; a column for every name that any of them has.

    Raises:
        InputError: The library is not installed.
    """
    made = need(library, "frames", f"a {library} DataFrame")
    level = [flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in level for name in row))
    return made.DataFrame({name: [row.get(name) for row in level] for name in names})
