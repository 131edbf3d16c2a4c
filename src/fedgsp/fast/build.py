"""The compiled kernels of the fast path, built from `kernels.c` when first needed (`fedgsp.core.native`).

The name is recorded with a run: one that was begun with a kernel is not continued with another unnoticed. It is a digest of the
source as it stands, comments too (those that speak of `fast/part.py` mean `fast/compiled.py`): stored runs go by it.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from fedgsp.core.native import Library, load

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-O2", "-march=native", "-fno-math-errno", "-shared", "-fPIC")
SAME_EVERYWHERE = ("--param=avoid-fma-max-bits=0",)
"""GCC tuned for some processors fuses multiply and add in one place and not in another, by the length of a chain of sums:
then a sample's bits would depend on its batch. Compilers that do not know the parameter do not need it."""


@functools.cache
def library() -> Library | str:
    """The kernels, or the reason why there are none here."""
    found = load(SOURCE, FLAGS, SAME_EVERYWHERE)
    if isinstance(found, Library):
        _declare(found.code)
    return found


def _declare(code: ctypes.CDLL) -> None:
    pointer, whole, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    number = ctypes.c_int
    code.fedgsp_new.argtypes, code.fedgsp_new.restype = [pointer, number, whole, number], pointer
    code.fedgsp_bytes.argtypes, code.fedgsp_bytes.restype = [pointer, number, whole, number], whole
    code.fedgsp_free.argtypes, code.fedgsp_free.restype = [pointer], None
    code.fedgsp_begin.argtypes, code.fedgsp_begin.restype = [pointer, pointer, pointer], None
    code.fedgsp_end.argtypes, code.fedgsp_end.restype = [pointer], number
    code.fedgsp_train.argtypes = [pointer, pointer, pointer, whole, whole, whole, real, real, real, real]
    code.fedgsp_train_rows.argtypes = [pointer, pointer, pointer, pointer, whole, whole, real, real, real, real]
    code.fedgsp_train.restype = code.fedgsp_train_rows.restype = ctypes.c_double
    code.fedgsp_fetch.argtypes, code.fedgsp_fetch.restype = [pointer, pointer, whole, pointer], None
    code.fedgsp_forward.argtypes, code.fedgsp_forward.restype = [pointer, pointer, whole, whole, pointer], None
    code.fedgsp_loss.argtypes, code.fedgsp_loss.restype = [pointer, pointer, whole, pointer, whole], ctypes.c_double
    code.fedgsp_backward.argtypes = [pointer, pointer, whole, real, real, real, real, pointer]
    code.fedgsp_backward.restype = None
