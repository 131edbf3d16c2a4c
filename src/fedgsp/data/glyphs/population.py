"""Who writes what: the two kinds of FEMNIST's writers, how much each writes, and which characters.

The figures are measured on FEMNIST itself. Kind A (the letter-rich forms) copied a text, so their letters are those of
English; kind B (the digit-heavy forms) filled in boxes of digits and wrote about one of each letter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgsp.data.glyphs.bits import Stream, bell, uniform, words
from fedgsp.data.glyphs.outlines import CLASSES

_SHARE_OF_KIND_A = 0.42

# Kind A: how often each class occurs, in tenths of a per mille, in the order 0-9 A-Z a-z.
_KIND_A = (
    *(357, 403, 288, 355, 286, 317, 317, 374, 304, 336),
    *(134, 46, 220, 88, 82, 214, 19, 42, 220, 55, 19, 103, 193),
    *(130, 527, 172, 34, 92, 458, 202, 330, 80, 78, 27, 78, 23),
    *(233, 76, 25, 212, 537, 21, 57, 166, 25, 27, 13, 309, 23),
    *(269, 15, 29, 36, 330, 27, 418, 23, 36, 29, 23, 21, 19),
)
_KIND_A_SIZE, _KIND_A_SPREAD = 319.0, 65.0
_KIND_A_CUT_SHORT, _KIND_A_SHORTEST, _KIND_A_CUT_BELOW = 0.07, 20.0, 250.0

# Kind B: the mean count of each digit, and of each letter in hundredths.
_KIND_B_DIGITS = (11.6, 13.0, 12.0, 11.9, 11.6, 11.4, 11.9, 12.3, 11.7, 11.7)
_KIND_B_DIGIT_SPREAD, _KIND_B_DILIGENCE = 2.88, 0.83
_KIND_B_LETTERS = (
    89, 89, 99, 87, 78, 86, 81, 80, 148, 87, 77, 99, 88, 89, 87, 87, 84, 90, 91, 84, 88, 96, 92, 89, 85, 90,
    95, 91, 95, 90, 90, 90, 84, 93, 79, 56, 84, 144, 91, 88, 89, 79, 69, 91, 91, 88, 93, 98, 94, 95, 73, 92,
)  # fmt: skip
_KIND_B_SECOND_COPY = 0.04


@dataclass(frozen=True)
class Script:
    """What one writer wrote: the kind of form and the label of every sample, in the order of the data set."""

    kind: str
    labels: npt.NDArray[np.int64]


def script(seed: int, writer: int) -> Script:
    """The labels of one writer, without drawing anything; they depend on the seed and the writer's index only."""
    raw = words(seed, writer, Stream.LABELS, 2048)
    is_kind_a = bool(uniform(raw[:1])[0] < _SHARE_OF_KIND_A)
    labels = _copied_text(raw[1:1024]) if is_kind_a else _filled_boxes(raw[1:1024])
    order = np.argsort(raw[1024 : 1024 + len(labels)], kind="stable")
    return Script(kind="a" if is_kind_a else "b", labels=labels[order])


def _copied_text(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Kind A: a number of characters drawn from the frequencies of the copied text; some writers stop early."""
    size, cut = bell(raw[:1]), uniform(raw[1:3])
    count = float(size[0]) * _KIND_A_SPREAD + _KIND_A_SIZE
    if float(cut[0]) < _KIND_A_CUT_SHORT:
        count = float(cut[1]) * (_KIND_A_CUT_BELOW - _KIND_A_SHORTEST) + _KIND_A_SHORTEST
    bounds = np.cumsum(np.array(_KIND_A, dtype=np.int64))
    draws = (uniform(raw[3 : 3 + int(count)]) * float(bounds[-1])).astype(np.int64)
    return np.searchsorted(bounds, draws, side="right").astype(np.int64)


def _filled_boxes(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Kind B: about twelve of each digit, more or fewer as the writer was diligent, and about one of each letter."""
    spread = bell(raw[:11])
    means = np.array(_KIND_B_DIGITS, dtype=np.float64)
    # 0.5 rounds to the nearest count when the fraction is cut off
    digits = means + spread[1:] * _KIND_B_DIGIT_SPREAD + spread[:1] * _KIND_B_DILIGENCE + 0.5
    digit_counts = np.maximum(digits, 0.0).astype(np.int64)
    letters = np.array(_KIND_B_LETTERS, dtype=np.float64) * 0.01
    chance = uniform(raw[11 : 11 + 104])
    second = chance[52:] < _KIND_B_SECOND_COPY
    letter_counts = (letters - _KIND_B_SECOND_COPY + chance[:52]).astype(np.int64) + second
    return np.repeat(np.arange(CLASSES, dtype=np.int64), np.concatenate([digit_counts, letter_counts]))
