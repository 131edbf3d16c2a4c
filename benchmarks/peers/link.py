"""What every contestant shares: the same data and start, and the line on which the driver asks for rounds.

The driver starts a contestant with the folder of the work and two descriptors in the environment. The contestant says when it
is ready; then it is told `run N` (train N rounds, say so, wait), `loss` (of its global model on a part of all clients' samples)
or `quit`. Frameworks that own their loop call `round_done` from whatever they offer to be told of a finished round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MANY = 1_000_000
"""Rounds, where a framework wants to know how many: the driver ends it."""
EVALUATED_ON = 4
"""Every how many samples the loss is taken."""


@dataclass(frozen=True)
class Work:
    """One benchmark: `x` is (clients, samples, ...), `y` (clients, samples), `init` the start weights by torch's names."""

    name: str
    per_round: int
    batch: int
    lr: float
    classes: int
    x: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any]
    init: dict[str, np.ndarray[Any, Any]]

    @classmethod
    def read(cls, folder: str | None = None) -> Work:
        place = Path(folder or os.environ["BENCH_WORK"])
        told = json.loads((place / "work.json").read_text())
        with np.load(place / "data.npz") as data, np.load(place / "init.npz") as init:
            return cls(**told, x=data["x"], y=data["y"], init=dict(init))

    def model(self) -> Any:
        """A torch module with the start weights."""
        import torch

        if self.name == "tiny":
            module: Any = torch.nn.Linear(self.x.shape[-1], self.classes)
        else:
            from fedgsp.models import leaf_cnn

            module = leaf_cnn(self.x.shape[2:], self.classes)
        module.load_state_dict({name: torch.from_numpy(values) for name, values in self.init.items()})
        return module

    def tensors(self) -> list[tuple[Any, Any]]:
        """Each client's samples as torch tensors."""
        import torch

        return [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in zip(self.x, self.y, strict=True)]

    def loss(self, module: Any) -> float:
        import torch

        x = torch.from_numpy(self.x.reshape(-1, *self.x.shape[2:])[::EVALUATED_ON])
        y = torch.from_numpy(self.y.reshape(-1)[::EVALUATED_ON])
        with torch.no_grad():
            parts = [
                torch.nn.functional.cross_entropy(module(x[i : i + 100]), y[i : i + 100], reduction="sum")
                for i in range(0, len(y), 100)
            ]
        return float(sum(parts)) / len(y)


class Steps:
    """Counts what an optimiser really does, by wrapping its `step`."""

    def __init__(self, kind: Any) -> None:
        self.count, plain = 0, kind.step

        def step(optimizer: Any, *rest: Any, **named: Any) -> Any:
            self.count += 1
            return plain(optimizer, *rest, **named)

        kind.step = step


class Link:
    """The contestant's end of the line."""

    def __init__(self) -> None:
        self._told = os.fdopen(int(os.environ["BENCH_IN"]), "r")
        self._says = os.fdopen(int(os.environ["BENCH_OUT"]), "w")
        self._left = self.rounds = 0
        self._loss: Callable[[], float] = lambda: float("nan")

    def ready(self, threads: int, note: str = "") -> None:
        """Everything is loaded; the next thing is round 1."""
        self._say(ready=True, threads=threads, note=note)
        self._obey()

    def round_done(self, steps: int, loss: Callable[[], float]) -> None:
        """A round is over; `steps` is the number of SGD steps since the start, `loss` works out that of the global model."""
        self.rounds += 1
        self._left -= 1
        self._loss = loss
        if self._left == 0:
            self._say(rounds=self.rounds, steps=steps)
            self._obey()

    def _obey(self) -> None:
        while True:
            order, *rest = (self._told.readline() or "quit").split()
            if order == "run":
                self._left = int(rest[0])
                return
            if order == "quit":
                os._exit(0)
            self._say(loss=self._loss())

    def _say(self, **what: Any) -> None:
        self._says.write(json.dumps(what) + "\n")
        self._says.flush()
