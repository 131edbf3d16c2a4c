"""Weighted sums of models that are exact, so that their order cannot matter.

Every product weight * value is split on two fixed grids of powers of two (a coarse and a fine one, the same for every
addend of a round) and added in float64. Multiples of a grid below 2**53 of them add without rounding, hence addition is
associative and commutative to the bit: any number of workers, any order of arrival, any tree of partial sums gives the same
model. The fine grid keeps what the coarse one drops, so the mean of equal float32 models is that model, to the bit, but for
values below some 2**-28 of the largest (or of 1; for planned weights of 8,000, a bit less for each doubling): these are kept to
within 2**-52 of it.

That is for tensors that are trained, whose values have a scale; for one that outgrew it by far, training has diverged. Tensors
that nobody trains (buffers, counters, frozen weights) have none: they are summed by `core.buffer_sums`, without any limit.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.core.buffer_sums import BufferSum, PartialBufferSum, flat, power_of_two_above
from fedgsp.core.errors import Diverged

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

HEADROOM_BITS = 16
"""A value may outgrow the start model's largest entry (at least 1) by this many bits before it counts as diverged."""
SUM_BITS = 50
"""Partial sums stay below 2**SUM_BITS grid units: two bits under float64's 53 for the rounding trick below."""
MOST_ADDENDS_BITS = 20
BLOCK = 32768
"""Elements handled at a time: the temporaries stay in the cache, and torch does not start threads for so few."""
SMALL = BLOCK
"""A model of at most so many elements is added as one vector."""
WAITING = 64
"""So many small models are added at once, if they have no more than"""
TOGETHER = 2**17
"""elements together (1 MB)."""


class _Spare:
    """The accumulators of sums that are gone, for the next ones of the same size.

    Every round has a new sum of the same model; without this it would ask for its memory (16 bytes a parameter) and have it
    paged in anew each time. No more than `most` are kept.
    """

    def __init__(self, most: int) -> None:
        self._kept: deque[torch.Tensor] = deque(maxlen=most)

    def take(self, size: int) -> torch.Tensor:
        """Zeros of shape (2, size)."""
        with suppress(IndexError):  # another thread was faster
            for _ in range(len(self._kept)):
                kept = self._kept.popleft()
                if kept.shape[1] == size:
                    return kept.zero_()
                self._kept.append(kept)
        return torch.zeros(2, size, dtype=torch.float64)

    def give(self, accumulators: torch.Tensor) -> None:
        """Nobody looks at these any more."""
        self._kept.append(accumulators)


_SPARE = _Spare(most=2)


class _Grid:
    """One tensor's two accumulators and the constants that round a float64 to a multiple of each grid."""

    def __init__(self, like: torch.Tensor, weight_bits: int, coarse: torch.Tensor, fine: torch.Tensor) -> None:
        largest = float(like.detach().abs().max()) if like.numel() else 0.0
        scale_bits = power_of_two_above(max(1.0, largest))
        coarse_bits = weight_bits + scale_bits + HEADROOM_BITS - SUM_BITS
        fine_bits = coarse_bits + MOST_ADDENDS_BITS - SUM_BITS
        self.limit = 2.0 ** (scale_bits + HEADROOM_BITS)
        self.round_coarse = 1.5 * 2.0 ** (coarse_bits + 52)  # adding and subtracting it rounds to a multiple of 2**coarse_bits
        self.round_fine = 1.5 * 2.0 ** (fine_bits + 52)
        self.key = (coarse_bits, fine_bits)
        self.coarse, self.fine = coarse, fine

    def add(self, values: torch.Tensor, weight: float) -> None:
        for begin in range(0, values.numel(), BLOCK):
            part = slice(begin, begin + BLOCK)
            rest = values[part].to(torch.float64, copy=True).mul_(weight)  # a copy: the addend is not ours
            rounded = rest.add(self.round_coarse).sub_(self.round_coarse)
            self.coarse[part] += rounded
            rest.sub_(rounded)
            self.fine[part] += rest.add_(self.round_fine).sub_(self.round_fine)


class _Small:
    """Small models, all tensors as one vector and some models at a time: calls cost more than numbers there."""

    def __init__(self, grids: list[_Grid], accumulators: torch.Tensor) -> None:
        sizes = torch.tensor([grid.coarse.numel() for grid in grids])

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


def in_own_types(values: Tensors, like: Tensors) -> Tensors:
    """float64 values in the types of `like`: whole numbers rounded, truth values by majority; others are in theirs already."""
    result = {}
    for name, own in like.items():
        value = values[name]
        if value.dtype == own.dtype:
            pass
        elif own.dtype == torch.bool:
            value = value >= 0.5
        elif not own.is_floating_point():
            value = value.round()
        result[name] = value.to(own.dtype)
    return result


@dataclass(frozen=True, eq=False)
class PartialSum:
    """What some results of a round add up to, made where they are: two accumulators, and the grids they are multiples of.

    `wide` is what the tensors that nobody trains add up to.
    """

    accumulators: NDArray[np.float64]
    keys: dict[str, tuple[int, int]]
    weight: Fraction
    count: int
    wide: tuple[PartialBufferSum, ...] = ()


class ExactSum:
    """A running weighted sum of named tensors whose bits do not depend on the order of the additions.

    `like` is the model the round started from: it fixes names, shapes, types and the grids. `most_weight` bounds the sum
    of all weights (the planned samples); it is part of the grid and must be the same for sums that are merged. `trained`
    names the tensors that are trained, None all that are real-valued: these alone can diverge, and are refused if they do.
    """

    def __init__(self, like: Tensors, most_weight: float, trained: Collection[str] | None = None) -> None:
        if not (math.isfinite(most_weight) and most_weight > 0):
            raise ValueError(f"the largest total weight must be positive, not {most_weight}")
        self._like = like
        self._most = Fraction(most_weight)
        self._weight = Fraction(0)
        self._count = 0
        bits = power_of_two_above(most_weight)
        on_grids, apart = _sorted_out(like, trained)
        self._wide = [BufferSum(tensors) for tensors in apart]
        self._apart = {name for tensors in apart for name in tensors}
        size = sum(tensor.numel() for tensor in on_grids.values())
        accumulators = self._accumulators = _SPARE.take(size)
        weakref.finalize(self, _SPARE.give, accumulators).atexit = False
        self._grids: dict[str, _Grid] = {}
        begin = 0
        for name, tensor in on_grids.items():
            coarse, fine = accumulators[:, begin : begin + tensor.numel()]
            self._grids[name] = _Grid(tensor.double() if tensor.dtype == torch.bool else tensor, bits, coarse, fine)
            begin += tensor.numel()
        self._keys = {name: grid.key for name, grid in self._grids.items()}
        self._small = _Small(list(self._grids.values()), accumulators) if 0 < size <= SMALL else None

    @property
    def weight(self) -> float:
        """The weights added so far."""
        return float(self._weight)

    @property
    def count(self) -> int:
        """How many addends there were."""
        return self._count

    def add(self, tensors: Tensors, weight: float, who: str) -> None:
        """Add `weight * tensors`; `who` names the source should its values not be finite."""
        if not (math.isfinite(weight) and weight >= 0):
            raise Diverged(f"{who} has the weight {weight}; a weight is finite and not negative.")
        if tensors.keys() != self._like.keys():
            odd = sorted(tensors.keys() ^ self._like.keys())
            raise ValueError(f"{who} handed on other tensors than the model has: {', '.join(odd)}")
        self._check_shapes(tensors, who)
        exactly = Fraction(weight)
        if self._small is not None and self._small.put([tensors[name] for name in self._grids], weight):
            self._account(exactly, 1)
        else:
            self._check_values(tensors, who)
            self._account(exactly, 1)
            for name, grid in self._grids.items():
                grid.add(tensors[name].detach().reshape(-1), weight)
        for wide in self._wide:
            wide.add(tensors, exactly)

    def partial(self) -> PartialSum:
        """What was added so far, for a sum elsewhere to merge; a copy."""
        self._settle()
        wide = tuple(wide.partial() for wide in self._wide)
        return PartialSum(self._accumulators.numpy().copy(), self._keys, self._weight, self._count, wide)

    def merge(self, other: PartialSum) -> None:
        """Add a partial sum of the same round."""
        if other.keys != self._keys or len(other.wide) != len(self._wide):
            raise ValueError("partial sums of different rounds cannot be merged")
        self._settle()
        ours = self._accumulators.numpy()
        np.add(ours, other.accumulators, out=ours)
        for wide, part in zip(self._wide, other.wide, strict=True):
            wide.merge(part)
        self._account(other.weight, other.count)

    def mean(self) -> Tensors:
        """The weighted mean in each tensor's own type: whole numbers rounded, truth values by majority."""
        return in_own_types(self.mean64(), self._like)

    def mean64(self) -> Tensors:
        """The weighted mean in float64, for server rules that go on computing with it.

        Tensors that nobody trains are in their own types already: there is nothing to compute with them.
        """
        if self._weight == 0:
            raise Diverged("no chain of this round trained a single sample, so there is nothing to average.")
        weight = float(self._weight)
        found = {name: total / weight for name, total in self._on_grids().items()}
        for wide in self._wide:
            found.update(wide.mean(self._weight))
        return {name: found[name] for name in self._like}

    def total64(self) -> Tensors:
        """The weighted sum itself in float64."""
        found = self._on_grids()
        for wide in self._wide:
            found.update(wide.total64())
        return {name: found[name] for name in self._like}

    def _on_grids(self) -> Tensors:
        self._settle()
        return {name: (grid.coarse + grid.fine).reshape(self._like[name].shape) for name, grid in self._grids.items()}

    def _settle(self) -> None:
        """Add what waits."""
        if self._small is not None:
            self._small.flush()

    def _check_shapes(self, tensors: Tensors, who: str) -> None:
        for name, tensor in tensors.items():
            if tensor.shape != self._like[name].shape:
                raise ValueError(f"{who}: tensor '{name}' has shape {tuple(tensor.shape)}, not {tuple(self._like[name].shape)}")
            if name in self._apart and tensor.dtype != self._like[name].dtype:
                raise ValueError(f"{who}: tensor '{name}' is of type {tensor.dtype}, not {self._like[name].dtype}")

    def _check_values(self, tensors: Tensors, who: str) -> None:
        for name, grid in self._grids.items():
            tensor = tensors[name].detach()
            if tensor.numel() == 0:
                continue
            largest = float((tensor.double() if tensor.dtype == torch.bool else tensor).abs().max())
            if not largest <= grid.limit:
                kind = "far too large" if math.isfinite(largest) else "not finite"
                raise Diverged(
                    f"{who}: values of tensor '{name}' are {kind} ({largest:.3g}), so the round cannot be averaged; "
                    f"try a smaller learning rate."
                )

    def _account(self, weight: Fraction, count: int) -> None:
        self._weight += weight
        self._count += count
        if self._weight > self._most:
            raise ValueError(f"weights add up to {float(self._weight)}, more than the planned {float(self._most)}")
        if self._count > 2**MOST_ADDENDS_BITS:
            raise ValueError(f"more than {2**MOST_ADDENDS_BITS} addends in one sum")


def _sorted_out(like: Tensors, trained: Collection[str] | None) -> tuple[Tensors, list[Tensors]]:
    """(what is added on grids, all the rest by type): trained tensors and truth values have a scale, others may be anything."""
    on_grids: Tensors = {}
    apart: dict[torch.dtype, Tensors] = {}
    for name, tensor in like.items():
        is_trained = tensor.is_floating_point() and (trained is None or name in trained)
        group = on_grids if is_trained or tensor.dtype == torch.bool else apart.setdefault(flat(tensor).dtype, {})
        group[name] = tensor
    return on_grids, list(apart.values())
