"""Targets: which accuracy "rounds to target" is about, and what reaching it took; and how a table says what is final."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.run.metrics import TEST, final, final_rounds, first_reaching, window_words

if TYPE_CHECKING:
    from fedgsp.study.records import Trace


def window_of(series: Iterable[Iterable[Trace]]) -> str:
    """Which rounds the final figures of these runs are of, for a table's note; runs of other lengths are told apart."""
    words = dict.fromkeys(window_words(final_rounds(trace.history)) for runs in series for trace in runs if trace.history)
    return " or ".join(words) or "no evaluation"


def scaled(runs: Sequence[Trace], given: float | None) -> float | None:
    """The target as given, or the whole per cent that these runs (FedAvg's) have at their end; None if they diverged.

    The paper's 80 % is what its FedAvg has after 500 rounds (80.1 %): the same rule at fewer rounds.
    """
    if given is not None:
        return given
    if not runs or any(trace.diverged for trace in runs):
        return None
    return math.floor(100 * fmean(final(trace.history, "accuracy") for trace in runs)) / 100


@dataclass(frozen=True)
class Reached:
    """What it took until a target was first reached: rounds, serial SGD steps, bytes, and seconds on every named fleet."""

    rounds: int
    serial_steps: int
    bytes: int
    seconds: dict[str, float]
    computing: dict[str, float]


def reached(trace: Trace, target: float, part: str = TEST, metric: str = "accuracy") -> Reached | None:
    """None where it was not reached."""
    entry = None if trace.diverged else first_reaching(trace.history, target, metric, part)
    if entry is None:
        return None
    at = entry["round"] - 1
    return Reached(
        entry["round"], entry["serial_steps_total"], entry["bytes_total"],
        {fleet: line[at] for fleet, line in trace.seconds.items()},
        {fleet: line[at] for fleet, line in trace.computing.items()},
    )  # fmt: skip


def mean_or_none(found: Sequence[Reached | None], what: str) -> float | None:
    """The mean over seeds of one cost; None unless every seed reached the target."""
    whole = [one for one in found if one is not None]
    if not whole or len(whole) < len(found):
        return None
    return fmean(getattr(one, what) for one in whole)


def mean_costs(found: Sequence[Reached | None]) -> tuple[Any, ...]:
    """For a table: how many seeds got there, and their mean rounds, serial steps and bytes; None where none did."""
    there = [one for one in found if one is not None]
    costs = ("rounds", "serial_steps", "bytes")
    return (f"{len(there)} of {len(found)}", *(fmean(getattr(one, what) for one in there) if there else None for what in costs))


def as_fact(found: Sequence[Reached | None]) -> list[Any]:
    """For JSON."""
    return [None if one is None else {"rounds": one.rounds, "serial_steps": one.serial_steps, "bytes": one.bytes,
                                      "seconds": one.seconds} for one in found]  # fmt: skip
