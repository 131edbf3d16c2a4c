"""Writes that fail at a chosen moment, and what of a run must repeat to the bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class Killed(BaseException):
    """Stands for a process that ceases to exist: nothing in the package may catch it."""


class NthWrite:
    """Lets `count` writes pass, then does something else; the first one that is not whole may have written a part."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, fault: Callable[[], BaseException], part: bool) -> None:
        self.left = count
        self._fault = fault
        self._part = part
        self._write = os.write
        self.hit = False
        monkeypatch.setattr("fedgsp.run.files.os.write", self.write)

    def write(self, descriptor: int, content: Any) -> int:
        self.left -= 1
        if self.left >= 0:
            return self._write(descriptor, content)
        self.hit = True
        if self._part and self.left == -1 and len(content) > 1:
            self._write(descriptor, bytes(content)[: len(content) // 2])
        raise self._fault()


def outcome(out: Path) -> dict[str, bytes]:
    """Everything of a run that must repeat to the bit: model, plans, and the journal without its timings."""
    history = b"\n".join(line.split(b',"timings"')[0] for line in (out / "journal.jsonl").read_bytes().splitlines())
    return {
        "model": (out / "model.safetensors").read_bytes(),
        "plans": (out / "plans.jsonl").read_bytes(),
        "journal": history,
    }
