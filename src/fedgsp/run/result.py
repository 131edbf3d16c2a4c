"""What `fedgsp.train` returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from fedgsp.core.drawing import drawn
from fedgsp.core.errors import InputError
from fedgsp.core.state import GLOBAL, ServerState, Yields
from fedgsp.core.tables import frame
from fedgsp.models.state import load_tensors
from fedgsp.run.metrics import score_words
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


@dataclass(frozen=True, repr=False)
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
        happened: Clients that were skipped and workers that were lost on the way, a sentence each.
    """

    status: str
    run: Run
    state: ServerState
    history: list[dict[str, Any]]
    figures: Figures
    facts: dict[str, Any]
    directory: Path | None
    trained_now: bool = True
    happened: tuple[str, ...] = ()

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

    @property
    def notes(self) -> tuple[str, ...]:
        """What the person should know of the run: a capped schedule, clients without training samples, a lost worker."""
        return (*self.run.notes, *self.happened)

    @property
    def score_name(self) -> str:
        """The metric that counts: the task's score (accuracy for classification), or the loss where it has none."""
        return self.run.worker_setup.task.score or "loss"

    @property
    def score(self) -> float | None:
        """The final figure of `score_name`; None where nothing was evaluated."""
        return self.figures.final.get(self.score_name)

    def to_pandas(self) -> Any:
        """The history as a pandas DataFrame, a row a round; nested figures have names such as `timings.train`.

        Raises:
            InputError: pandas is not installed.
        """
        return frame("pandas", self.history)

    def to_polars(self) -> Any:
        """The history as a polars DataFrame, a row a round.

        Raises:
            InputError: polars is not installed.
        """
        return frame("polars", self.history)

    def plot(self) -> Any:
        """Score and loss by round, and how groups and chains grew: a figure that shows itself in a notebook.

        Raises:
            InputError: matplotlib is not installed.
        """
        return drawn("plot_result", self)

    def __repr__(self) -> str:
        config, shown = self.run.config, self.score_name
        lines = [
            f"RunResult: {config.method.name}, {self.status} after {self.rounds} rounds",
            f"  {shown}: {score_words(self.history, shown)}",
            *([f"  loss: {self.figures.final['loss']:.4f}"] if shown != "loss" and "loss" in self.figures.final else []),
            f"  clients: {len(self.run.participants)}, model: {config.model.name}, seed: {config.run.seed}",
            f"  directory: {self.directory or 'none, nothing was written'}",
        ]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes[:3])])

    def _repr_html_(self) -> str:
        return str(drawn("result_html", self))

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
