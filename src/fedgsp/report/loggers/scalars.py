"""What of a run goes to other tools: scalars of a round, hyper-parameters, final figures, and pictures of plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.report.lane_figure import lanes_png
from fedgsp.run.directory import plan_record

if TYPE_CHECKING:
    from fedgsp.core.chain import Plan
    from fedgsp.run.result import RunResult
    from fedgsp.run.run import Run

LAPS = ("plan", "train", "evaluate")
PICTURED = 5
"""The first so many plans are drawn, and later ones whose number of chains is new."""


def scalars(entry: Mapping[str, Any]) -> dict[str, float]:
    """A journal line as named numbers, grouped as TensorBoard groups them."""
    made: dict[str, float] = {}
    for name, value in entry.items():
        if isinstance(value, bool) or name in (
            "round",
            "state",
            "test_clients",
            "test_samples",
            "validation_clients",
            "validation_samples",
        ):
            continue
        if name in ("groups", "chains", "clients", "left_out", "samples"):
            made[f"plan/{name}"] = float(value)
        elif name == "train_loss":
            made["train/loss"] = float(value)
        elif name in ("steps", "serial_steps", "serial_steps_total", "bytes", "bytes_total"):
            made[f"cost/{name}"] = float(value)
        elif name == "timings":
            made.update({f"seconds/{lap}": float(value[lap]) for lap in LAPS if lap in value})
        elif name in ("validation", "holdout"):
            made.update({f"{name}/{k}": float(v) for k, v in (value or {}).items() if isinstance(v, float)})
        elif name == "quantiles":
            made.update({f"clients/{m}_q{q}": float(v) for m, spread in value.items() for q, v in spread.items()})
        elif isinstance(value, (int, float)):
            made[f"test/{name}"] = float(value)
    return made


def hyper_parameters(run: Run) -> dict[str, str | int | float | bool]:
    """The whole configuration, flat: `method.local.lr` and so on."""
    return {**_flat(run.config.as_dict()), "data.fingerprint": run.data.fingerprint}


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, str | int | float | bool]:
    made: dict[str, str | int | float | bool] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            made.update(_flat(value, f"{above}{name}."))
        else:
            made[f"{above}{name}"] = value if isinstance(value, (str, int, float, bool)) else str(value)
    return made


def final_metrics(result: RunResult) -> dict[str, float]:
    """What the run reports at its end."""
    found = {"final": result.figures.final, "last": result.figures.last, "best": result.figures.best}
    return {f"{which}/{name}": float(value) for which, told in found.items() for name, value in (told or {}).items()}


class Pictures:
    """Plans as PNG, where one is worth drawing: lanes multiply early, and then only now and then."""

    def __init__(self, run: Run) -> None:
        profiles = run.data.profiles()
        self._counts, self._sizes = profiles.counts.astype(np.float64), profiles.sizes
        self._seen: set[int] = set()

    def of(self, plan: Plan) -> bytes | None:
        """The picture of a plan, or None."""
        chains = len(plan.chains)
        if plan.round > PICTURED and chains in self._seen:
            return None
        self._seen.add(chains)
        return lanes_png(plan_record(plan), self._counts, self._sizes)
