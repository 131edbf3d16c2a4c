"""Federated learning on clients with skewed data: FedGSP, the methods it is compared with, and runs that never lose work."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedgsp.core import __version__

if TYPE_CHECKING:
    from fedgsp.api import replay, resume, train
    from fedgsp.core.errors import FedgspError, InputError, RunFailed
    from fedgsp.data import FederatedData, load
    from fedgsp.data.arrays import from_arrays
    from fedgsp.data.export import export
    from fedgsp.data.huggingface import from_huggingface
    from fedgsp.data.in_memory import from_dataset, from_frame, partition
    from fedgsp.data.partitioners import IID, Dirichlet, FeatureShift, Quantity, Shards
    from fedgsp.data.readers.flower import from_flower
    from fedgsp.data.readers.leaf import load_leaf
    from fedgsp.method import Method
    from fedgsp.methods import METHODS, named
    from fedgsp.models import Task, classification, multilabel, regression, sequence_labelling
    from fedgsp.report.build import make_report
    from fedgsp.report.inspect import inspect
    from fedgsp.run.callbacks import Callback
    from fedgsp.run.reader import RunReader
    from fedgsp.run.result import RunResult

__all__ = [
    "IID",
    "METHODS",
    "Callback",
    "Dirichlet",
    "FeatureShift",
    "FederatedData",
    "FedgspError",
    "InputError",
    "Method",
    "Quantity",
    "RunFailed",
    "RunReader",
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
    "from_huggingface",
    "inspect",
    "load",
    "load_leaf",
    "make_report",
    "multilabel",
    "named",
    "partition",
    "regression",
    "replay",
    "resume",
    "sequence_labelling",
    "train",
]

_HOMES = {
    "IID": "data.partitioners",
    "METHODS": "methods",
    "Dirichlet": "data.partitioners",
    "FeatureShift": "data.partitioners",
    "FederatedData": "data",
    "FedgspError": "core.errors",
    "InputError": "core.errors",
    "Method": "method",
    "Callback": "run.callbacks",
    "Quantity": "data.partitioners",
    "RunFailed": "core.errors",
    "RunReader": "run.reader",
    "RunResult": "run.result",
    "Shards": "data.partitioners",
    "Task": "models",
    "classification": "models",
    "export": "data.export",
    "from_arrays": "data.arrays",
    "from_dataset": "data.in_memory",
    "from_flower": "data.readers.flower",
    "from_frame": "data.in_memory",
    "from_huggingface": "data.huggingface",
    "inspect": "report.inspect",
    "load": "data",
    "load_leaf": "data.readers.leaf",
    "make_report": "report.build",
    "multilabel": "models",
    "named": "methods",
    "partition": "data.in_memory",
    "regression": "models",
    "replay": "api",
    "resume": "api",
    "sequence_labelling": "models",
    "train": "api",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import fedgsp` and `fedgsp --help` stay quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedgsp' has no attribute '{name}'")
    return getattr(importlib.import_module(f"fedgsp.{_HOMES[name]}"), name)
