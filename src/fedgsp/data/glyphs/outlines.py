"""The stroke table (``strokes.txt``) read into arrays that many glyphs can be drawn from at once.

A class has several *shapes* (allographs), each a line ``character weight strokes``: strokes are separated by ``;``, their
points are ``x,y`` with y growing downwards. Capitals stand between y = 0 and y = 10, small letters between 4 and 10,
tails reach to about 13. A stroke that starts with ``~`` runs smoothly through its points except where a point is
marked ``!`` (a corner); any other stroke is straight lines. ``=X`` for strokes borrows the shapes of another class, as
people do who write small letters as little capitals; a loan's weight counts half.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fedgsp.data.glyphs.bits import Words

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
CLASSES = len(CHARACTERS)


@dataclass(frozen=True)
class Alphabet:
    """All shapes of all classes, their points laid end to end."""

    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    corner: npt.NDArray[np.bool_]
    """Whether the stroke turns sharply at this point."""
    inner: npt.NDArray[np.bool_]
    """Whether the point has a neighbour on both sides, that is, it is no end of a stroke."""
    last: npt.NDArray[np.bool_]
    """Whether the pen is lifted after this point."""
    first_point: npt.NDArray[np.int64]
    """Where each shape's points begin."""
    point_count: npt.NDArray[np.int64]
    most_points: int
    choices: npt.NDArray[np.int64]
    """The shapes of each class in row-major order: ``choices[c]`` lists each shape as often as it weighs, padded."""
    choice_count: npt.NDArray[np.uint64]

    def choose(self, labels: npt.NDArray[np.int64], raw: Words) -> npt.NDArray[np.int64]:
        """For each label one of its shapes, as often as people choose it."""
        # 32 bits times a small count cannot overflow 64 bits, and the bias of 2**-32 cannot be seen.
        pick = ((raw >> np.uint64(32)) * self.choice_count[labels]) >> np.uint64(32)
        chosen: npt.NDArray[np.int64] = self.choices[labels, pick.astype(np.int64)]
        return chosen


@cache
def alphabet() -> Alphabet:
    """The alphabet of the stroke table, read once."""
    points: list[tuple[float, float, bool, bool, bool]] = []
    starts: list[int] = []
    own: dict[str, list[tuple[int, int]]] = {character: [] for character in CHARACTERS}
    borrowed: dict[str, list[tuple[int, str]]] = {character: [] for character in CHARACTERS}
    table = resources.files("fedgsp.data.glyphs").joinpath("strokes.txt").read_text(encoding="ascii")
    for line in table.splitlines()[1:]:
        character, weight, drawing = line.split(" ", 2)
        if drawing.startswith("="):
            borrowed[character].append((int(weight), drawing[1:]))
            continue
        own[character].append((int(weight), len(starts)))
        starts.append(len(points))
        for stroke in drawing.split(";"):
            points.extend(_points_of(stroke.strip()))
    lists = [
        [shape for weight, shape in own[character] for _ in range(2 * weight)]
        # a borrowed class lends its commonest shape: the first of its table
        + [own[lender][0][1] for weight, lender in borrowed[character] for _ in range(weight)]
        for character in CHARACTERS
    ]
    choices = np.zeros((CLASSES, max(map(len, lists))), dtype=np.int64)
    for row, shapes in zip(choices, lists, strict=True):
        row[: len(shapes)] = shapes
    ends = [*starts[1:], len(points)]
    counts = [end - start for start, end in zip(starts, ends, strict=True)]
    x, y, corner, inner, last = zip(*points, strict=True)
    return Alphabet(
        np.array(x, dtype=np.float64), np.array(y, dtype=np.float64), np.array(corner), np.array(inner), np.array(last),
        first_point=np.array(starts, dtype=np.int64), point_count=np.array(counts, dtype=np.int64), most_points=max(counts),
        choices=choices, choice_count=np.array([len(shapes) for shapes in lists], dtype=np.uint64),
    )  # fmt: skip


def _points_of(stroke: str) -> list[tuple[float, float, bool, bool, bool]]:
    """One stroke's points as (x, y, corner, inner, last)."""
    smooth = stroke.startswith("~")
    tokens = stroke.removeprefix("~").split()
    points = []
    for position, token in enumerate(tokens):
        x, y = token.removesuffix("!").split(",")
        corner = token.endswith("!") or not smooth
        inner = 0 < position < len(tokens) - 1
        points.append((float(x), float(y), corner, inner, position == len(tokens) - 1))
    return points
