from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgsp.core.errors import InputError
from fedgsp.data.readers import json_stream
from fedgsp.data.readers.json_stream import JsonStream

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def stream(text: str | bytes) -> JsonStream:
    raw = text.encode() if isinstance(text, str) else text
    return JsonStream(Path("f.json"), io.BytesIO(raw))


def walk(cursor: JsonStream) -> Any:
    """A value read through the structure: objects and arrays by their members and items."""
    if cursor.at_object():
        return {key: walk(cursor) for key in cursor.members()}
    if cursor.at_array():
        return [walk(cursor) for _ in cursor.items()]
    return cursor.value()


@settings(max_examples=150, deadline=None)
@given(VALUES, st.integers(1, 40), st.sampled_from([None, 1]))
def test_reads_what_json_reads_whatever_the_block_size(value: Any, block: int, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "BLOCK", block)
        cursor = stream(text)
        assert walk(cursor) == value
        cursor.finish()
        assert stream(text).value() == value


def test_memory_stays_that_of_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "BLOCK", 1000)
    cursor = stream(json.dumps({"x": [[k] * 20 for k in range(5000)]}))
    largest = 0
    for _ in cursor.members():
        for _ in cursor.items():
            cursor.skip()
            largest = max(largest, len(cursor._buffer))
    assert largest < 5000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "ends too early"),
        ("{", "ends too early"),
        ('{"a": [1, 2', "ends inside an array"),
        ('{"a', "ends inside a text"),
        ('{"a" 1}', "a colon"),
        ("{1: 2}", "a key in quotes"),
        ('{"a": 1 "b": 2}', "',' or '}' is expected"),
        ('{"a": }', "a value is missing"),
        ('{"a": nope}', "not valid JSON"),
        ('{"a": 1} 2', "something follows"),
        ("[" * 100 + "]" * 100, "nested too deep"),
        (b'{"a": "\xff"}', "not UTF-8"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
)
def test_damage_is_named_with_the_place(text: str | bytes, told: str) -> None:
    def read() -> None:
        cursor = stream(text)
        if cursor.at_object():
            for _ in cursor.members():
                cursor.value()
        else:
            cursor.value()
        cursor.finish()

    with pytest.raises(InputError, match=told) as caught:
        read()
    assert "f.json" in str(caught.value)
    assert "near byte" in str(caught.value)


def test_a_value_larger_than_allowed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "LARGEST_VALUE", 1000)
    monkeypatch.setattr(json_stream, "BLOCK", 100)
    with pytest.raises(InputError, match="a single value is larger"):
        stream("[" + "1," * 5000 + "1]").skip()


def test_samples_have_the_bits_that_python_reads() -> None:
    bits = np.random.default_rng(0).integers(0, 2**63, 20_000, dtype=np.uint64).view(np.float64)
    texts = [repr(x) for x in bits[np.isfinite(bits)].tolist()]
    texts += [f"{a}.{b}{c}e{a % 500 - 250}" for a, b, c in np.random.default_rng(1).integers(0, 10**9, (20_000, 3)).tolist()]
    text = "[" + ", ".join(texts) + "]"
    assert np.array_equal(np.array(stream(text).sample()).view(np.int64), np.array(json.loads(text)).view(np.int64))


@pytest.mark.parametrize("text", [b"[1, 2}", b"[1 2]", b'["\xff"]', b"[01]"])
def test_a_damaged_sample_is_refused(text: bytes) -> None:
    with pytest.raises(InputError, match=r"^f\.json: (it is not valid JSON|the text is not UTF-8)"):
        stream(text).sample()


def test_numbers_that_are_not_finite_are_read_as_json_reads_them() -> None:
    assert math.isnan(stream("[NaN]").sample()[0])
    assert stream("[1e999]").sample() == [math.inf]
