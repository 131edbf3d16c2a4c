"""Rows in random order, by machine code: what `generator(...).permutation` gives, without making a generator.

Making one takes NumPy several times as long as a tiny client's training step. `orders.c` does the same on the same bits; that
is tried against NumPy's once before it is used, and where they differ (another NumPy) or there is no compiler, NumPy does it.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.native import load

Rows = NDArray[np.int64]
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")
MOST = 2**32 - 1
TRIED = ((0, 3, 1, 0, 0, 0), (MOST, 3, 500, 99_999, 7, 4), (17, 3), (1, 3, 2, 4, 6, 8, 10, 12))
"""Keys that both are compared on, with rows of several numbers each."""


def ordered(key: tuple[int, ...], rows: Rows) -> Rows:
    """The rows in the order of the generator of this key."""
    code = _code()
    if code is None or len(rows) > MOST or min(key) < 0 or max(key) > MOST or not rows.flags.c_contiguous:
        return _by_numpy(key, rows)
    return _by_code(code, key, rows)


def _by_numpy(key: tuple[int, ...], rows: Rows) -> Rows:
    words = np.array(key, dtype=np.uint32) if min(key) >= 0 and max(key) <= MOST else key
    found: Rows = rows[np.random.default_rng(words).permutation(len(rows))]
    return found


def _by_code(code: ctypes.CDLL, key: tuple[int, ...], rows: Rows) -> Rows:
    found = np.empty(len(rows), dtype=np.int64)
    code.fedgsp_order((ctypes.c_uint32 * len(key))(*key), len(key), rows.ctypes.data, len(rows), found.ctypes.data)
    return found


@functools.cache
def _code() -> ctypes.CDLL | None:
    """The machine code, if there is any and if it gives what NumPy gives."""
    loaded = load(Path(__file__).with_name("orders.c"), FLAGS)
    if isinstance(loaded, str):
        return None
    code, pointer, whole = loaded.code, ctypes.c_void_p, ctypes.c_int64
    code.fedgsp_order.argtypes = [pointer, whole, pointer, whole, pointer]
    code.fedgsp_order.restype = None
    for key in TRIED:
        for n in (0, 1, 2, 3, 20, 1000):
            rows = np.arange(n, dtype=np.int64)
            if not np.array_equal(_by_code(code, key, rows), _by_numpy(key, rows)):
                return None
    return code
