"""Rooms that are also functions: `fedgsp.report(...)`, although `fedgsp.report` is the package that draws.

The command line has commands by the names of six rooms (run, models, evaluate, cost, report, study). Python binds a package's
name to the package as soon as anything in it is imported, so the package itself is what has to be called.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def make_callable(room: str, home: str, function: str) -> None:
    """Let a call of a module be a call of a function.

    Args:
        room: The module's own `__name__`.
        home: The module that has the function; it is imported with the first call.
        function: The function's name there.
    """

    class Room(ModuleType):
        function_at = f"{home}.{function}"

        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(home), function)(*arguments, **options)

        @property
        def __signature__(self) -> Any:
            from inspect import signature

            return signature(getattr(importlib.import_module(home), function))

    sys.modules[room].__class__ = Room
