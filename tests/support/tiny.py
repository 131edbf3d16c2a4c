"""Tiny hand-made federations and runs that many tests share: a whole run in a few hundredths of a second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedgsp.client import SGD
from fedgsp.data import FederatedData
from fedgsp.data.arrays import from_arrays
from fedgsp.method import Method
from fedgsp.plan import ICG, Constant, Grouped, Linear
from fedgsp.server import Mean

CLASSES = 3
FEATURES = 4
LINEAR = "tests.support.tiny:linear"
NORMED = "tests.support.tiny:normed"
RAW = "tests.support.tiny:raw"
ADAPTED = "tests.support.tiny:adapted"
"""The names of `linear`, `normed`, `raw` and `adapted` for processes that import them."""


def arrays(clients: int = 8, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Separable clouds of points, some classes rare on some clients, sizes 4 to 11."""
    rng = np.random.default_rng(seed)
    sizes = 4 + np.arange(clients) % 8
    owner = np.repeat(np.arange(clients), sizes)
    labels = (rng.integers(0, 2, len(owner)) + owner) % CLASSES
    centres = rng.normal(size=(CLASSES, FEATURES)) * 3
    features = (centres[labels] + rng.normal(size=(len(owner), FEATURES))).astype(np.float32)
    names = np.array([f"site-{k:02d}" for k in range(clients)])
    return {"features": features, "labels": labels.astype(np.int64), "client_index": owner, "clients": names}


def federation(clients: int = 8, seed: int = 0) -> FederatedData:
    """The same as `FederatedData` in memory."""
    made = arrays(clients, seed)
    return from_arrays(made["features"], made["labels"], made["client_index"], list(made["clients"]), test_fraction=0.25)


def write_npz(path: Path, clients: int = 8, seed: int = 0) -> Path:
    """The same as an .npz file."""
    np.savez(path, **arrays(clients, seed))  # type: ignore[arg-type]
    return path


def linear(shape: tuple[int, ...] = (FEATURES,), classes: int = CLASSES) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Linear(shape[0], classes)


def chains(lr: float = 0.05, rule: SGD | None = None) -> Method:
    """A small FedGSP: two, then more groups, all of them trained."""
    planner = Grouped(Linear(alpha=1.0, beta=2), ICG(), kappa=1.0)
    return Method(planner, rule or SGD(lr=lr, batch_size=3), Mean(), name="tiny-gsp")


def static(groups: int, rule: SGD | None = None) -> Method:
    """A fixed number of random-order groups."""
    return Method(Grouped(Constant(groups), ICG(), kappa=1.0), rule or SGD(lr=0.05, batch_size=3), Mean(), name="static")


def bits(tensors: dict[str, torch.Tensor]) -> bytes:
    """A model's bits."""
    return b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))


def cli(*arguments: str, cwd: str | Path | None = None) -> subprocess.CompletedProcess[str]:
    """The real command line in a process of its own; on Linux forked from one that has imported it."""
    if sys.platform == "linux":
        from tests.support import forked_cli

        return forked_cli.run(*arguments, cwd=cwd)
    command = [sys.executable, "-c", "from fedgsp.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment(), cwd=cwd)


def environment() -> dict[str, str]:
    """This process's environment with its import path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def normed(shape: tuple[int, ...] = (FEATURES,), classes: int = CLASSES) -> nn.Module:
    """The same behind a batch norm, which has running means and a counter."""
    return nn.Sequential(nn.BatchNorm1d(shape[0]), nn.Linear(shape[0], classes))


class _Raw(nn.Module):
    """A batch norm over features a thousand times as large, and a mask with -inf that nobody trains."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(features), nn.Linear(features, classes)
        self.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.norm(1000.0 * x))
        return found


def raw(shape: tuple[int, ...] = (FEATURES,), classes: int = CLASSES) -> nn.Module:
    """See `_Raw`."""
    return _Raw(shape[0], classes)


class _Adapted(nn.Module):
    """A frozen base and a small adapter beside it, as LoRA has them."""

    shift = 0.0
    """What a machine with other pretrained weights has added to them."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.base, self.adapter = nn.Linear(features, 32), nn.Linear(32, classes)
        self.base.requires_grad_(False).weight.add_(self.shift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.adapter(self.base(x).relu())
        return found


def adapted(shape: tuple[int, ...] = (FEATURES,), classes: int = CLASSES) -> nn.Module:
    """See `_Adapted`."""
    return _Adapted(shape[0], classes)
