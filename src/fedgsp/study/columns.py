"""History lines as columns: nested tables become `quantiles/loss/0.1`, and everything comes back as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

OTHER = "other"
"""Column of what fits no typed one: nothing, lists, empty tables, a value of another type than its column's. JSON."""
TYPES = {bool: "bool_", int: "int64", float: "float64", str: "string"}


def flat(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line without nesting; what is not a plain value goes into one entry as JSON."""
    found: dict[str, Any] = {}
    other: list[Any] = []
    for path, value in _leaves(line, ()):
        plain = type(value) in TYPES and not any("/" in key for key in path) and path != (OTHER,)
        if plain and (type(value) is not int or -(2**63) <= value < 2**63):
            found["/".join(path)] = value
        else:
            other.append([*path, value])
    return found | ({OTHER: json.dumps(other)} if other else {})


def nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """The line that `flat` was given; its entries may be in another order."""
    line: dict[str, Any] = {}
    named = [[*path.split("/"), value] for path, value in row.items() if path != OTHER]
    for *folders, name, value in (*named, *json.loads(row.get(OTHER, "[]"))):
        at = line
        for folder in folders:
            at = at.setdefault(folder, {})
        at[name] = value
    return line


def table_of(arrow: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """An Arrow table; a column has the type of its first value, and values of another type go to `OTHER`."""
    types: dict[str, type] = {}
    for row in rows:
        for name, value in row.items():
            types.setdefault(name, type(value))
    columns: dict[str, list[Any]] = {name: [] for name in (*types, *([] if OTHER in types else [OTHER]))}
    for row in rows:
        odd = [[*name.split("/"), value] for name, value in row.items() if type(value) is not types[name]]
        other = json.loads(row.get(OTHER, "[]")) + odd
        for name, values in columns.items():
            value = row.get(name)
            values.append(value if type(value) is types.get(name) else None)
        columns[OTHER][-1] = json.dumps(other) if other else None
    kinds = {name: getattr(arrow, TYPES[types.get(name, str)])() for name in columns}
    return arrow.table({name: arrow.array(values, kinds[name]) for name, values in columns.items()})


def _leaves(table: Mapping[str, Any], at: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for key, value in table.items():
        found += _leaves(value, (*at, key)) if isinstance(value, Mapping) and value else [((*at, key), value)]
    return found
