"""A round pen on 28 x 28 pixels: smooth curves through the points, cut into short lines, drawn with soft edges.

Only element-wise + - * /, square roots, minima and maxima of floats are used: IEEE 754 rounds each of them exactly,
so the pixels are the same on every machine. Nothing is summed or multiplied as a matrix, where the order of additions
is the machine's choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgsp.data.glyphs.bits import Floats

SIDE = 28
_REACH = 3
"""A short line is drawn on the pixels at most this far from its middle."""
_MARGIN = _REACH
_PADDED = SIDE + 2 * _MARGIN
_MOST_LINES = 14
"""At most this many short lines for the curve between two points."""


@dataclass(frozen=True)
class Skeletons:
    """The control points of many images, laid end to end, and what each image's pen is like.

    ``x, y, image, smooth, last, bow`` have an entry for each point, the others for each image.
    """

    x: Floats
    y: Floats
    image: npt.NDArray[np.int64]
    images: int
    smooth: Floats
    """1 where the curve passes smoothly, 0 at ends and sharp corners, between them for rounded corners."""
    last: npt.NDArray[np.bool_]
    bow: Floats
    """How far the line that starts here is bent sideways, as a share of its length."""
    curl: Floats
    """How strongly curves are rounded: 1 is a circle-like curve, less is nearer to straight lines."""
    radius: Floats
    shift_x: Floats
    shift_y: Floats


@dataclass(frozen=True)
class _Lines:
    """Short straight lines (pixels), each belonging to an image, ordered by image."""

    x0: Floats
    y0: Floats
    x1: Floats
    y1: Floats
    image: npt.NDArray[np.int64]


def draw(skeletons: Skeletons, out: npt.NDArray[np.uint8]) -> None:
    """Draw every image of ``skeletons`` into ``out`` (images, 28, 28): paper is 255, ink is 0."""
    lines = _centred(_flattened(skeletons), skeletons)
    canvas = np.zeros((skeletons.images, _PADDED * _PADDED), dtype=np.float32)
    radius = skeletons.radius.astype(np.float32)
    starts = np.searchsorted(lines.image, np.arange(skeletons.images + 1, dtype=np.int64))
    counts = np.diff(starts)
    for rank in range(int(counts.max())):  # one line of each image at a time, so that no pixel is written twice at once
        images = np.flatnonzero(counts > rank)
        _stamp(canvas, images, lines, starts[images] + rank, radius[images])
    middle = canvas.reshape(-1, _PADDED, _PADDED)[:, _MARGIN : _MARGIN + SIDE, _MARGIN : _MARGIN + SIDE]
    np.copyto(out, (255.5 - middle * 255.0).astype(np.uint8))


def _flattened(bones: Skeletons) -> _Lines:
    """The cubic (Hermite) curves through the points, cut into short lines."""
    start = np.flatnonzero(~bones.last)
    ahead_x, ahead_y = np.zeros_like(bones.x), np.zeros_like(bones.y)
    ahead_x[start] = bones.x[start + 1] - bones.x[start]
    ahead_y[start] = bones.y[start + 1] - bones.y[start]
    length = np.sqrt(ahead_x * ahead_x + ahead_y * ahead_y)
    # The direction in which the curve passes each point: from the point before to the point after, per unit of way.
    behind_x, behind_y, behind = np.zeros_like(ahead_x), np.zeros_like(ahead_y), np.zeros_like(length)
    behind_x[start + 1], behind_y[start + 1], behind[start + 1] = ahead_x[start], ahead_y[start], length[start]
    way = bones.curl[bones.image] / np.maximum(behind + length, 1e-6)
    heading_x, heading_y = (behind_x + ahead_x) * way, (behind_y + ahead_y) * way

    dx, dy, chord = ahead_x[start], ahead_y[start], length[start]
    bow = bones.bow[start]
    leave, arrive = bones.smooth[start], bones.smooth[start + 1]
    leave_x, arrive_x = _tangents(dx, chord, heading_x[start], heading_x[start + 1], leave, arrive)
    leave_y, arrive_y = _tangents(dy, chord, heading_y[start], heading_y[start + 1], leave, arrive)
    leave_x, leave_y = leave_x - dy * bow, leave_y + dx * bow
    arrive_x, arrive_y = arrive_x + dy * bow, arrive_y - dx * bow

    pieces = np.minimum((chord * 0.55).astype(np.int64) + 2, _MOST_LINES)
    curve = np.repeat(np.arange(len(start), dtype=np.int64), pieces)
    step = np.arange(len(curve), dtype=np.int64) - (np.cumsum(pieces) - pieces)[curve]
    share = 1.0 / pieces.astype(np.float64)
    t0, t1 = step.astype(np.float64) * share[curve], (step + 1).astype(np.float64) * share[curve]
    from_x, from_y = bones.x[start][curve], bones.y[start][curve]
    x_terms = (from_x, dx[curve], leave_x[curve], arrive_x[curve])
    y_terms = (from_y, dy[curve], leave_y[curve], arrive_y[curve])
    return _Lines(
        x0=_hermite(t0, *x_terms),
        y0=_hermite(t0, *y_terms),
        x1=_hermite(t1, *x_terms),
        y1=_hermite(t1, *y_terms),
        image=bones.image[start][curve],
    )


def _tangents(
    chord: Floats, length: Floats, heading0: Floats, heading1: Floats, smooth0: Floats, smooth1: Floats
) -> tuple[Floats, Floats]:
    """One coordinate of the tangents at both ends of each curve.

    A smooth end follows the heading; a free end takes what bends the curve least, which is the chord itself where the
    other end is free as well.
    """
    given0, given1 = heading0 * length, heading1 * length
    likely0 = given0 * smooth0 + chord * (1.0 - smooth0)
    likely1 = given1 * smooth1 + chord * (1.0 - smooth1)
    free0, free1 = (chord * 3.0 - likely1) * 0.5, (chord * 3.0 - likely0) * 0.5
    return given0 * smooth0 + free0 * (1.0 - smooth0), given1 * smooth1 + free1 * (1.0 - smooth1)


def _hermite(t: Floats, start: Floats, chord: Floats, leave: Floats, arrive: Floats) -> Floats:
    """The point at ``t`` of the cubic from ``start`` along ``chord`` with these tangents."""
    bend = leave + arrive - chord * 2.0
    return start + t * (leave + t * (chord * 3.0 - leave * 2.0 - arrive + t * bend))


def _centred(lines: _Lines, bones: Skeletons) -> _Lines:
    """The lines moved so that each image's glyph has its middle in the middle, give or take the writer's shift."""
    first = np.searchsorted(lines.image, np.arange(bones.images, dtype=np.int64))

    def moved(a: Floats, b: Floats, shift: Floats) -> tuple[Floats, Floats]:
        low = np.minimum.reduceat(np.minimum(a, b), first)
        high = np.maximum.reduceat(np.maximum(a, b), first)
        by = (shift + ((SIDE - 1) * 0.5 - (low + high) * 0.5))[lines.image]
        return a + by, b + by

    x0, x1 = moved(lines.x0, lines.x1, bones.shift_x)
    y0, y1 = moved(lines.y0, lines.y1, bones.shift_y)
    return _Lines(x0=x0, y0=y0, x1=x1, y1=y1, image=lines.image)


def _stamp(
    canvas: npt.NDArray[np.float32],
    images: npt.NDArray[np.int64],
    lines: _Lines,
    which: npt.NDArray[np.int64],
    radius: npt.NDArray[np.float32],
) -> None:
    """Darken one line in each of ``images``: each pixel near it by the share of the pixel that the pen covers."""
    x0, y0, x1, y1 = lines.x0[which], lines.y0[which], lines.x1[which], lines.y1[which]
    left = np.clip((x0 + x1) * 0.5 + 0.5, 0.0, SIDE - 1.0).astype(np.int64)  # nearest pixel, by cutting off
    top = np.clip((y0 + y1) * 0.5 + 0.5, 0.0, SIDE - 1.0).astype(np.int64)
    grid = np.arange(2 * _REACH + 1, dtype=np.int64)
    # the start of the line seen from each pixel of the patch around its middle
    to_x = ((left - _REACH)[:, None] + grid - x0[:, None]).astype(np.float32)[:, None, :]
    to_y = ((top - _REACH)[:, None] + grid - y0[:, None]).astype(np.float32)[:, :, None]
    line_x, line_y = (x1 - x0).astype(np.float32)[:, None, None], (y1 - y0).astype(np.float32)[:, None, None]
    scale = np.float32(1.0) / np.maximum(line_x * line_x + line_y * line_y, np.float32(1e-6))
    along = np.clip(to_x * (line_x * scale) + to_y * (line_y * scale), np.float32(0.0), np.float32(1.0))
    off_x, off_y = to_x - along * line_x, to_y - along * line_y
    away = np.sqrt(off_x * off_x + off_y * off_y)
    # a pen line of width 2r over a pixel of width 1 at this distance covers: r + 1/2 - distance, at most 2r and 1
    most = np.minimum(radius * np.float32(2.0), np.float32(1.0))[:, None, None]
    cover = np.minimum((radius + np.float32(0.5))[:, None, None] - away, most)
    row = (top[:, None] + grid) * _PADDED + images[:, None] * (_PADDED * _PADDED)
    pixel = row[:, :, None] + (left[:, None] + grid)[:, None, :]
    flat = canvas.reshape(-1)
    flat[pixel] = np.maximum(flat[pixel], cover)
