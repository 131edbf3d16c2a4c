"""Tensors and facts as Flower's records: raw bytes with a type and a shape, and JSON text. Never a pickle.

Whoever receives tensors checks them against what must come: names, types, shapes, lengths, and that every number is finite.
What does not fit is `Refused`, with a sentence; nothing of it is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedgsp.core.tensors import FULL, Tensors, Wire, narrowed, tensor_bytes

PROTOCOL = 1
RAW = "fedgsp.raw"
TYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool,
    )
}  # fmt: skip
FACTS = "fedgsp"
MOST_TEXT = 16_000_000


class Refused(Exception):
    """What came over the wire cannot be used; the text says why.

    `for_good`: asking again would not help. `changed`: the client has other data than it was asked about.
    """

    def __init__(self, cause: str, *, for_good: bool = False, changed: bool = False) -> None:
        super().__init__(cause)
        self.for_good, self.changed = for_good, changed


def pack(tensors: Tensors, wire: Wire = FULL) -> ArrayRecord:
    """Tensors as they are sent (little-endian, C order)."""
    record = ArrayRecord()
    for name, tensor in narrowed(tensors, wire).items():
        kind, shape = str(tensor.dtype).removeprefix("torch."), tuple(int(n) for n in tensor.shape)
        record[name] = Array(kind, shape, RAW, tensor_bytes(tensor).tobytes())
    return record


def unpack(record: ArrayRecord, what: str, finite: Callable[[str], bool] = lambda name: True) -> Tensors:
    """Tensors that came, each of a known type, of the length that its shape says, and (those that must be) finite."""
    tensors: Tensors = {}
    for name, array in record.items():
        kind = TYPES.get(array.dtype)
        if array.stype != RAW or kind is None:
            raise Refused(f"{what}: the tensor '{name}' is of the unknown kind '{array.stype} {array.dtype}'")
        shape = tuple(array.shape)
        if any(n < 0 for n in shape) or math.prod(shape) * kind.itemsize != len(array.data):
            raise Refused(f"{what}: the tensor '{name}' has {len(array.data)} bytes, which is not the shape {shape}")
        flat = torch.frombuffer(bytearray(array.data), dtype=kind) if array.data else torch.empty(0, dtype=kind)
        tensor = flat.reshape(shape)
        if tensor.is_floating_point() and finite(name) and not bool(tensor.isfinite().all()):
            raise Refused(f"{what}: the tensor '{name}' has values that are not finite")
        tensors[name] = tensor
    return tensors


def unpack_like(
    record: ArrayRecord, like: Tensors, wire: Wire, what: str, finite: Callable[[str], bool] = lambda name: True
) -> Tensors:
    """Tensors that must have the names and shapes of `like` and, on the wire, its types; returned in its own types."""
    expected = narrowed({name: t.new_empty(0) for name, t in like.items()}, wire)
    if record.keys() != like.keys():
        odd = sorted(set(record.keys()) ^ set(like.keys()))
        raise Refused(f"{what}: other tensors than expected ('{odd[0]}' and {len(odd) - 1} more)")
    for name, array in record.items():
        kind = str(expected[name].dtype).removeprefix("torch.")
        if tuple(array.shape) != tuple(like[name].shape):
            raise Refused(f"{what}: '{name}' has the shape {tuple(array.shape)} and not {tuple(like[name].shape)}")
        if array.dtype != kind:
            raise Refused(f"{what}: '{name}' is of the type {array.dtype} and not {kind}")
    return {name: t.to(like[name].dtype) for name, t in unpack(record, what, finite).items()}


def say(facts: dict[str, Any], **tensors: ArrayRecord) -> RecordDict:
    """A message's content: facts, and tensors by what they are."""
    content = RecordDict({FACTS: ConfigRecord({"json": json.dumps({"protocol": PROTOCOL, **facts}, allow_nan=False)})})
    for name, record in tensors.items():
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
