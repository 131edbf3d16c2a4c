"""What one method took to a target against another: ratios paired over seeds, and a verdict that looks at the noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedgsp.study.noise import Estimate, tested

FEW = 3
"""With fewer seeds an interval says little: whole numbers of rounds may agree by chance."""
HOLDS, MORE_ROUNDS, NOT_ALL, TOO_FEW = "holds", "needs more rounds", "not fewer by more than noise", "too few seeds to tell"
Costs = Mapping[str, Mapping[int, Mapping[str, float] | None]]
"""Method -> seed -> cost -> what it took; None where the target was not reached."""


@dataclass(frozen=True)
class Share:
    """What `first` took against `second`.

    Args:
        first: The method.
        second: What it is held against.
        seeds: How many seeds both reached the target with, of how many.
        ratios: Cost -> (the mean of the ratio's logarithm, whether it is larger than the noise).
    """

    first: str
    second: str
    seeds: tuple[int, int]
    ratios: Mapping[str, tuple[Estimate, bool]]

    @property
    def verdict(self) -> str:
        """Whether it needs no more rounds and fewer of everything else, by more than noise; every seed must arrive.

        More rounds count against it by their own interval, without the correction for many comparisons: that one would be in
        its favour.
        """
        if self.seeds[0] < FEW or self.seeds[0] < self.seeds[1]:
            return TOO_FEW
        rounds, _ = self.ratios["rounds"]
        if rounds.mean > (rounds.half or 0.0):
            return MORE_ROUNDS
        others = {what: told for what, told in self.ratios.items() if what != "rounds"}
        fewer = [what for what, (told, clear) in others.items() if clear and told.mean < 0]
        if len(fewer) == len(others):
            return HOLDS
        return f"fewer {', '.join(fewer).replace('_', ' ')} only" if fewer else NOT_ALL

    def cells(self) -> tuple[Any, ...]:
        """For a table: who, whom, seeds, each ratio, the verdict."""
        return (self.first, self.second, f"{self.seeds[0]} of {self.seeds[1]}",
                *(in_percent(*told) for told in self.ratios.values()), self.verdict)  # fmt: skip

    def as_fact(self) -> dict[str, Any]:
        """For JSON."""
        shares = {what: math.exp(told.mean) - 1 for what, (told, _) in self.ratios.items()}
        clear = {what: clear for what, (_, clear) in self.ratios.items()}
        return {"ours": self.first, "against": self.second, "seeds": list(self.seeds), "share": shares, "clear": clear,
                "verdict": self.verdict}  # fmt: skip


def compared(costs: Costs, firsts: Sequence[str], seconds: Sequence[str]) -> list[Share]:
    """Each of `firsts` against each of `seconds`, in all costs; 5 % over all of it by Holm's correction.

    Example:
        >>> few = {seed: {"rounds": 10.0, "bytes": 5.0 + seed / 10} for seed in range(5)}
        >>> many = {seed: {"rounds": 10.0, "bytes": 10.0} for seed in range(5)}
        >>> [share.verdict for share in compared({"a": few, "b": many}, ["a"], ["b"])]
        ['holds']
    """
    gaps: dict[str, list[float]] = {}
    sizes: dict[tuple[str, str], tuple[int, int]] = {}
    for first in firsts:
        for second in seconds:
            both = [(costs[first][seed], costs[second].get(seed)) for seed in costs[first]]
            pairs = [(mine, theirs) for mine, theirs in both if mine is not None and theirs is not None]
            sizes[first, second] = (len(pairs), len(both))
            for what in pairs[0][0] if pairs else ():
                gaps[f"{first}|{second}|{what}"] = [math.log(mine[what] / theirs[what]) for mine, theirs in pairs]
    told = tested(gaps)
    found = []
    for (first, second), seeds in sizes.items():
        begin = f"{first}|{second}|"
        ratios = {key.removeprefix(begin): value for key, value in told.items() if key.startswith(begin)}
        if ratios:
            found.append(Share(first, second, seeds, ratios))
    return found


def in_percent(told: Estimate, clear: bool) -> str:
    """A ratio's logarithm as per cent more or less, with its interval."""
    mark = " *" if clear else ""
    middle = 100 * (math.exp(told.mean) - 1)
    if told.half is None:
        return f"{middle:+.0f}"
    low, high = (100 * (math.exp(told.mean + side * told.half) - 1) for side in (-1, 1))
    return f"{middle:+.0f} ({low:+.0f} to {high:+.0f}){mark}"
