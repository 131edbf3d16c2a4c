"""The compiled kernels: built from `kernels.c` with the system's compiler when first needed, and kept in the user's cache.

Installing never needs a compiler, and the lack of one is never an error: `library()` then says why there is none, and training
takes the path in torch. The file's name carries a digest of the source, the compiler and the processor, so that another of
any of them is another kernel, and a run that was begun with one is not continued with the other unnoticed.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fedgsp.data.cache import cache_root

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-O2", "-march=native", "-fno-math-errno", "-shared", "-fPIC")
SAME_EVERYWHERE = ("--param=avoid-fma-max-bits=0",)
"""GCC tuned for some processors fuses multiply and add in one place and not in another, by the length of a chain of sums:
then a sample's bits would depend on its batch. Compilers that do not know the parameter do not need it."""
PATIENCE = 120.0
"""Seconds that the compiler may take (it takes a few)."""


@dataclass(frozen=True)
class Library:
    """The loaded kernels and the name under which a run records them."""

    name: str
    code: ctypes.CDLL


@functools.cache
def library() -> Library | str:
    """The kernels, or the reason why there are none here."""
    compiler = _compiler()
    if compiler is None:
        return "there is no C compiler (cc, gcc or clang)"
    if os.name != "posix":
        return "compiled kernels are for Linux and macOS"
    try:
        key = _key(compiler)
        path = _kept(compiler, key)
        return Library(f"c-{key[:12]}", _declared(ctypes.CDLL(str(path))))
    except subprocess.CalledProcessError as error:
        first = (error.stderr or "").strip().splitlines()
        return f"{compiler} cannot build the kernels ({first[0] if first else f'exit {error.returncode}'})"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the kernels cannot be built or loaded ({error})"


def _compiler() -> str | None:
    """$CC if it is set (it may be empty, for none), else the first that is found."""
    named = os.environ.get("CC")
    if named is not None:
        return shutil.which(named) if named else None
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def _key(compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    facts = [SOURCE.read_text(), version, " ".join((*FLAGS, *SAME_EVERYWHERE)), platform.machine(), _processor()]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _processor() -> str:
    """What the processor can do: the kernels are built for just this one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    kept = {line.split(":")[0].strip(): line for line in lines if line.startswith(("flags", "Features", "model name"))}
    return "\n".join(kept[name] for name in sorted(kept))


def _kept(compiler: str, key: str) -> Path:
    """The shared library in the cache, or built in a folder of this process where the cache cannot be written."""
    try:
        folder = cache_root() / "kernels"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{key[:32]}.so"
        if not target.exists():
            _build(compiler, target)
        return target
    except OSError:
        target = Path(tempfile.mkdtemp(prefix="fedgsp-kernels-")) / "kernels.so"
        _build(compiler, target)
        return target


def _build(compiler: str, target: Path) -> None:
    """Built beside its place and renamed: processes may build at once, and none loads half a file."""
    handle, name = tempfile.mkstemp(suffix=".so", dir=target.parent)
    os.close(handle)
    try:
        for extra in (SAME_EVERYWHERE, ()):
            command = [compiler, *FLAGS, *extra, "-o", name, str(SOURCE), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=not extra, timeout=PATIENCE)
            if done.returncode == 0:
                break
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)


def _declared(code: ctypes.CDLL) -> ctypes.CDLL:
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
    return code
