"""Waiting for what another process does: with a limit of minutes, which only what never comes meets."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(done: Callable[[], bool], seconds: float = 300, what: str = "it") -> None:
    """Wait for something, not for ever."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"waited {seconds:g} seconds in vain for {what}"
        time.sleep(0.05)
