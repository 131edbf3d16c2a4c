"""Scalars, plans, hyper-parameters and final figures for TensorBoard (extra `tensorboard`)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.imports import need
from fedgsp.report.loggers.scalars import Pictures, final_metrics, hyper_parameters, scalars
from fedgsp.run.callbacks import Callback

if TYPE_CHECKING:
    from fedgsp.core.chain import Plan
    from fedgsp.run.result import RunResult
    from fedgsp.run.run import Run

PLAN = "plan/lanes"
KEEP_ALL = {"scalars": 0, "images": 0, "tensors": 0}


class TensorBoard(Callback):
    """Logs a run for TensorBoard; what is there already is not written again.

    Args:
        folder: TensorBoard's log folder.

    Raises:
        InputError: TensorBoard or matplotlib is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        need("tensorboard", "tensorboard", "logging to TensorBoard")
        need("matplotlib", "tensorboard", "logging plans to TensorBoard")
        self.folder = Path(folder)
        self._writer: Any = None
        self._pictures: Pictures | None = None
        self._logged: set[int] = set()
        self._drawn: set[int] = set()

    def on_run_start(self, run: Run, history: list[dict[str, Any]]) -> None:
        """Look up what is there, and catch up with what is not."""
        from torch.utils.tensorboard import SummaryWriter

        if history:
            self._logged, self._drawn = _steps(self.folder)
        fresh = not history and self.folder.exists() and any(self.folder.iterdir())
        self._writer = SummaryWriter(str(self.folder), purge_step=0 if fresh else None)  # a new run hides what an old one left
        self._pictures = Pictures(run)
        if not self._logged:
            rows = "\n".join(f"    {name} = {value}" for name, value in hyper_parameters(run).items())
            self._writer.add_text("configuration", rows)
        for entry in history:
            self.on_round_end(entry)

    def on_round_start(self, plan: Plan) -> None:
        """A picture of the plan, where lanes change."""
        assert self._pictures is not None
        picture = self._pictures.of(plan)
        if picture is not None and plan.round not in self._drawn:
            self._drawn.add(plan.round)
            self._writer.add_image(PLAN, _pixels(picture), plan.round, dataformats="HWC")

    def on_round_end(self, entry: dict[str, Any]) -> None:
        """The round's scalars."""
        if entry["round"] in self._logged:
            return
        self._logged.add(entry["round"])
        at = entry.get("timings", {}).get("at")
        for name, value in scalars(entry).items():
            self._writer.add_scalar(name, value, entry["round"], walltime=at)
        self._writer.flush()

    def on_run_end(self, result: RunResult) -> None:
        """Hyper-parameters with final figures, for TensorBoard's table."""
        metrics = final_metrics(result)
        if metrics:
            self._writer.add_hparams(hyper_parameters(result.run), metrics, run_name=".", global_step=result.rounds)

    def close(self) -> None:
        """Everything is on disk."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _steps(folder: Path) -> tuple[set[int], set[int]]:
    """Rounds whose scalars, and rounds whose pictures, are in a log folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not folder.exists():
        return set(), set()
    found = EventAccumulator(str(folder), size_guidance=KEEP_ALL).Reload()
    tags = found.Tags()
    logged = {event.step for event in found.Scalars("train/loss")} if "train/loss" in tags["scalars"] else set()
    drawn = {event.step for event in found.Images(PLAN)} if PLAN in tags["images"] else set()
    return logged, drawn


def _pixels(png: bytes) -> Any:
    """(height, width, 3) bytes."""
    image = need("matplotlib.image", "tensorboard", "logging plans to TensorBoard")
    return (255 * image.imread(io.BytesIO(png), format="png")[:, :, :3]).astype(np.uint8)
