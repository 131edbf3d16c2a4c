"""Where k-means begins."""

from __future__ import annotations

import numpy as np
import scipy  # its parts are imported when they are used
from numpy.typing import NDArray


def plus_plus_start(points: NDArray[np.float64], clusters: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """k-means++ (Arthur, Vassilvitskii 2007): rows to start from, each drawn by its squared distance to those before.

    Rows are never drawn twice: when all that are left lie on rows drawn before, one of them is drawn evenly.
    """
    drawn = np.zeros(len(points), dtype=np.bool_)
    start = np.empty(clusters, dtype=np.int64)
    gap = np.ones(len(points))  # squared distance to the nearest row drawn; for the first draw all are alike
    for turn in range(clusters):
        weight = gap if gap.any() else (~drawn).astype(np.float64)
        cumulated = weight.cumsum()
        start[turn] = np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right")
        drawn[start[turn]] = True
        to_new = scipy.spatial.distance.cdist(points, points[start[turn]][None], "sqeuclidean")[:, 0]
        gap = to_new if turn == 0 else np.minimum(gap, to_new)
    return start
