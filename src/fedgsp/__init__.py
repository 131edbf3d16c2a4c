"""Federated learning on clients with skewed data: FedGSP, the methods it is compared with, and runs that never lose work."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedgsp.core.version import __version__

if TYPE_CHECKING:
    from fedgsp.api import replay, resume, train
    from fedgsp.core.errors import FedgspError, InputError, RunFailed
    from fedgsp.data import FederatedData, load
    from fedgsp.data.build import from_arrays
    from fedgsp.methods import METHODS, Method, named
    from fedgsp.models import Task, classification, regression
    from fedgsp.run.observers import Observer
    from fedgsp.run.result import RunResult

__all__ = [
    "METHODS",
    "FederatedData",
    "FedgspError",
    "InputError",
    "Method",
    "Observer",
    "RunFailed",
    "RunResult",
    "Task",
    "__version__",
    "classification",
    "from_arrays",
    "load",
    "named",
    "regression",
    "replay",
    "resume",
    "train",
]

_HOMES = {
    "METHODS": "methods",
    "FederatedData": "data",
    "FedgspError": "core.errors",
    "InputError": "core.errors",
    "Method": "methods",
    "Observer": "run.observers",
    "RunFailed": "core.errors",
    "RunResult": "run.result",
    "Task": "models",
    "classification": "models",
    "from_arrays": "data.build",
    "load": "data",
    "named": "methods",
    "regression": "models",
    "replay": "api",
    "resume": "api",
    "train": "api",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import fedgsp` and `fedgsp --help` stay quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedgsp' has no attribute '{name}'")
    return getattr(importlib.import_module(f"fedgsp.{_HOMES[name]}"), name)
