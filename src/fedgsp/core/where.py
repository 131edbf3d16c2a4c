"""Where a part of the user's own is written, so that a sentence leads to the line; `blame` says where it failed."""

from __future__ import annotations

import inspect
import os
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any

PACKAGE = str(Path(__file__).parents[1]) + os.sep
LIBRARIES = tuple(sysconfig.get_paths()[key] + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib"))


def ours(part: Any) -> bool:
    """Whether fedgsp itself defines the class of `part` (or `part`, where it is a class or a function)."""
    return str(getattr(_defined(part), "__module__", "")).partition(".")[0] == "fedgsp"


def where_defined(part: Any) -> str:
    """The name of a part's class (or of a class or function) and, unless it is ours, its place: `Mine (rules.py:12)`."""
    thing = _defined(part)
    name = getattr(thing, "__qualname__", type(thing).__name__).rpartition("<locals>.")[2]
    place = None if ours(part) else _place(thing)
    return f"{name} ({place})" if place else name


def _defined(part: Any) -> Any:
    return part if isinstance(part, type) or inspect.isroutine(part) else type(part)


@lru_cache(maxsize=64)
def _place(thing: Any) -> str | None:
    try:
        file = inspect.getsourcefile(thing) or inspect.getfile(thing)
        return None if file.startswith(LIBRARIES) else f"{_short(file)}:{inspect.getsourcelines(thing)[1]}"
    except (OSError, TypeError):  # no source, as in a notebook's cell or a text that was executed: the first function's line
        found = [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]
        codes = [function.__code__ for function in found if isinstance(function, FunctionType)]
        return f"{_short(codes[0].co_filename)}:{codes[0].co_firstlineno}" if codes else None


def _short(file: str) -> str:
    """Below the working folder, the path from there."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
