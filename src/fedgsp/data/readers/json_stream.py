"""A JSON reader that never holds more than one value: for files of many GB that are one object with long arrays in it.

A general streaming parser (ijson) makes an event of every number, several hundred million of them in FEMNIST. Here only the
structure is streamed: `members` and `items` walk objects and arrays, and a value small enough to be a sample is cut out as
bytes and decoded at once. No value may be larger than `LARGEST_VALUE`, so memory stays bounded whatever the file says.

Samples are decoded by orjson, five times as fast as `json` and to the same bits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from fedgsp.core.errors import InputError

BLOCK = 1 << 20
LARGEST_VALUE = 1 << 24
DEEPEST = 64
BACKSLASH = 0x5C
BRACKET = 0x5B
OPENING = (b"[", b"{", b'"')
NOT_SPACE = re.compile(rb"[^ \t\r\n]")
AFTER_SCALAR = re.compile(rb"[,\]} \t\r\n]")
STRUCTURE = re.compile(rb'["\[\]{}]')


class JsonStream:
    """A cursor in a JSON file. Every complaint names the file and the byte it is about."""

    def __init__(self, path: Path, file: BinaryIO, tick: Callable[[int], None] | None = None) -> None:
        self._path, self._file, self._tick = path, file, tick
        self._buffer, self._at, self._before, self._ended = b"", 0, 0, False

    def members(self) -> Iterator[str]:
        """The keys of the object at the cursor; the caller consumes each key's value before asking for the next."""
        self._expect(b"{", "an object")
        if self._peek() == b"}":
            self._at += 1
            return
        while True:
            if self._peek() != b'"':
                raise self.wrong("a key in quotes is missing")
            key = self.value()
            self._expect(b":", "a colon after the key")
            yield str(key)
            if self._next_or_end(b"}"):
                return

    def items(self) -> Iterator[None]:
        """The items of the array at the cursor; the caller consumes each before asking for the next."""
        self._expect(b"[", "an array")
        if self._peek() == b"]":
            self._at += 1
            return
        while True:
            yield None
            if self._next_or_end(b"]"):
                return

    def value(self) -> Any:
        """The whole value at the cursor, decoded."""
        return self._decode(self._raw())

    def sample(self) -> Any:
        """The same for many numbers, quickly."""
        raw = self._raw()
        try:
            return orjson.loads(raw)
        except ValueError:  # NaN, an infinite number, or damage: `json` knows which
            return self._decode(raw)

    def _raw(self) -> bytes:
        """The bytes of the value at the cursor (not yet known to be valid JSON)."""
        first = self._peek()
        if first in (b"[", b"{"):
            end = self._end_of_nest()
        elif first == b'"':
            end = self._end_of_text(self._at)
        else:
            end = self._end_of_scalar()
        found = self._buffer[self._at : end]
        self._at = end
        return found

    def _decode(self, raw: bytes) -> Any:
        """A value from its bytes."""
        try:
            return json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError:
            raise self.wrong("the text is not UTF-8") from None
        except RecursionError:
            raise self.wrong("values are nested too deep") from None
        except ValueError as error:
            raise self.wrong(f"it is not valid JSON ({error})") from None

    def skip(self) -> None:
        """Leave out the value at the cursor."""
        self._raw()

    def at_array(self) -> bool:
        """Whether the value at the cursor is an array."""
        return self._peek() == b"["

    def at_object(self) -> bool:
        """Whether the value at the cursor is an object."""
        return self._peek() == b"{"

    def finish(self) -> None:
        """Nothing but space may follow."""
        while True:
            if NOT_SPACE.search(self._buffer, self._at):
                raise self.wrong("something follows after the end of the data")
            self._at = len(self._buffer)
            if not self._more():
                return
            self._buffer, self._before, self._at = self._buffer[self._at :], self._before + self._at, 0

    def wrong(self, what: str) -> InputError:
        """A complaint about this place in the file."""
        return InputError(f"{self._path}: {what}, near byte {self._before + self._at}.")

    def _peek(self) -> bytes:
        """The next byte that is not space. Nothing before it is needed any more, so the buffer is cut here and only here."""
        if self._at > BLOCK:
            self._buffer, self._before, self._at = self._buffer[self._at :], self._before + self._at, 0
        while True:
            found = NOT_SPACE.search(self._buffer, self._at)
            if found is not None:
                self._at = found.start()
                return found.group()
            self._at = len(self._buffer)
            if not self._more():
                raise self.wrong("the file ends too early")

    def _expect(self, token: bytes, what: str) -> None:
        if self._peek() != token:
            raise self.wrong(f"{what} is expected")
        self._at += 1

    def _next_or_end(self, end: bytes) -> bool:
        token = self._peek()
        if token not in (b",", end):
            raise self.wrong(f"',' or '{end.decode()}' is expected")
        self._at += 1
        return token == end

    def _end_of_scalar(self) -> int:
        look = self._at
        while True:
            found = AFTER_SCALAR.search(self._buffer, look)
            look = found.start() if found else len(self._buffer)
            if found or not self._more():
                if look == self._at:
                    raise self.wrong("a value is missing")
                return look

    def _end_of_text(self, start: int) -> int:
        """The end of the string whose opening quote is at `start`."""
        look = start + 1
        while True:
            quote = self._buffer.find(b'"', look)
            if quote < 0:
                look = len(self._buffer)
                if not self._more():
                    raise self.wrong("the file ends inside a text")
                continue
            before = quote
            while self._buffer[before - 1] == BACKSLASH:
                before -= 1
            if (quote - before) % 2 == 0:
                return quote + 1
            look = quote + 1

    def _end_of_nest(self) -> int:
        """The end of the array or object at the cursor; a flat array of numbers, the usual case, takes four looks."""
        look, depth = self._at, 0
        close = self._buffer.find(b"]", look)
        nested = any(self._buffer.find(token, look + 1, close) >= 0 for token in OPENING)
        if self._buffer[look] == BRACKET and close >= 0 and not nested:
            return close + 1
        while True:
            found = STRUCTURE.search(self._buffer, look)
            if found is None:
                look = len(self._buffer)
                if not self._more():
                    raise self.wrong("the file ends inside an array or object")
                continue
            token, look = found.group(), found.end()
            if token == b'"':
                look = self._end_of_text(found.start())
            elif token in b"[{":
                depth += 1
                if depth > DEEPEST:
                    raise self.wrong("values are nested too deep")
            else:
                depth -= 1
                if depth == 0:
                    return look

    def _more(self) -> bool:
        """Read on: at least as much again, so that a large value is not copied once a block."""
        if self._ended:
            return False
        held = len(self._buffer) - self._at
        if held > LARGEST_VALUE:
            raise self.wrong(f"a single value is larger than {LARGEST_VALUE >> 20} MiB")
        try:
            block = self._file.read(max(BLOCK, held))
        except OSError as error:
            raise InputError(f"cannot read {self._path}: {error.strerror}.") from error
        self._ended = not block
        self._buffer += block
        if self._tick is not None:
            self._tick(self._before + len(self._buffer))
        return bool(block)
