"""Tensors and facts as Flower's records: tensors as one flat record (`wire.py`), facts as JSON text. Never a pickle.

Whoever receives tensors checks them against what must come: names, types, shapes, lengths, and that every number is finite.
What does not fit is `Refused`, with a sentence; nothing of it is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedgsp.core.tensors import FULL, NARROW, Tensors, Wire, narrowed
from fedgsp.engine.transports.flower.wire import Malformed, Placed, flat, places, restored, squeezed, tensors_at
from fedgsp.engine.transports.flower.wire import Refused as Refused

PROTOCOL = 3
FLAT = "fedgsp.flat"
SQUEEZED = "fedgsp.flat.squeezed"
FACTS = "fedgsp"
MOST_TEXT = 16_000_000


def pack(tensors: Tensors, wire: Wire = FULL) -> ArrayRecord:
    """Tensors as they are sent: one array, or none."""
    record = ArrayRecord()
    if tensors:
        data = flat(narrowed(tensors, wire))
        record[FLAT] = Array("uint8", (len(data),), FLAT, data)
    return record


def squeeze(record: ArrayRecord, handed: ArrayRecord, wire: Wire) -> ArrayRecord:
    """An answer's model as what differs from the one that was handed over, where that is shorter."""
    if FLAT not in record or FLAT not in handed or len(record[FLAT].data) != len(handed[FLAT].data):
        return record
    data = squeezed(record[FLAT].data, handed[FLAT].data, _width(wire))
    if len(data) >= len(record[FLAT].data):
        return record
    return ArrayRecord({FLAT: Array("uint8", (len(data),), SQUEEZED, data)})


def restore(record: ArrayRecord, handed: ArrayRecord, wire: Wire, what: str) -> ArrayRecord:
    """The same as it was before it was squeezed; a record that was not stays as it is."""
    if list(record.keys()) != [FLAT] or record[FLAT].stype != SQUEEZED:
        return record
    try:
        data = restored(record[FLAT].data, handed[FLAT].data, _width(wire))
    except Malformed as error:
        raise Refused(f"{what}: {error}") from error
    return ArrayRecord({FLAT: Array("uint8", (len(data),), FLAT, data)})


def _width(wire: Wire) -> int:
    return 2 if wire in NARROW else 4


def unpack(record: ArrayRecord, what: str, finite: Callable[[str], bool] = lambda name: True) -> Tensors:
    """Tensors that came, each of a known type, of the length that its shape says, and (those that must be) finite."""
    return _finite(*_opened(record, what), what, finite)


def unpack_like(
    record: ArrayRecord, like: Tensors, wire: Wire, what: str, finite: Callable[[str], bool] = lambda name: True
) -> Tensors:
    """Tensors that must have the names and shapes of `like` and, on the wire, its types; returned in its own types."""
    expected = narrowed({name: t.new_empty(0) for name, t in like.items()}, wire)
    data, found = _opened(record, what)
    named = {place.name: place for place in found}
    if named.keys() != like.keys():
        odd = sorted(named.keys() ^ like.keys())
        raise Refused(f"{what}: other tensors than expected ('{odd[0]}' and {len(odd) - 1} more)")
    for name, place in named.items():
        kind = str(expected[name].dtype).removeprefix("torch.")
        if place.shape != tuple(like[name].shape):
            raise Refused(f"{what}: '{name}' has the shape {place.shape} and not {tuple(like[name].shape)}")
        if place.type != kind:
            raise Refused(f"{what}: '{name}' is of the type {place.type} and not {kind}")
    tensors = _finite(data, found, what, finite)
    return {name: tensors[name].to(own.dtype) for name, own in like.items()}


def payload(record: ArrayRecord) -> int:
    """How many bytes of tensors a record has."""
    return sum(place.end - place.begin for array in record.values() for place in places(array.data))


def _opened(record: ArrayRecord, what: str) -> tuple[bytes, list[Placed]]:
    if not record:
        return b"", []
    if list(record.keys()) != [FLAT] or record[FLAT].stype != FLAT:
        name, array = next(iter(record.items()))
        raise Refused(f"{what}: '{name}' is of the unknown kind '{array.stype} {array.dtype}'")
    data = record[FLAT].data
    try:
        return data, places(data)
    except Malformed as error:
        raise Refused(f"{what}: {error}") from error


def _finite(data: bytes, found: list[Placed], what: str, finite: Callable[[str], bool]) -> Tensors:
    tensors = tensors_at(data, found)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and finite(name) and not bool(tensor.isfinite().all()):
            raise Refused(f"{what}: the tensor '{name}' has values that are not finite")
    return tensors


def say(facts: dict[str, Any], **tensors: ArrayRecord) -> RecordDict:
    """A message's content: facts, and tensors by what they are; those that are none are left out."""
    content = RecordDict({FACTS: ConfigRecord({"json": json.dumps({"protocol": PROTOCOL, **facts}, allow_nan=False)})})
    for name, record in tensors.items():
        if record:
            content[name] = record
    return content


def heard(content: RecordDict) -> dict[str, Any]:
    """The facts of a message; one of another protocol is refused."""
    record = content.get(FACTS)
    text = record.get("json") if isinstance(record, ConfigRecord) else None
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise Refused("the message is not one of fedgsp's")
    try:
        facts = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise Refused("the message's facts are not JSON") from error
    if not isinstance(facts, dict) or facts.get("protocol") != PROTOCOL:
        raise Refused(f"the message is not of protocol {PROTOCOL}: both sides need the same version of fedgsp", for_good=True)
    return facts


def arrays(content: RecordDict, name: str) -> ArrayRecord:
    """The tensors that a message has under a name; none is the same as empty."""
    found = content.get(name)
    if found is None:
        return ArrayRecord()
    if not isinstance(found, ArrayRecord):
        raise Refused(f"'{name}' is not tensors")
    return found


def _refuse(constant: str) -> Any:
    raise Refused(f"a number is {constant}")
