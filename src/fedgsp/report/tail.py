"""Following a file of JSON lines that somebody else writes: only what is new is read, and a cut is noticed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOOK_BACK = 512
"""Bytes before the place reached that must still be the same: resuming cuts logs back and writes on."""


class LineTail:
    """The whole lines of a log, a few at a time. It reads, and never writes, locks or waits."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._before = b""

    def read(self) -> tuple[bool, list[dict[str, Any]]]:
        """(whether everything told before is void, new lines). A last line without its end is left for the next time."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, self._at - len(self._before)))
                void = self._at > 0 and file.read(len(self._before)) != self._before
                if void:
                    self._at = 0
                    file.seek(0)
                content = file.read()
        except FileNotFoundError:
            void, self._at, self._before = self._at > 0, 0, b""
            return void, []
        end = content.rfind(b"\n") + 1
        whole = content[:end]
        self._before = ((b"" if void else self._before) + whole)[-LOOK_BACK:]
        self._at += end
        return void, list(_parsed(whole))


def _parsed(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.split(b"\n")[:-1]:
        try:
            record = json.loads(line)
        except ValueError:  # the end of a line that a crash cut short and a resumed run ended
            continue
        if isinstance(record, dict):
            yield record
