"""What studies read off a journal beside `run/metrics.py`: how the worst-off clients fare, and what a budget bought."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from fedgsp.run.metrics import final, final_evaluations

Entry = dict[str, Any]
History = list[Entry]


def worst_decile(history: History, metric: str) -> float:
    """The final figure of the client that nine in ten clients do better than."""
    share = "0.9" if metric == "loss" else "0.1"
    return fmean(figures["quantiles"][metric][share] for _, figures in final_evaluations(history))


def cut(history: History, key: str, budget: float) -> tuple[float, bool]:
    """(the final accuracy of the rounds within the budget of `key`, whether the run spent all of it)."""
    within = [entry for entry in history if entry[key] <= budget] or history[:1]
    return final(within, "accuracy"), history[-1][key] >= budget
