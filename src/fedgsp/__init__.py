"""Federated learning on clients with skewed data: FedGSP, the methods it is compared with, and runs that never lose work."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedgsp.core import __version__

if TYPE_CHECKING:
    from fedgsp.api import replay, resume, train
    from fedgsp.api import run_config as run
    from fedgsp.core.errors import FedgspError, InputError, RunFailed, RunWarning
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
    from fedgsp.progress import ProgressBar
    from fedgsp.project.new import new
    from fedgsp.report.build import make_report
    from fedgsp.report.build import make_report as report
    from fedgsp.report.groups import Grouping, group
    from fedgsp.report.inspect import Inspection, inspect
    from fedgsp.report.model_table import models
    from fedgsp.report.run_costs import Costs, cost
    from fedgsp.run.callbacks import Callback
    from fedgsp.run.evaluate_run import Evaluation, evaluate
    from fedgsp.run.reader import RunReader
    from fedgsp.run.result import RunResult
    from fedgsp.study.advise import Advice, advise
    from fedgsp.study.comparison import Comparison, compare
    from fedgsp.study.grid import Range
    from fedgsp.study.paper.conduct import study
    from fedgsp.study.search import Optuna
    from fedgsp.study.sweep import sweep
    from fedgsp.study.tune import Tuning
    from fedgsp.study.tuning import tune

__all__ = [
    "IID",
    "METHODS",
    "Advice",
    "Callback",
    "Comparison",
    "Costs",
    "Dirichlet",
    "Evaluation",
    "FeatureShift",
    "FederatedData",
    "FedgspError",
    "Grouping",
    "InputError",
    "Inspection",
    "Method",
    "Optuna",
    "ProgressBar",
    "Quantity",
    "Range",
    "RunFailed",
    "RunReader",
    "RunResult",
    "RunWarning",
    "Shards",
    "Task",
    "Tuning",
    "__version__",
    "advise",
    "classification",
    "compare",
    "cost",
    "evaluate",
    "export",
    "from_arrays",
    "from_dataset",
    "from_flower",
    "from_frame",
    "from_huggingface",
    "group",
    "inspect",
    "load",
    "load_leaf",
    "make_report",
    "models",
    "multilabel",
    "named",
    "new",
    "partition",
    "regression",
    "replay",
    "report",
    "resume",
    "run",
    "sequence_labelling",
    "study",
    "sweep",
    "train",
    "tune",
]

_HOMES = {
    "Advice": "study.advise",
    "Callback": "run.callbacks",
    "Comparison": "study.comparison",
    "Costs": "report.run_costs",
    "Dirichlet": "data.partitioners",
    "Evaluation": "run.evaluate_run",
    "FeatureShift": "data.partitioners",
    "FederatedData": "data",
    "FedgspError": "core.errors",
    "Grouping": "report.groups",
    "IID": "data.partitioners",
    "InputError": "core.errors",
    "Inspection": "report.inspect",
    "METHODS": "methods",
    "Method": "method",
    "Optuna": "study.search",
    "ProgressBar": "progress",
    "Quantity": "data.partitioners",
    "Range": "study.grid",
    "RunFailed": "core.errors",
    "RunReader": "run.reader",
    "RunResult": "run.result",
    "RunWarning": "core.errors",
    "Shards": "data.partitioners",
    "Task": "models",
    "Tuning": "study.tune",
    "advise": "study.advise",
    "classification": "models",
    "compare": "study.comparison",
    "export": "data.export",
    "from_arrays": "data.arrays",
    "from_dataset": "data.in_memory",
    "from_flower": "data.readers.flower",
    "from_frame": "data.in_memory",
    "from_huggingface": "data.huggingface",
    "group": "report.groups",
    "inspect": "report.inspect",
    "load": "data",
    "load_leaf": "data.readers.leaf",
    "make_report": "report.build",
    "multilabel": "models",
    "new": "project.new",
    "named": "methods",
    "partition": "data.in_memory",
    "regression": "models",
    "replay": "api",
    "resume": "api",
    "sequence_labelling": "models",
    "sweep": "study.sweep",
    "train": "api",
    "tune": "study.tuning",
}
_ROOMS = ("cost", "evaluate", "models", "report", "run", "study")
"""Commands by the names of rooms: the modules themselves can be called (`core/callable_module.py`)."""


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import fedgsp` and `fedgsp --help` stay quick."""
    if name in _ROOMS:
        return importlib.import_module(f"fedgsp.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fedgsp' has no attribute '{name}'")
    return getattr(importlib.import_module(f"fedgsp.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
