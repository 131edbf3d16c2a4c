"""Hostile sites: what they make of their honest answers, field by field, and whole federations with some of them."""

from __future__ import annotations

import copy
import json
import math
import resource
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedgsp.engine.transports.flower.records import FLAT, PROTOCOL, SQUEEZED
from fedgsp.engine.transports.flower.wire import ALIGNED, HEAD, places
from fedgsp.run.result import RunResult
from tests.support.flower_grid import Node, Tamper
from tests.support.grid_deployments import Deployment

Change = Callable[[RecordDict], RecordDict]
"""One lie: from an honest answer to a hostile one."""

DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]
NASTY: tuple[Any, ...] = (
    None, True, "x", "x" * 5000, -(10**7), 10**30, -(2**63), 1e308, -1e308, 2.5e8, [], {}, [1, "a", None],
    {"a": {"b": [1]}}, DEEP,
)  # fmt: skip
"""Values that no field may have, or that tell nothing where one may (the time that a hop took)."""
GONE = object()
MEMORY_MB = 256.0
"""What hostile messages may cost the server at most, the model being tiny."""


def check_withstood(there: Deployment, result: RunResult, culprits: Sequence[int] = (3,)) -> None:
    """It came to its end, nobody honest was skipped, figures can be, and nothing of the lies is in them."""
    assert result.status == "finished"
    assert {event["client"] for event in there.events("skipped")} <= set(culprits)
    assert {event["client"] for event in there.events("not_judged")} <= set(culprits)
    for entry in result.history:
        assert 0 <= entry["accuracy"] <= 1
        assert math.isfinite(entry["loss"])
        assert math.isfinite(entry["train_loss"])
    verdict = there.replay()
    assert (verdict.differs, verdict.rounds) == (None, result.rounds), verdict


def facts_of(content: RecordDict) -> dict[str, Any]:
    record: Any = content["fedgsp"]
    found: dict[str, Any] = json.loads(record["json"])
    return found


def with_facts(content: RecordDict, facts: Mapping[str, Any] | str) -> RecordDict:
    text = facts if isinstance(facts, str) else json.dumps(facts)
    content["fedgsp"] = ConfigRecord({"json": text})
    return content


def says(path: Sequence[str | int], value: Any) -> Change:
    """A field of the facts, however deep, has another value, or is gone."""

    def change(content: RecordDict) -> RecordDict:
        facts = facts_of(content)
        place: Any = facts
        for key in path[:-1]:
            place = place[key]
        if value is GONE:
            del place[path[-1]]
        else:
            place[path[-1]] = copy.deepcopy(value)
        return with_facts(content, facts)

    return change


def paths(facts: Mapping[str, Any], before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """All fields of some facts, those inside of tables and the first of a list too."""
    for key, value in facts.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))
        elif isinstance(value, list) and value:
            yield (*before, key, 0)


def structured(facts: Mapping[str, Any], harmless: Sequence[str] = ("seconds",)) -> Iterator[Change]:
    """Every field with every nasty value; then facts that are none."""
    for path in paths(facts):
        for value in (*NASTY, GONE):
            if not (path[-1] in harmless and value is not GONE and isinstance(value, (int, float))):
                yield says(path, value)
    for text in ("", "[]", "{", "null", '{"protocol": 1}', "NaN", "[" * 3000, "9" * 10_000, "x" * 1_100_000):
        yield _says_only(text)
    for value in ("no", "no\n\x1b[2J" * 10_000, 10**30, DEEP, None):
        for more in ({}, {"wants": "base"}, {"wants": [1]}, {"changed": True}, {"for_good": "yes", "changed": 7}):
            yield _says_only(json.dumps({"protocol": PROTOCOL, "refused": value, **more}))
    yield _says_only(json.dumps({"protocol": PROTOCOL}))
    yield lambda content: RecordDict()


def _says_only(text: str) -> Change:
    return lambda content: with_facts(content, text)


def _filled(value: float, first: bool = False) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """All numbers, or the first of them, are another."""

    def make(held: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        held[: 1 if first else None] = value
        return held

    return make


def opened(record: Any) -> dict[str, Array]:
    """The tensors of a flat record, one by one."""
    data = record[FLAT].data if FLAT in record else b""
    found = places(data) if data else []
    return {one.name: Array(one.type, one.shape, FLAT, data[one.begin : one.end]) for one in found}


def closed(tensors: Mapping[str, Array]) -> ArrayRecord:
    """Tensors as one flat record, also such as no honest site would make.

    The bytes of the next tensor begin at a multiple of eight, so one that was cut by less is filled up again with zeros, and is
    another plausible tensor: to be malformed it must be the last.
    """
    head = json.dumps([[name, one.dtype, list(one.shape)] for name, one in tensors.items()]).encode()
    data = HEAD.pack(len(head)) + head
    for one in tensors.values():
        data += b"\0" * (-len(data) % ALIGNED) + one.data
    return ArrayRecord({FLAT: Array("uint8", (len(data),), FLAT, data)})


def tensor_changes(name: str) -> Iterator[Change]:
    """A record of tensors with everything wrong that can be."""

    def arrays(change: Callable[[dict[str, Array]], dict[str, Array]]) -> Change:
        def changed(content: RecordDict) -> RecordDict:
            record = content.get(name)
            content[name] = closed(change(opened(record) if isinstance(record, ArrayRecord) else {}))
            return content

        return changed

    def values(kind: str, make: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> Change:
        def change(held: dict[str, Array]) -> dict[str, Array]:
            made = dict(held)
            for key, array in held.items():
                if array.dtype == kind:
                    new = make(np.frombuffer(array.data, dtype=kind).copy())
                    made[key] = Array(array.dtype, array.shape, array.stype, new.astype(kind).tobytes())
            return made

        return arrays(change)

    def one(make: Callable[[Array], Array]) -> Change:
        def change(held: dict[str, Array]) -> dict[str, Array]:
            last = list(held)[-1]
            return {**held, last: make(held[last])}

        return arrays(change)

    def whole(make: Callable[[Array], Array]) -> Change:
        def changed(content: RecordDict) -> RecordDict:
            record = content.get(name)
            held = record[FLAT] if isinstance(record, ArrayRecord) and FLAT in record else Array("uint8", (0,), FLAT, b"")
            content[name] = ArrayRecord({FLAT: make(held)})
            return content

        return changed

    for filled in (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e30, 1e6):
        yield values("float32", _filled(filled))
        yield values("float32", _filled(filled, first=True))
    if name == "model":
        for count in (-(2**63), 2**63 - 1, 2**40, -5000):
            yield values("int64", _filled(count))
    yield values("float32", lambda held: held * np.float32(1000) + np.float32(1000))
    yield arrays(lambda held: {})
    yield arrays(lambda held: {**held, "more": Array("float32", (1,), FLAT, b"\0" * 4)})
    yield arrays(lambda held: dict(list(held.items())[1:]))
    yield one(lambda array: Array("object", array.shape, array.stype, b"\x80\x04N."))
    yield whole(lambda array: Array(array.dtype, array.shape, "numpy.ndarray", array.data))
    yield whole(lambda array: Array(array.dtype, array.shape, array.stype, array.data[:-1]))
    yield whole(lambda array: Array(array.dtype, array.shape, array.stype, array.data[:5]))
    yield whole(lambda array: Array(array.dtype, array.shape, array.stype, b"\xff" * 64))
    yield one(lambda array: Array("float64", array.shape, array.stype, array.data * 2))
    yield one(lambda array: Array(array.dtype, (10**9, 10**9), array.stype, array.data))
    yield one(lambda array: Array(array.dtype, (-1,), array.stype, array.data))
    yield one(lambda array: Array(array.dtype, array.shape, array.stype, array.data[:-1]))
    yield one(lambda array: Array(array.dtype, array.shape, array.stype, b""))

    def other_kind(content: RecordDict) -> RecordDict:
        content[name] = ConfigRecord({"json": "{}"})
        return content

    yield other_kind


def squeezed_changes(rng: np.random.Generator) -> Iterator[Change]:
    """A squeezed model that is none, or that would take all memory when it is opened."""

    def whole(make: Callable[[bytes], bytes], kind: str = SQUEEZED) -> Change:
        def changed(content: RecordDict) -> RecordDict:
            record: Any = content["model"]
            data = make(record[FLAT].data)
            content["model"] = ArrayRecord({FLAT: Array("uint8", (len(data),), kind, data)})
            return content

        return changed

    bomb = zlib.compress(b"\0" * 400_000_000)
    yield whole(lambda data: bomb)
    yield whole(lambda data: zlib.compress(b""))
    yield whole(lambda data: zlib.compress(zlib.decompress(data) + b"\0"))
    yield whole(lambda data: zlib.compress(zlib.decompress(data)[:-1]))
    yield whole(lambda data: data + b"more")
    yield whole(lambda data: data, FLAT)
    yield whole(lambda data: data, "fedgsp.flat.squeezed.twice")
    for _ in range(40):
        cut, noise = float(rng.random()), rng.bytes(int(rng.integers(1, 400)))
        yield whole(lambda data, cut=cut: data[: int(cut * len(data))])  # type: ignore[misc]
        yield whole(lambda data, noise=noise: noise)  # type: ignore[misc]


def drawn_bytes(rng: np.random.Generator, name: str) -> Change:
    """A record of tensors whose bytes are cut, longer, others, or say other things of themselves; its numbers stay."""

    def change(content: RecordDict) -> RecordDict:
        record: Any = content[name]
        data = bytearray(record[FLAT].data)
        (size,) = HEAD.unpack_from(data)
        kind, at = int(rng.integers(7)), HEAD.size + int(rng.integers(size))
        if kind == 0:
            data = data[: int(rng.integers(len(data)))]
        elif kind == 1:
            data += rng.bytes(int(rng.integers(1, 5000)))
        elif kind == 2:
            data = bytearray(rng.bytes(int(rng.integers(1, 5000))))
        elif kind == 3:
            HEAD.pack_into(data, 0, int(rng.integers(2**63)) if rng.random() < 0.5 else int(rng.integers(2 * size)))
        elif kind == 4:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 5:
            del data[at : at + int(rng.integers(1, 9))]
        else:
            shape = json.dumps([int(n) for n in rng.integers(2**20, 2**62, int(rng.integers(1, 200)))]).encode()
            head = bytes(data[HEAD.size : HEAD.size + size]).replace(b"[4]", shape, 1).replace(b"[3,4]", shape, 1)
            data = bytearray(HEAD.pack(len(head)) + head + data[HEAD.size + size :])
        content[name] = ArrayRecord({FLAT: Array("uint8", (len(data),), FLAT, bytes(data))})
        return content

    return change


def drawn(rng: np.random.Generator, facts: Mapping[str, Any]) -> Change:
    """One to three fields at random, with random values that no field may have."""
    known = list(paths(facts))

    def value() -> Any:
        kind = int(rng.integers(7))
        if kind == 0:
            return int(rng.integers(2**31, 2**62)) * (-1) ** int(rng.integers(2))
        if kind == 1:
            return float(10.0 ** rng.integers(9, 308)) * (-1) ** int(rng.integers(2))
        if kind == 2:
            return "".join(chr(int(n)) for n in rng.integers(1, 0xD7FF, int(rng.integers(1, 40))))
        if kind == 3:
            return [value() for _ in range(int(rng.integers(0, 4)))]
        if kind == 4:
            return {str(k): value() for k in range(int(rng.integers(0, 4)))}
        return (None, GONE)[kind - 5]

    steps = [says(known[int(rng.integers(len(known)))], value()) for _ in range(int(rng.integers(1, 4)))]

    def change(content: RecordDict) -> RecordDict:
        for step in steps:
            try:
                content = step(content)
            except (KeyError, IndexError, TypeError, AttributeError):  # the field was inside of one that is gone by now
                continue
        return content

    return change


def in_turn(changes: Mapping[str, Iterator[Change]], hostile: Sequence[int], used: list[str]) -> Tamper:
    """Hostile nodes answer each message of a kind with its next change; when none is left, honestly."""

    def tamper(node: Node, message: Message, content: RecordDict) -> RecordDict:
        kind = message.metadata.message_type
        if node.number not in hostile or kind not in changes or "refused" in facts_of(content):
            return content
        change = next(changes[kind], None)
        if change is None:
            return content
        used.append(kind)
        return change(content)

    return tamper


def peak_mb() -> float:
    """The largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
