"""C sources of the package, built with the system's compiler when first needed and kept in the user's cache.

Installing never needs a compiler, and the lack of one is never an error: `load` then says why there is none. A library's name
carries a digest of the source, the compiler, its flags and the processor, so that another of any of them is another library.
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

from fedgsp.core.cache_folder import cache_root

PATIENCE = 120.0
"""Seconds that the compiler may take (it takes a few)."""
NO_COMPILER = "there is no C compiler (cc, gcc or clang)"
INSTALL_ONE = "with a compiler rounds are several times faster: `apt-get install gcc`, on macOS `xcode-select --install`"


@dataclass(frozen=True)
class Library:
    """Loaded code, and the name under which a run records it."""

    name: str
    code: ctypes.CDLL


def load(source: Path, flags: tuple[str, ...], optional: tuple[str, ...] = ()) -> Library | str:
    """Build a C source, or find what was built before, and load it.

    Args:
        source: The file.
        flags: What the compiler is told.
        optional: What it is told besides, if it understands it.

    Returns:
        The library, or the reason why there is none here.
    """
    compiler = _compiler()
    if compiler is None:
        return NO_COMPILER
    if os.name != "posix":
        return "compiled kernels are for Linux and macOS"
    try:
        key = _key(compiler, source, flags + optional)
        path = _kept(compiler, key, source, (flags + optional, flags) if optional else (flags,))
        return Library(f"c-{key[:12]}", ctypes.CDLL(str(path)))
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


def _key(compiler: str, source: Path, flags: tuple[str, ...]) -> str:
    facts = [source.read_text(), _version(compiler), " ".join(flags), platform.machine(), processor()]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


@functools.cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


def processor() -> str:
    """What the processor can do: code is built for just this one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    kept = {line.split(":")[0].strip(): line for line in lines if line.startswith(("flags", "Features", "model name"))}
    return "\n".join(kept[name] for name in sorted(kept))


def _kept(compiler: str, key: str, source: Path, tries: tuple[tuple[str, ...], ...]) -> Path:
    """The shared library in the cache, or built in a folder of this process where the cache cannot be written."""
    try:
        folder = cache_root() / "kernels"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{key[:32]}.so"
        if not target.exists():
            _build(compiler, source, tries, target)
        return target
    except OSError:
        target = Path(tempfile.mkdtemp(prefix="fedgsp-kernels-")) / "kernels.so"
        _build(compiler, source, tries, target)
        return target


def _build(compiler: str, source: Path, tries: tuple[tuple[str, ...], ...], target: Path) -> None:
    """Built beside its place and renamed: processes may build at once, and none loads half a file."""
    handle, name = tempfile.mkstemp(suffix=".so", dir=target.parent)
    os.close(handle)
    try:
        for flags in tries:
            command = [compiler, *flags, "-o", name, str(source), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=flags is tries[-1], timeout=PATIENCE)
            if done.returncode == 0:
                break
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
