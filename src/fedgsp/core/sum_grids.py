"""The two grids of exact sums (`core.sums`), tensor by tensor and, for small models, all as one vector."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch

from fedgsp.core.buffer_sums import power_of_two_above

HEADROOM_BITS = 16
"""A value may outgrow the start model's largest entry (at least 1) by this many bits before it counts as diverged."""
BETWEEN_BITS = 30
"""From the unit of the fine grid to that of the coarse one; `BETWEEN` in sums.c."""
SUM_BITS = 50
"""Partial sums stay below 2**SUM_BITS grid units: two bits under float64's 53 for the rounding trick below."""
MOST_ADDENDS_BITS = SUM_BITS - BETWEEN_BITS
BLOCK = 32768
"""Elements handled at a time: the temporaries stay in the cache, and torch does not start threads for so few."""
SMALL = BLOCK
"""A model of at most so many elements is added as one vector."""
WAITING = 64
"""So many small models are added at once, if they have no more than"""
TOGETHER = 2**17
"""elements together (1 MB)."""


class Spare:
    """The accumulators of sums that are gone, for the next ones of the same size.

    Every round has a new sum of the same model; without this it would ask for its memory (8 or 16 bytes a parameter) and have
    it paged in anew each time. No more than `most` are kept.
    """

    def __init__(self, most: int, zeros: Callable[[int], torch.Tensor]) -> None:
        self._kept: deque[torch.Tensor] = deque(maxlen=most)
        self._zeros = zeros

    def take(self, size: int) -> torch.Tensor:
        """Zeros for so many numbers."""
        with suppress(IndexError):  # another thread was faster
            for _ in range(len(self._kept)):
                kept = self._kept.popleft()
                if kept.shape[-1] == size:
                    return kept.zero_()
                self._kept.append(kept)
        return self._zeros(size)

    def give(self, accumulators: torch.Tensor) -> None:
        """Nobody looks at these any more."""
        self._kept.append(accumulators)


SPARE = Spare(2, lambda size: torch.zeros(2, size, dtype=torch.float64))
SPARE_WHOLE = Spare(2, lambda size: torch.zeros(size, dtype=torch.int64))


@dataclass(frozen=True)
class WholeGrid:
    """What one tensor's sum must know: its numbers, the constants that round to its grids, its unit and its scale."""

    size: int
    round_coarse: float
    round_fine: float
    fine_bits: int
    scale_bits: int


class Grid:
    """One tensor's two grids: the constants that round a float64 to a multiple of each, and an accumulator each."""

    def __init__(self, like: torch.Tensor, weight_bits: int) -> None:
        largest = max(map(abs, map(float, torch.aminmax(like.detach())))) if like.numel() else 0.0
        scale_bits = power_of_two_above(max(1.0, largest))
        coarse_bits = weight_bits + scale_bits + HEADROOM_BITS - SUM_BITS
        fine_bits = coarse_bits - BETWEEN_BITS
        self.limit = 2.0 ** (scale_bits + HEADROOM_BITS)
        self.round_coarse = 1.5 * 2.0 ** (coarse_bits + 52)  # adding and subtracting it rounds to a multiple of 2**coarse_bits
        self.round_fine = 1.5 * 2.0 ** (fine_bits + 52)
        self.key = (coarse_bits, fine_bits)
        self.whole = WholeGrid(like.numel(), self.round_coarse, self.round_fine, fine_bits, scale_bits)
        self.pair: torch.Tensor | None = None  # (2, n), made when they are needed

    def accumulators(self) -> torch.Tensor:
        """The sums (2, n) on the coarse and on the fine grid."""
        if self.pair is None:
            self.pair = torch.zeros(2, self.whole.size, dtype=torch.float64)
        return self.pair

    def add(self, values: torch.Tensor, weight: float) -> None:
        """Add `weight * values`, which are flat and within the limit."""
        coarse, fine = self.accumulators()
        for begin in range(0, values.numel(), BLOCK):
            part = slice(begin, begin + BLOCK)
            rest = values[part].to(torch.float64, copy=True).mul_(weight)  # a copy: the addend is not ours
            rounded = rest.add(self.round_coarse).sub_(self.round_coarse)
            coarse[part] += rounded
            rest.sub_(rounded)
            fine[part] += rest.add_(self.round_fine).sub_(self.round_fine)


class SmallSum:
    """Small models, all tensors as one vector and some models at a time: calls cost more than numbers there."""

    def __init__(self, grids: list[Grid], accumulators: torch.Tensor) -> None:
        sizes = torch.tensor([grid.whole.size for grid in grids])

        def spread(values: list[float]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.float64).repeat_interleave(sizes)

        self._coarse, self._fine = accumulators
        self._round_coarse, self._round_fine = spread([g.round_coarse for g in grids]), spread([g.round_fine for g in grids])
        self._limits = spread([g.limit for g in grids])
        self._surely_within = min(g.limit for g in grids)
        self._waiting = torch.empty(max(1, min(WAITING, TOGETHER // len(self._coarse))), len(self._coarse), dtype=torch.float64)
        self._weights: list[float] = []

    def put(self, tensors: list[torch.Tensor], weight: float) -> bool:
        """Copy one model to those that wait, unless some value is beyond its limit: then False."""
        flat = [tensor.detach().reshape(-1) for tensor in tensors]
        if any(tensor.dtype != torch.float32 for tensor in flat):
            flat = [tensor.to(torch.float64) for tensor in flat]
        row = self._waiting[len(self._weights)]
        row.copy_(flat[0] if len(flat) == 1 else torch.cat(flat))
        largest = float(torch.linalg.vector_norm(row, math.inf))  # nan if one is
        if not largest <= self._surely_within and not bool((row.abs() <= self._limits).all()):
            return False
        self._weights.append(weight)
        if len(self._weights) == len(self._waiting):
            self.flush()
        return True

    def flush(self) -> None:
        """Add all that wait."""
        rest = self._waiting[: len(self._weights)]
        rest.mul_(torch.tensor(self._weights, dtype=torch.float64).unsqueeze(1))
        rounded = rest.add(self._round_coarse).sub_(self._round_coarse)
        self._coarse += rounded.sum(0)  # exact, like every sum of multiples of a grid here
        self._fine += rest.sub_(rounded).add_(self._round_fine).sub_(self._round_fine).sum(0)
        self._weights = []
