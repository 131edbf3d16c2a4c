"""What a person should know of a run that was started in Python: warnings at the line that called fedgsp."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence

from fedgsp.core.errors import RunWarning
from fedgsp.run.callbacks import Callback, Failure, in_words


class Warner(Callback):
    """Tells of clients that were skipped and workers that were lost or may hang, as Python warns."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_failure(self, failure: Failure) -> None:
        """What happened, and why."""
        self.told.append(in_words(failure))
        warn(self.told[-1:])


def warn(notes: Sequence[str]) -> None:
    """What the person should know, as warnings at the line that called fedgsp."""
    for note in notes:
        level, frame = 1, inspect.currentframe()
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fedgsp":
            level, frame = level + 1, frame.f_back
        warnings.warn(note, RunWarning, stacklevel=level)
