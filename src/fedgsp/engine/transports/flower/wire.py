"""Tensors as one flat record: a head that says which there are, and their bytes one after the other.

Every object of a message costs a request at each of four crossings, so a model of twenty tensors is sent as one. The head is
JSON: a list of [name, type, shape] in order. Each tensor's bytes are little-endian and in C order, and begin at a multiple of
eight, so that whoever receives them looks at them where they lie.

An answer can also travel squeezed: as what differs, bit by bit, from the record that was handed over, with the first bytes of
all numbers together, then the second ones and so on, through zlib. Nothing is lost; an update moves few of the upper bits.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fedgsp.core.tensors import Tensors, tensor_bytes

TYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool,
    )
}  # fmt: skip
HEAD = struct.Struct("<Q")
ALIGNED = 8
MOST_HEAD = 16_000_000
MOST_DIMENSIONS, LONGEST = 64, 2**40
"""Of a shape: products of more and larger numbers could take hours."""
QUICKLY = 1
"""zlib's level: higher ones take two to six times as long for one percent."""


class Refused(Exception):
    """What came over the wire cannot be used; the text says why.

    `for_good`: asking again would not help. `changed`: the client has other data than it was asked about. `wants`: what it must
    be sent as well.
    """

    def __init__(self, cause: str, *, for_good: bool = False, changed: bool = False, wants: str | None = None) -> None:
        super().__init__(cause)
        self.for_good, self.changed, self.wants = for_good, changed, wants


class Malformed(Exception):
    """The bytes are not such a record; the text says why."""


@dataclass(frozen=True)
class Placed:
    """A tensor in a record: its name, type and shape, and where its bytes are."""

    name: str
    type: str
    shape: tuple[int, ...]
    begin: int
    end: int


def flat(tensors: Tensors) -> bytes:
    """The record of some tensors, in their order."""
    entries = [[name, _type(tensor), list(tensor.shape)] for name, tensor in tensors.items()]
    head = json.dumps(entries, separators=(",", ":")).encode()
    parts: list[bytes | memoryview] = [HEAD.pack(len(head)), head]
    at = HEAD.size + len(head)
    for tensor in tensors.values():
        raw = tensor_bytes(tensor).data
        parts += [b"\0" * (-at % ALIGNED), raw]
        at += -at % ALIGNED + len(raw)
    return b"".join(parts)


def places(data: bytes) -> list[Placed]:
    """What a record says it has, checked against its length.

    Raises:
        Malformed: It says what cannot be.
    """
    if len(data) < HEAD.size:
        raise Malformed("it is too short")
    (size,) = HEAD.unpack_from(data)
    if not 0 < size <= min(MOST_HEAD, len(data) - HEAD.size):
        raise Malformed("its head is longer than it")
    try:
        entries = json.loads(data[HEAD.size : HEAD.size + size])
    except (ValueError, RecursionError) as error:
        raise Malformed("its head is not JSON") from error
    found = list(_placed(entries, HEAD.size + size))
    end = found[-1].end if found else HEAD.size + size
    if end != len(data):
        raise Malformed(f"it has {len(data)} bytes, and its head says {end}")
    if len({place.name for place in found}) < len(found):
        raise Malformed("it has a tensor twice")
    return found


def tensors_at(data: bytes, found: list[Placed]) -> Tensors:
    """The tensors of a record, which share its memory once it was copied to where it may be written to."""
    writable = bytearray(data)
    return {place.name: _tensor(writable, place) for place in found}


def squeezed(data: bytes, handed: bytes, width: int) -> bytes:
    """A record as what differs from another one of the same length, of numbers of `width` bytes."""
    differs = np.frombuffer(data, np.uint8) ^ np.frombuffer(handed, np.uint8)
    whole = len(differs) // width * width
    shuffled = differs[:whole].reshape(-1, width).T.tobytes() + differs[whole:].tobytes()
    return zlib.compress(shuffled, QUICKLY)


def restored(data: bytes, handed: bytes, width: int) -> bytes:
    """The record that was squeezed; never more bytes than were handed over come out, whatever went in.

    Raises:
        Malformed: It is not such a thing.
    """
    stream = zlib.decompressobj()
    try:
        shuffled = stream.decompress(data, len(handed) + 1)
    except zlib.error as error:
        raise Malformed("it was not squeezed by zlib") from error
    if len(shuffled) != len(handed) or not stream.eof or stream.unused_data:
        raise Malformed(f"it does not come to {len(handed)} bytes")
    whole = len(handed) // width * width
    differs = np.frombuffer(shuffled, np.uint8)
    ordered = np.concatenate([differs[:whole].reshape(width, -1).T.reshape(-1), differs[whole:]])
    return bytes((ordered ^ np.frombuffer(handed, np.uint8)).tobytes())


def _placed(entries: object, at: int) -> Iterator[Placed]:
    if not isinstance(entries, list):
        raise Malformed("its head is not a list")
    for entry in entries:
        if not (isinstance(entry, list) and len(entry) == 3):
            raise Malformed("its head has an entry that is not a name, a type and a shape")
        name, kind, shape = entry
        if not isinstance(name, str) or not isinstance(shape, list):
            raise Malformed("its head has an entry that is not a name, a type and a shape")
        if not isinstance(kind, str) or kind not in TYPES:
            raise Malformed(f"the tensor '{name[:100]}' is of an unknown type")
        if len(shape) > MOST_DIMENSIONS or any(type(n) is not int or not 0 <= n <= LONGEST for n in shape):
            raise Malformed(f"the tensor '{name[:100]}' has a shape that cannot be")
        at += -at % ALIGNED
        end = at + math.prod(shape) * TYPES[kind].itemsize
        yield Placed(name, kind, tuple(shape), at, end)
        at = end


def _tensor(data: bytearray, place: Placed) -> torch.Tensor:
    kind = TYPES[place.type]
    if place.begin == place.end:
        return torch.empty(place.shape, dtype=kind)
    count = (place.end - place.begin) // kind.itemsize
    return torch.frombuffer(data, dtype=kind, count=count, offset=place.begin).reshape(place.shape)


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
