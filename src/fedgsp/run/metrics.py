"""What a run's figures mean. This is the only place that says so: every table, page, file, logger and study asks here.

All figures are read off a journal, a line a round. R is the round of its last line: the rounds that a finished run has trained,
the rounds so far of one that is going on or was stopped, the rounds asked for where a longer run is cut to them.

    final    mean of the evaluations in the last max(1, min(10, R // 10)) rounds; the last evaluation if none is among those
    last     the last evaluation: that of round R, unless a run was stopped between two evaluations
    best     the best single evaluation, the earliest of equal ones
    reached  the first evaluation at the target or better

So a run of up to 19 rounds is judged by its last one, and one of 100 or more by its last ten, whatever `eval_every` is.
Higher is better for every metric but the loss. A value that is no finite number is no evaluation; runs never write one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedgsp.core.errors import InputError

Entry = Mapping[str, Any]
History = Sequence[Entry]
Evaluated = tuple[Entry, Entry]
"""A round's journal line, and the figures in it."""

TEST, HOLDOUT = "test", "holdout"
"""Whose figures: those of the line itself (on test samples; of a run that tunes, on validation samples), or those that it has
of another part: all samples of clients that never train."""


WIDEST = 10
"""Rounds that a final figure is made of at most: single rounds are noisy, and a mean of many lags behind."""


def window(rounds: int) -> range:
    """The rounds whose evaluations make the final figure.

    Args:
        rounds: How many rounds the run has.

    Returns:
        The last max(1, min(10, rounds // 10)) rounds.

    Example:
        >>> window(60)
        range(55, 61)
    """
    width = max(1, min(WIDEST, rounds // 10))
    return range(rounds - width + 1, rounds + 1)


def evaluations(history: History, metric: str = "loss", part: str = TEST) -> list[Evaluated]:
    """Every evaluation that has a metric.

    Args:
        history: A run's journal lines.
        metric: The metric's name.
        part: TEST for the figures of the line itself, or the name of another part that it has figures of.

    Returns:
        (journal line, figures) of every round that was evaluated by the metric.
    """
    found = [(entry, entry if part == TEST else entry.get(part)) for entry in history]
    return [(entry, figures) for entry, figures in found if isinstance(figures, Mapping) and _is_number(figures.get(metric))]


def final_evaluations(history: History, metric: str = "loss", part: str = TEST) -> list[Evaluated]:
    """The evaluations that the final figure is the mean of."""
    found = evaluations(history, metric, part)
    rounds = window(history[-1]["round"]) if history else range(0)
    return [one for one in found if one[0]["round"] in rounds] or found[-1:]


def final_rounds(history: History, metric: str = "loss", part: str = TEST) -> tuple[int, ...]:
    """The rounds of these evaluations."""
    return tuple(entry["round"] for entry, _ in final_evaluations(history, metric, part))


def final(history: History, metric: str, part: str = TEST) -> float:
    """The figure that runs are compared by: the mean of the evaluations in `window`.

    Args:
        history: A run's journal lines.
        metric: The metric's name.
        part: Whose figures (see `evaluations`).

    Returns:
        The mean; of a run that has no evaluation in these rounds its last one.

    Raises:
        InputError: No round was evaluated by the metric.

    Example:
        >>> final([{"round": r, "accuracy": r / 100} for r in range(1, 31)], "accuracy")
        0.29
    """
    found = final_evaluations(history, metric, part)
    if not found:
        raise InputError(f"no round was evaluated by its {metric} ({part}), so there is no final figure.")
    return fmean(figures[metric] for _, figures in found)


def last(history: History, metric: str, part: str = TEST) -> Evaluated | None:
    """The last evaluation."""
    return next(reversed(evaluations(history, metric, part)), None)


def records(history: History, metric: str, part: str = TEST) -> list[Evaluated]:
    """The evaluations that were better than all before: the first to reach any target is among them, the last is the best."""
    found: list[Evaluated] = []
    for entry, figures in evaluations(history, metric, part):
        if not found or _better(figures[metric], found[-1][1][metric], metric):
            found.append((entry, figures))
    return found


def best(history: History, metric: str, part: str = TEST) -> Evaluated | None:
    """The best evaluation, the earliest of equal ones; None if there is none."""
    return next(reversed(records(history, metric, part)), None)


def first_reaching(history: History, target: float, metric: str, part: str = TEST) -> Entry | None:
    """The first round at a target or better.

    Args:
        history: A run's journal lines.
        target: The value to reach; for the loss, to come down to.
        metric: The metric's name.
        part: Whose figures (see `evaluations`).

    Returns:
        The round's journal line, or None if the target was not reached.
    """
    return next((entry for entry, figures in records(history, metric, part) if reaches(figures, target, metric)), None)


def reaches(figures: Entry, target: float | None, metric: str | None) -> bool:
    """Whether an evaluation is at the target or better; never without a target, a metric, or its value."""
    if target is None or metric is None or not _is_number(figures.get(metric)):
        return False
    return not _better(target, figures[metric], metric)


@dataclass(frozen=True)
class Figures:
    """What a run amounts to.

    Attributes:
        final: The final figure of every metric.
        final_rounds: The rounds that the final figures are the mean of.
        last: The last evaluation, with its `round`.
        best: The best single evaluation, with its `round`.
        target: The target accuracy, if the run had one.
        reached: The first round at the target or better, if there is one.
    """

    final: dict[str, float]
    final_rounds: tuple[int, ...]
    last: dict[str, float] | None
    best: dict[str, float] | None
    target: float | None
    reached: int | None

    def as_dict(self) -> dict[str, Any]:
        """For result.json."""
        return {
            "final": self.final,
            "final_rounds": list(self.final_rounds),
            "last": self.last,
            "best": self.best,
            "target": None if self.target is None else {"accuracy": self.target, "round": self.reached},
        }


def figures(history: History, score: str | None, target: float | None) -> Figures:
    """Sum up a run.

    Args:
        history: Its journal lines.
        score: The metric that `best` and `target` refer to. None: the loss, which has no target.
        target: The target, if there is one.

    Returns:
        Final, last and best figures, and when the target was reached.
    """
    end = last(history, "loss")
    if end is None:
        return Figures({}, (), None, None, target, None)
    names = [name for name, value in end[0].items() if isinstance(value, float) and name != "train_loss"]
    top = best(history, score or "loss")
    first = None if score is None or target is None else first_reaching(history, target, score)

    def told(entry: Entry) -> dict[str, float]:
        return {"round": entry["round"], **{name: entry[name] for name in names if name in entry}}

    return Figures(
        {name: final(history, name) for name in names},
        final_rounds(history),
        told(end[0]),
        None if top is None else told(top[0]),
        target,
        None if first is None else first["round"],
    )


def window_words(rounds: Sequence[int]) -> str:
    """What a final figure is, from its rounds: "mean of rounds 55-60", "mean of rounds 93, 96 and 99", "round 100"."""
    if not rounds:
        return "no evaluation"
    if len(rounds) == 1:
        return f"round {rounds[0]}"
    if list(rounds) == list(range(rounds[0], rounds[-1] + 1)):
        return f"mean of rounds {rounds[0]}-{rounds[-1]}"
    return f"mean of rounds {', '.join(map(str, rounds[:-1]))} and {rounds[-1]}"


def score_words(history: History, metric: str) -> str:
    """A run's metric in a line: its final figure and of which rounds, the last round's, the best one."""
    end, top = last(history, metric), best(history, metric)
    if end is None or top is None:
        return "not evaluated"
    (at, ended), (when, most) = end, top
    where = "last round" if at is history[-1] else f"last evaluated round {at['round']}:"
    return (
        f"{final(history, metric):.4f} ({window_words(final_rounds(history, metric))}), {where} {ended[metric]:.4f}, "
        f"best {most[metric]:.4f} in round {when['round']}"
    )


def _better(value: float, other: float, metric: str) -> bool:
    return value < other if metric == "loss" else value > other


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
