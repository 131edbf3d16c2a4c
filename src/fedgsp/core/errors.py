"""Errors are for the person who can act on them: one sentence that says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Self


class FedgspError(Exception):
    """An expected failure; its text is a whole sentence for a person, shown without a traceback.

    `traced` ones came out of somebody's code: the `__cause__` has its traceback (`core.blame`).
    """

    exit_code = 1
    traced = False

    def with_trace(self, traced: bool = True) -> Self:
        """The same, with a traceback that is worth reading."""
        self.traced = traced
        return self

    def __str__(self) -> str:
        """One line, whatever names from files it quotes: no line breaks, no terminal control sequences."""
        text = super().__str__()
        return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


class InputError(FedgspError):
    """Something the user gave (an option, a file, a run directory) cannot be used; nothing has been started."""

    exit_code = 2


class RunFailed(FedgspError):
    """A run that had started cannot go on; its last checkpoint is whole."""


class Paused(RunFailed):
    """A run waits for its clients longer than it was told to; nothing is lost, and it can go on when they are back."""


class Diverged(RunFailed):
    """Training produced values that are not finite, or far too large to be averaged."""


class Terminated(BaseException):
    """The process was told to stop (SIGTERM): a run ends as after Ctrl-C, which command-line frameworks treat their own way."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that helps a person who mistyped a name: the nearest known one, else all of them."""
    names = sorted(known)
    if not names:
        return "there is none to choose from."
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"choose from: {', '.join(names)}."
