"""Glyphs: procedural handwriting, the data set that comes with the package as code only.

It stands in for LEAF's FEMNIST where nothing can be downloaded: 62 classes (0-9, A-Z, a-z), 28 x 28 grey pixels, one
client per writer, with FEMNIST's two kinds of skew measured and copied: which characters a writer has (label skew) and
how the writer draws them (feature skew). Made of strokes, not of a font or of anyone's scans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgsp.core.errors import InputError
from fedgsp.data.glyphs.pen import SIDE, draw
from fedgsp.data.glyphs.population import Script, script
from fedgsp.data.glyphs.style import skeletons

__all__ = ["VERSION", "Glyphs", "generate", "labels"]

VERSION = 1
"""Part of every cache key: raise it whenever a pixel, a label or a name of any data set changes."""

_BLOCK = 1500
"""Writers are drawn together until they have about this many images: enough to be fast, few enough for the caches."""


@dataclass(frozen=True)
class Glyphs:
    """A population of writers: writer i's samples are ``images[offsets[i]:offsets[i + 1]]``, in shuffled order."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    names: tuple[str, ...]


def generate(clients: int, seed: int) -> Glyphs:
    """The first ``clients`` writers of the population ``seed``: the same bytes on every machine.

    A writer depends on the seed and its own index only, so a smaller population is the beginning of a larger one and
    results on it can be compared.
    """
    scripts = _scripts(clients, seed)
    offsets = _offsets(scripts)
    images = np.empty((int(offsets[-1]), SIDE, SIDE), dtype=np.uint8)
    for begin, end in _blocks(offsets):
        bones = skeletons(seed, range(begin, end), [own.labels for own in scripts[begin:end]])
        draw(bones, images[offsets[begin] : offsets[end]])
    return Glyphs(images=images, labels=_joined(scripts), offsets=offsets, names=_names(scripts))


def labels(clients: int, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], tuple[str, ...]]:
    """The labels, offsets and names of ``generate(clients, seed)`` without drawing, to study a population cheaply."""
    scripts = _scripts(clients, seed)
    return _joined(scripts), _offsets(scripts), _names(scripts)


def _scripts(clients: int, seed: int) -> list[Script]:
    if clients < 1:
        raise InputError(f"The glyphs data set needs at least 1 client, not {clients}.")
    if not 0 <= seed < 2**32:
        raise InputError(f"The seed of the glyphs data set must be between 0 and {2**32 - 1}, not {seed}.")
    return [script(seed, writer) for writer in range(clients)]


def _offsets(scripts: list[Script]) -> npt.NDArray[np.int64]:
    return np.cumsum(np.array([0] + [len(own.labels) for own in scripts], dtype=np.int64), dtype=np.int64)


def _joined(scripts: list[Script]) -> npt.NDArray[np.uint8]:
    return np.concatenate([own.labels for own in scripts]).astype(np.uint8)


def _names(scripts: list[Script]) -> tuple[str, ...]:
    """Names that sort as the writers are numbered, and do not change when the population grows."""
    return tuple(f"w{index:06d}_{own.kind}" for index, own in enumerate(scripts))


def _blocks(offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of writers with about ``_BLOCK`` images each."""
    begin, writers = 0, len(offsets) - 1
    for end in range(1, writers + 1):
        if end == writers or offsets[end] - offsets[begin] >= _BLOCK:
            yield begin, end
            begin = end
