"""What `fedgsp.train` returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedgsp.core.errors import InputError
from fedgsp.core.state import GLOBAL, ServerState, Yields
from fedgsp.run.metrics import Figures
from fedgsp.run.setup import Setup
from fedgsp.server import ServerRule, evaluated_model


def outcome(server: ServerRule, state: ServerState) -> ServerState:
    """The state as a run leaves it behind: where there is one model, the one that was judged stands for it.

    Most rules judge the model that training goes on from. FedExP does not: that one is in the checkpoint only.
    """
    name = evaluated_model(server, state) if server.yields == "one" else GLOBAL
    return state if name == GLOBAL else replace(state, models={**state.models, GLOBAL: state.evaluated(name)[0]})


@dataclass(frozen=True)
class RunResult:
    """A finished (or stopped) run: its figures, its journal and its model.

    `status` is "finished", "target" (stopped at the target), "paused" (a deployment whose clients are gone), "interrupted" or
    "failed".
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
        """The final accuracy, LEAF-weighted: the mean of the rounds in `figures.final_rounds` (`run/metrics.py` says which)."""
        return self.figures.final.get("accuracy")

    @property
    def rounds(self) -> int:
        """Rounds finished."""
        return self.state.round

    @property
    def yields(self) -> Yields:
        """What the figures are about: "one" global model, "several", "none", or one that is "personalised"."""
        return self.setup.config.method.yields

    def model(self, name: str | None = None) -> nn.Module:
        """The model that was judged, ready to use; or one of `state.models` by its name.

        "global" is the one that training goes on from, for most rules the same.
        """
        if name is None and self.setup.server.yields == "one":
            name = evaluated_model(self.setup.server, self.state)
        elif (name := name or GLOBAL) not in self.state.models:
            raise InputError(
                f"this run has no model '{name}': it yields {self.yields}, and its models are {', '.join(self.state.models)}."
            )
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced at once
            module = self.setup.job.fresh_model()
        tensors, beside = self.state.evaluated(name)
        module.load_state_dict(tensors)
        self.setup.job.rule.pose(module, beside)
        return module.eval()
