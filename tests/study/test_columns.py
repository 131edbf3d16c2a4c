"""Journal lines as columns: whatever was in a line comes back, with its type."""

from __future__ import annotations

from typing import Any

import pyarrow
from hypothesis import given
from hypothesis import strategies as st

from fedgsp.study.columns import OTHER, flat, nested, table_of

TEXT = st.text("ab/\u00e9", max_size=3)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2), max_leaves=4)
LINES = st.dictionaries(st.sampled_from(["round", "loss", "a/b", OTHER, "quantiles"]), VALUES, max_size=4)


def through_arrow(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = table_of(pyarrow, [flat(line) for line in lines]).to_pylist()
    return [nested({name: value for name, value in row.items() if value is not None}) for row in rows]


@given(st.lists(LINES, min_size=1, max_size=4))
def test_everything_comes_back(lines: list[dict[str, Any]]) -> None:
    assert [canonical(line) for line in through_arrow(lines)] == [canonical(line) for line in lines]


def canonical(value: Any) -> Any:
    """With types told apart: 1, 1.0 and True are equal in Python."""
    if isinstance(value, dict):
        return {key: canonical(inner) for key, inner in sorted(value.items())}
    return [canonical(inner) for inner in value] if isinstance(value, list) else (type(value).__name__, value)


def test_figures_have_columns_of_their_own() -> None:
    line = {"round": 3, "loss": 0.5, "quantiles": {"loss": {"0.9": 1.5}}, "state": "ab"}
    table = table_of(pyarrow, [flat(line), flat({"round": 4})])
    assert table.column("quantiles/loss/0.9").to_pylist() == [1.5, None]
    assert [str(table.schema.field(name).type) for name in ("round", "loss", "state")] == ["int64", "double", "string"]
    assert table.column(OTHER).to_pylist() == [None, None]
