"""LEAF's texts as tokens: Shakespeare's characters as LEAF numbers them, and the words of Sent140's tweets.

`leaf:DIR:encoder=shakespeare` and `leaf:DIR:encoder=sent140`. Characters have LEAF's own 80 numbers. Words have no list that
comes with LEAF's files, so a word's number is a checksum of its letters, 1 to 4095, the same everywhere; 0 fills up.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 characters of Shakespeare, in its order."""
WORDS = 4096
TWEET_WORDS = 25
"""LEAF cuts tweets at so many words."""
TWEET_TEXT = 4
"""Where a tweet's text is among the fields that LEAF keeps of it."""
POSITIVE = 4
"""Sentiment140 marks good moods with 4 and bad ones with 0."""
WORD = re.compile(r"[\w']+|[.,!?;]")


@dataclass(frozen=True)
class TextEncoder:
    """From a client's raw lists to tokens and classes; `vocabulary` tokens, `classes` classes, `padding` fills up."""

    name: str
    vocabulary: int
    classes: int
    padding: int | None = None

    def __call__(self, x: list[Any], y: list[Any]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """(tokens (n, positions), classes (n,))."""
        if self.name == "shakespeare":
            return _characters(x), np.array([_character(one) for one in y], dtype=np.int64)
        return _words(x), np.array([_mood(one) for one in y], dtype=np.int64)


ENCODERS = {
    "shakespeare": TextEncoder("shakespeare", len(CHARACTERS), len(CHARACTERS)),
    "sent140": TextEncoder("sent140", WORDS, 2, 0),
}


def _characters(lines: list[Any]) -> NDArray[np.int16]:
    return np.array([[_character(one) for one in line] for line in lines], dtype=np.int16)


def _character(one: str) -> int:
    """Its number; what LEAF does not know becomes a blank."""
    found = CHARACTERS.find(one)
    return CHARACTERS.index(" ") if found < 0 else found


def _words(tweets: list[Any]) -> NDArray[np.int16]:
    made = np.zeros((len(tweets), TWEET_WORDS), dtype=np.int16)
    for row, tweet in enumerate(tweets):
        text = tweet if isinstance(tweet, str) else str(tweet[TWEET_TEXT])
        for place, word in enumerate(WORD.findall(text.lower())[:TWEET_WORDS]):
            made[row, place] = 1 + zlib.crc32(word.encode()) % (WORDS - 1)
    return made


def _mood(label: Any) -> int:
    """1 for a good mood: LEAF's files have 0 and 4, or 0 and 1, as numbers or texts."""
    number = int(label)
    if number not in (0, 1, POSITIVE):
        raise ValueError(f"a tweet's mood is 0, 1 or {POSITIVE}, not {label}")
    return int(number > 0)
