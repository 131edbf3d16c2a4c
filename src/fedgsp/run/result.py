"""What `fedgsp.train` returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedgsp.core.state import ServerState
from fedgsp.run.report import Figures
from fedgsp.run.setup import Setup


@dataclass(frozen=True)
class RunResult:
    """A finished (or stopped) run: its figures, its journal and its model.

    `status` is "finished", "target" (stopped at the target), "interrupted" or "failed".
    """

    status: str
    setup: Setup
    state: ServerState
    journal: list[dict[str, Any]]
    figures: Figures
    facts: dict[str, Any]
    directory: Path | None
    trained_now: bool = True  # False: it had come to its end before, and was only looked up

    @property
    def accuracy(self) -> float | None:
        """The reported accuracy: LEAF-weighted, mean of the last 10 evaluations."""
        return self.figures.final.get("accuracy")

    @property
    def rounds(self) -> int:
        """Rounds finished."""
        return self.state.round

    def model(self) -> nn.Module:
        """The trained global model, ready to use."""
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced at once
            module = self.setup.job.rule.equip(self.setup.job.model.build())
        module.load_state_dict(self.state.model)
        return module.eval()
