"""Compile the inner loops where Numba is installed (`pip install 'fedgsp[fast]'`); do without where it is not.

Numba is optional because nothing depends on it but time: the compiled loops and their NumPy twins give the same bits. The
import alone takes half a second, so it happens when the first large enough problem comes up, never with `import fedgsp`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """`function` as machine code, or None without Numba (or with its compiler switched off).

    The code is kept on disk beside the module, or in the user's cache if that is read-only (Numba replaces its files at once,
    so processes may share them); where neither can be written it is compiled anew in each process.
    """
    try:
        import numba
    except ImportError:
        return None
    if getattr(numba.config, "DISABLE_JIT", 0):
        return None
    try:
        fast: Callable[..., Any] = numba.njit(cache=True)(function)
    except RuntimeError:  # nowhere to keep it
        fast = numba.njit(function)
    return fast
