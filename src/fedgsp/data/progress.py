"""How long work on data says how far it is, without knowing who listens."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""(what is being done, how much is done, how much there is): bytes, usually; called many times."""


def silent(what: str, done: int, total: int) -> None:
    """Nobody listens."""
