"""What the lines of a run's logs must look like before anything reads them: the tables of docs/formats.md as checks.

A run directory may come from anywhere. Each check says in a few words what is wrong with a record, or None.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Test = Callable[[Any], bool]
Check = Callable[[dict[str, Any]], str | None]

MOST = 2**53
"""Larger whole numbers are no count of anything, and floats could not hold them."""
READABLE_RESULTS = (1, 2)
"""Schemas of result.json: figures are worked out from the journal, so what version 1 meant by them does not matter."""


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; true and false are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def is_count(value: Any) -> bool:
    """Whether a value is a whole number from 0 on."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _maybe(test: Test) -> Test:
    return lambda value: value is None or test(value)


def _list_of(test: Test) -> Test:
    return lambda value: isinstance(value, list) and all(map(test, value))


def _some(test: Test) -> Test:
    return lambda value: value != [] and _list_of(test)(value)


def _table_of(test: Test) -> Test:
    return lambda value: isinstance(value, dict) and all(map(test, value.values()))


def _record(required: Mapping[str, Test], optional: Mapping[str, Test] | None = None) -> Test:
    return lambda value: isinstance(value, dict) and _problem(value, required, optional or {}) is None


def _problem(record: Mapping[str, Any], required: Mapping[str, Test], optional: Mapping[str, Test]) -> str | None:
    for name, test in required.items():
        if name not in record:
            return f"has no '{name}'"
        if not test(record[name]):
            return f"has an odd '{name}'"
    odd = (name for name, test in optional.items() if name in record and not test(record[name]))
    return next((f"has an odd '{name}'" for name in odd), None)


_round = {"round": lambda value: is_count(value) and value > 0}
_quantiles = _table_of(_table_of(is_number))
_summary = _maybe(
    lambda value: _table(value) and all(_quantiles(v) if k == "quantiles" else is_number(v) for k, v in value.items())
)

JOURNAL: Mapping[str, Test] = {
    **_round,
    **dict.fromkeys(("groups", "chains", "clients", "left_out", "samples", "steps", "serial_steps"), is_count),
    **dict.fromkeys(("serial_steps_total", "bytes", "bytes_total"), is_count),
    "train_loss": is_number, "state": _text, "timings": _table_of(is_number),
}  # fmt: skip
JOURNAL_TABLES: Mapping[str, Test] = {
    "quantiles": _quantiles, **dict.fromkeys(("validation", "holdout", "central"), _summary),
    "skipped": _list_of(_table), "not_judged": _list_of(_table),
}  # fmt: skip

CHAIN = _record({"clients": _some(is_count)}, {"start": _text, "passes": is_count})
MEMBER = _record(
    {"number": is_count, "name": _text, "version": _text, "counts": _maybe(_list_of(is_count))}
    | dict.fromkeys(("train", "validation", "test"), is_count)
)
EVENT_KEYS: Mapping[str, Test] = {
    **dict.fromkeys(("round", "attempt", "bytes", "chain", "chains", "hop", "samples", "down", "up", "planned"), is_count),
    **dict.fromkeys(("seconds", "waited", "trained", "moving", "at"), is_number),
    **dict.fromkeys(("cause", "trace"), _maybe(_text)),
    **dict.fromkeys(("run", "worker", "fingerprint"), _text),
    "client": _maybe(is_count), "hops": _list_of(is_count), "left": _list_of(is_count), "members": _list_of(MEMBER),
    "about": _record({"classes": is_count, "shape": _list_of(is_count), "dtype": _text, "divisor": is_number}),
    "versions": _table_of(_text), "lengths": _table_of(is_number), "weight_bound": _maybe(is_number), "name": _text,
}  # fmt: skip
EVENT_NEEDS: Mapping[str, tuple[str, ...]] = {
    "started": ("at",), "round": ("round", "chains"), "hop": ("round", "chain", "hop", "client", "samples"),
    "skipped": ("round", "chain", "hop", "client"), "not_judged": ("round", "client"), "lost": ("round", "chain"),
    "federation": ("run", "about"), "sites": ("members", "left"), "below_quorum": ("round",),
}  # fmt: skip

RESULT: Mapping[str, Test] = {
    "status": _text, "rounds": is_count,
    "data": _record({"fingerprint": _text}, {"clients": is_count, "samples": is_count, "source": _maybe(_text)}),
}  # fmt: skip
RESULT_MORE: Mapping[str, Test] = {
    "versions": _table_of(_text), "totals": _table_of(is_count), "timings": _record({}, {"seconds": is_number}), "state": _text,
    "method": _text,
}  # fmt: skip


def parsed(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """(the object in a line of JSON, or None and what is wrong with it)."""
    try:
        record = json.loads(line, parse_constant=_refused)
        if b"\\u" in line:
            json.dumps(record, ensure_ascii=False).encode()  # half a surrogate pair could not be written anywhere
    except (ValueError, RecursionError):
        return None, "is not JSON"
    return (record, "") if isinstance(record, dict) else (None, "is no JSON object")


def _refused(name: str) -> None:
    raise ValueError(name)


def journal_problem(record: dict[str, Any]) -> str | None:
    """Of a line of journal.jsonl."""
    figures = {name: is_number for name in record if name not in JOURNAL and name not in JOURNAL_TABLES}
    return _problem(record, JOURNAL, {**JOURNAL_TABLES, **figures})


def plans_problem(record: dict[str, Any]) -> str | None:
    """Of a line of plans.jsonl."""
    if "chains" not in record:
        return _problem(record, {"schema": lambda value: value == 1, "clients": _list_of(_text)}, {})
    return _problem(record, {**_round, "chains": _list_of(CHAIN)}, {"groups": is_count, "left_out": is_count})


def scores_problem(record: dict[str, Any]) -> str | None:
    """Of a line of scores.jsonl."""
    return _problem(record, {**_round, "values": _list_of(_maybe(is_number))}, {})


def events_problem(record: dict[str, Any]) -> str | None:
    """Of a line of events.jsonl; kinds that are not known yet are let pass."""
    kind = record.get("event")
    if not isinstance(kind, str):
        return "has no 'event'"
    needed = {name: EVENT_KEYS[name] for name in EVENT_NEEDS.get(kind, ())}
    return _problem(record, needed, EVENT_KEYS)


def result_problem(record: dict[str, Any]) -> str | None:
    """Of result.json."""
    if record.get("schema") not in READABLE_RESULTS:
        return f"has schema {record.get('schema')!r}; this version of fedgsp reads 1 and 2"
    return _problem(record, RESULT, RESULT_MORE)


CHECKS: Mapping[str, Check] = {
    "journal": journal_problem, "plans": plans_problem, "scores": scores_problem, "events": events_problem,
}  # fmt: skip
