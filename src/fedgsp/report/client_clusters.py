"""Kinds of class mixes: clients with alike class shares get one colour, so a lane of many colours is a group of many kinds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_KINDS = 7
ITERATIONS = 30
MOST_FITTED = 20_000
"""Clients that the centres are fitted to; of more, an even sample."""

NAMED_CLASSES = 4


@dataclass(frozen=True, eq=False)
class Kinds:
    """`of` (K,) is each client's kind, 255 for clients without samples; `marks` are the classes a kind has more of than others.

    Kinds are in the order of how many clients they have.
    """

    of: NDArray[np.uint8]
    sizes: tuple[int, ...]
    marks: tuple[tuple[int, ...], ...]


def kinds_of(counts: NDArray[np.float64]) -> Kinds:
    """Up to seven kinds by k-means on the roots of class shares (whose Euclidean distance is Hellinger's), always the same."""
    totals = counts.sum(axis=1)
    present = np.flatnonzero(totals > 0)
    shares = counts[present] / totals[present, None]
    roots = np.sqrt(shares)
    fitted = roots[np.linspace(0, len(roots) - 1, min(len(roots), MOST_FITTED)).astype(int)] if len(roots) else roots
    centres = _centres(fitted, min(MOST_KINDS, len(np.unique(fitted, axis=0)))) if len(fitted) else fitted
    own = _nearest(roots, centres) if len(roots) else np.empty(0, dtype=np.int64)
    sizes = np.bincount(own, minlength=len(centres))
    order = np.argsort(-sizes, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    of = np.full(len(counts), 255, dtype=np.uint8)
    of[present] = place[own] if len(own) else own
    whole = counts.sum(axis=0) / max(1.0, float(counts.sum()))
    marks = tuple(_marks(counts[present[own == kind]], whole) for kind in order if sizes[kind])
    return Kinds(of, tuple(int(sizes[kind]) for kind in order if sizes[kind]), marks)


def _centres(points: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Farthest-first starts, then Lloyd's steps."""
    chosen = [int(np.argmax(((points - points.mean(axis=0)) ** 2).sum(axis=1)))]
    distance = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < count:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    centres = points[chosen]
    for _ in range(ITERATIONS):
        own = _nearest(points, centres)
        moved = np.array([points[own == k].mean(axis=0) if (own == k).any() else centres[k] for k in range(len(centres))])
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def _nearest(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.int64]:
    squared = (centres**2).sum(axis=1) - 2 * points @ centres.T
    return np.asarray(squared.argmin(axis=1), dtype=np.int64)


def _marks(counts: NDArray[np.float64], whole: NDArray[np.float64]) -> tuple[int, ...]:
    """The classes whose share in this kind lies furthest above their share in everybody's samples."""
    excess = counts.sum(axis=0) / counts.sum() - whole
    top = np.argsort(-excess, kind="stable")[:NAMED_CLASSES]
    return tuple(int(label) for label in top if excess[label] > 0)
