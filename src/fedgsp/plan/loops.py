"""The inner loops of grouping as machine code, built from `loops.c` (`fedgsp.core.native`).

Each has a twin in NumPy (`transport`, `exchange`, `halves`) that gives the same bits: where there is no compiler, groups are
the same.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.native import load

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]

FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC")


def level(cost: Reals, labels: Wholes, prices: Reals, size: int) -> bool:
    """Change `labels` (n,) and `prices` (L,) until each cluster has `size` points, as `transport` says.

    Returns:
        Whether it was done; else nothing was changed, for want of a compiler or of memory.
    """
    code = _code()
    if code is None:
        return False
    return bool(code.fedgsp_level(cost.ctypes, labels.ctypes, prices.ctypes, *cost.shape, size) >= 0)


def exchange(gram: Reals, pull: Reals, labels: Wholes, visits: Wholes, limits: Reals, clients: int) -> int | None:
    """Swap each of `visits` with its best partner, changing `labels` (P,) and `pull` (M, P), as `exchange` says.

    Returns:
        The number of swaps; None where nothing was done, for want of a compiler or of memory.
    """
    code = _code()
    if code is None:
        return None
    arrays = (gram.ctypes, pull.ctypes, labels.ctypes, visits.ctypes, limits.ctypes)
    swaps = int(code.fedgsp_exchange(*arrays, len(visits), len(labels), len(pull), clients))
    return swaps if swaps >= 0 else None


def mend(points: Reals, members: Wholes, sums: Reals, neighbours: Wholes, bits: float) -> int | None:
    """Split pairs of neighbouring clusters anew, changing `members` (L, size) and `sums` (L, F), as `halves` says.

    Returns:
        The number of changes; None where nothing was done, for want of a compiler or of memory.
    """
    code = _code()
    if code is None:
        return None
    told = (*members.shape, neighbours.ctypes, neighbours.shape[1], bits)
    changes = int(code.fedgsp_mend(points.ctypes, points.shape[1], members.ctypes, sums.ctypes, *told))
    return changes if changes >= 0 else None


@functools.cache
def _code() -> ctypes.CDLL | None:
    found = load(Path(__file__).with_name("loops.c"), FLAGS)
    if isinstance(found, str):
        return None
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    found.code.fedgsp_level.argtypes = [pointer] * 3 + [whole] * 3
    found.code.fedgsp_exchange.argtypes = [pointer] * 5 + [whole] * 4
    found.code.fedgsp_mend.argtypes = [pointer, whole, pointer, pointer, whole, whole, pointer, whole, ctypes.c_double]
    found.code.fedgsp_mend.restype = whole
    found.code.fedgsp_level.restype = found.code.fedgsp_exchange.restype = whole
    return found.code
