"""Scalars, plans, the configuration and final figures for Weights & Biases (extra `wandb`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedgsp.core.imports import need
from fedgsp.report.loggers.scalars import final_metrics, hyper_parameters, scalars
from fedgsp.run.callbacks import Callback

if TYPE_CHECKING:
    from fedgsp.run.result import RunResult
    from fedgsp.run.run import Run


class WandB(Callback):
    """Logs a run to Weights & Biases, a step a round.

    A resumed run goes on in the same W&B run: its id is kept in the run directory, or is what `run_id` says.

    Args:
        project: The W&B project.
        directory: The run directory, where the id is kept; None: it is not.
        mode: "online", "offline" (files to be sent later by `wandb sync`) or "disabled"; None: as W&B is set up.
        run_id: The id of the W&B run; None: the one in the directory, or a new one.
        folder: Where W&B writes its files; None: its own place.

    Raises:
        InputError: wandb is not installed.
    """

    def __init__(
        self,
        project: str = "fedgsp",
        *,
        directory: str | Path | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
        run_id: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        need("wandb", "wandb", "logging to Weights & Biases")
        self._project, self._mode, self._folder = project, mode, folder
        self._id, self._kept = run_id, None if directory is None else Path(directory) / "wandb-run-id.txt"
        self._run: Any = None

    def on_run_start(self, run: Run, history: list[dict[str, Any]]) -> None:
        """Begin or go on; rounds that W&B was not told of are caught up with."""
        import wandb

        if self._id is None and self._kept is not None and history and self._kept.is_file():
            self._id = self._kept.read_text().strip()
        self._run = wandb.init(
            project=self._project, name=run.config.method.name, config=hyper_parameters(run), mode=self._mode, id=self._id,
            resume="allow" if self._id else None, dir=None if self._folder is None else str(self._folder),
        )  # fmt: skip
        if self._kept is not None and self._kept.parent.is_dir():
            self._kept.write_text(f"{self._run.id}\n")
        known = int(self._run.step)  # of a run that goes on online, what was logged before
        for entry in history:
            if entry["round"] >= known:
                self.on_round_end(entry)

    def on_round_end(self, entry: dict[str, Any]) -> None:
        """The round's scalars."""
        self._run.log(scalars(entry), step=entry["round"])

    def on_run_end(self, result: RunResult) -> None:
        """Final figures, for W&B's table of runs."""
        self._run.summary.update({**final_metrics(result), "status": result.status})

    def close(self) -> None:
        """Everything is sent, or on disk."""
        if self._run is not None:
            self._run.finish()
            self._run = None
