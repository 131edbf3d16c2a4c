"""What can be read off a journal: where it ended, when it reached a target, what it had for a budget."""

from __future__ import annotations

from statistics import fmean
from typing import Any

Entry = dict[str, Any]
Journal = list[Entry]

LAST = 3
"""A run's figure is the mean over this many last evaluations: single rounds are noisy."""
TEST, HOLDOUT = "test", "holdout"
"""Whose samples a figure is about: the test samples of the clients that train, or all samples of clients that never do."""


def evaluated(journal: Journal, judged: str = TEST) -> list[tuple[Entry, dict[str, float]]]:
    """(the round's line, its figures) of the rounds that were evaluated on those samples."""
    if judged == TEST:
        return [(entry, entry) for entry in journal if "loss" in entry]
    return [(entry, entry[judged]) for entry in journal if entry.get(judged)]


def final(journal: Journal, metric: str, judged: str = TEST) -> float:
    """The metric at the end: the mean of the last evaluations."""
    return fmean(figures[metric] for _, figures in evaluated(journal, judged)[-LAST:])


def worst_decile(journal: Journal, metric: str) -> float:
    """The metric at its last evaluations of the client that nine in ten clients do better than."""
    share = "0.9" if metric == "loss" else "0.1"
    return fmean(figures["quantiles"][metric][share] for _, figures in evaluated(journal)[-LAST:])  # type: ignore[index]


def first_reaching(journal: Journal, target: float, metric: str = "accuracy", judged: str = TEST) -> Entry | None:
    """The line of the first evaluated round at the target or better; None if there is none."""
    sign = -1 if metric == "loss" else 1
    return next((entry for entry, figures in evaluated(journal, judged) if sign * figures[metric] >= sign * target), None)


def cut(journal: Journal, key: str, budget: float) -> tuple[float, bool]:
    """(accuracy when `key` has reached the budget: the mean of the last evaluations until then; whether it was reached)."""
    within = [entry for entry in journal if entry[key] <= budget] or journal[:1]
    return fmean(entry["accuracy"] for entry in within[-LAST:]), journal[-1][key] >= budget
