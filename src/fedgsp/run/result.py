"""What `fedgsp.train` returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from fedgsp.core.errors import InputError
from fedgsp.core.state import GLOBAL, ServerState, Yields
from fedgsp.models.state import load_tensors
from fedgsp.server import ServerRule, evaluated_model

if TYPE_CHECKING:
    from fedgsp.run.metrics import Figures
    from fedgsp.run.run import Run


def outcome(server: ServerRule, state: ServerState) -> ServerState:
    """The state as a run leaves it behind: where there is one model, the one that was evaluated stands for it.

    Most rules evaluate the model that training goes on from. FedExP does not: that one is in the checkpoint only.
    """
    name = evaluated_model(server, state) if server.yields == "one" else GLOBAL
    return state if name == GLOBAL else replace(state, models={**state.models, GLOBAL: state.evaluated(name)[0]})


@dataclass(frozen=True)
class RunResult:
    """What `fedgsp.train` and `fedgsp.resume` return: a run that has ended.

    Attributes:
        status: "finished", "target" (stopped at the target), "paused" (a deployment whose clients are gone), "interrupted" or
            "failed".
        run: All that the run was made of.
        state: The server's state after the last round.
        history: One dict a round: the lines of journal.jsonl.
        figures: Final, last and best figures, and when the target was reached.
        facts: The content of result.json.
        directory: The run directory; None for a run without files.
        trained_now: False where the run had ended before and was only looked up.
    """

    status: str
    run: Run
    state: ServerState
    history: list[dict[str, Any]]
    figures: Figures
    facts: dict[str, Any]
    directory: Path | None
    trained_now: bool = True

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
        return self.run.config.method.yields

    def model(self, name: str | None = None) -> nn.Module:
        """A trained model, ready to use.

        Args:
            name: One of `state.models`; "global" is the one that training goes on from. None: the one that was evaluated,
                for most rules the same.

        Returns:
            A module in evaluation mode.

        Raises:
            InputError: The run has no such model.
        """
        if name is None and self.run.server.yields == "one":
            name = evaluated_model(self.run.server, self.state)
        elif (name := name or GLOBAL) not in self.state.models:
            raise InputError(
                f"this run has no model '{name}': it yields {self.yields}, and its models are {', '.join(self.state.models)}."
            )
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced at once
            module = self.run.worker_setup.fresh_model()
        tensors, beside = self.state.evaluated(name)
        load_tensors(module, tensors)
        self.run.worker_setup.rule.before_evaluate(module, beside)
        return module.eval()
