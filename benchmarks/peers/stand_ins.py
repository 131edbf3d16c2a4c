"""Empty modules in place of packages that a framework imports and this benchmark never calls.

FedLab and fluke import torchvision (whose build on PyPI does not match a CPU build of torch) for data sets and networks, fluke
also loggers and a data hub. Nothing of these takes part in training.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any


class _Module(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - what makes it a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name.partition(".")[0] in self.names else None

    def create_module(self, spec: Any) -> Any:
        return _Module(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


def stand_in_for(*names: str) -> str:
    """Stand in for those of these packages that are not installed; returns which."""
    missing = {name for name in names if importlib.util.find_spec(name) is None}
    sys.meta_path.append(_Finder(missing))
    return ", ".join(sorted(missing))
