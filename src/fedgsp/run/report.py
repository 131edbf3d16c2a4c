"""What a run's journal amounts to: the final figure, the best one, when the target was reached, what it cost."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from fedgsp.core.version import __version__

FINAL_EVALUATIONS = 10
"""The final figure is the mean of this many last evaluations: single rounds are noisy."""


@dataclass(frozen=True)
class Figures:
    """Final means, the best evaluation, and the first evaluated round at or above the target."""

    final: dict[str, float]
    best: dict[str, float] | None
    reached: int | None


def figures(journal: list[dict[str, Any]], score: str | None, target: float | None) -> Figures:
    """Sum up a journal; `score` names the metric that best and target refer to (higher is better; None: the loss)."""
    evaluated = [entry for entry in journal if "loss" in entry]
    last = evaluated[-FINAL_EVALUATIONS:]
    names = [key for key, value in (last[-1] if last else {}).items() if _is_metric(key, value)]
    final = {name: sum(entry[name] for entry in last) / len(last) for name in names}
    best = None
    if evaluated:
        top = max(evaluated, key=lambda e: e[score]) if score else min(evaluated, key=lambda e: e["loss"])
        best = {"round": top["round"], **{name: top[name] for name in names}}
    reached = None
    if target is not None and score:
        reached = next((entry["round"] for entry in evaluated if entry[score] >= target), None)
    return Figures(final, best, reached)


def _is_metric(key: str, value: Any) -> bool:
    return isinstance(value, float) and key != "train_loss"


def versions() -> dict[str, str]:
    """What produced the numbers."""
    import numpy
    import torch

    return {
        "fedgsp": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }
