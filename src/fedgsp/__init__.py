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
    from fedgsp.data.central import from_dataset, from_frame, partition
    from fedgsp.data.export import export
    from fedgsp.data.flower import from_flower
    from fedgsp.data.leaf import load_leaf
    from fedgsp.data.partition import IID, Dirichlet, Quantity, Shards
    from fedgsp.method import Method
    from fedgsp.methods import METHODS, named
    from fedgsp.models import Task, classification, regression
    from fedgsp.report.build import make_report
    from fedgsp.report.inspect import inspect
    from fedgsp.run.observers import Observer
    from fedgsp.run.result import RunResult

__all__ = [
    "IID",
    "METHODS",
    "Dirichlet",
    "FederatedData",
    "FedgspError",
    "InputError",
    "Method",
    "Observer",
    "Quantity",
    "RunFailed",
    "RunResult",
    "Shards",
    "Task",
    "__version__",
    "classification",
    "export",
    "from_arrays",
    "from_dataset",
    "from_flower",
    "from_frame",
    "inspect",
    "load",
    "load_leaf",
    "make_report",
    "named",
    "partition",
    "regression",
    "replay",
    "resume",
    "train",
]

_HOMES = {
    "IID": "data.partition",
    "METHODS": "methods",
    "Dirichlet": "data.partition",
    "FederatedData": "data",
    "FedgspError": "core.errors",
    "InputError": "core.errors",
    "Method": "method",
    "Observer": "run.observers",
    "Quantity": "data.partition",
    "RunFailed": "core.errors",
    "RunResult": "run.result",
    "Shards": "data.partition",
    "Task": "models",
    "classification": "models",
    "export": "data.export",
    "from_arrays": "data.build",
    "from_dataset": "data.central",
    "from_flower": "data.flower",
    "from_frame": "data.central",
    "inspect": "report.inspect",
    "load": "data",
    "load_leaf": "data.leaf",
    "make_report": "report.build",
    "named": "methods",
    "partition": "data.central",
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
