"""Weighted sums of models that are exact, so that their order cannot matter.

Every product weight * value is split on two fixed grids of powers of two (a coarse and a fine one, the same for every
addend of a round) and added in float64. Multiples of a grid below 2**53 of them add without rounding, hence addition is
associative and commutative to the bit: any number of workers, any order of arrival, any tree of partial sums gives the same
model. The fine grid keeps what the coarse one drops, so the mean of equal float32 models is that model, to the bit, but for
values below some 2**-28 of the largest (or of 1; for planned weights of 8,000, a bit less for each doubling): these are kept to
within 2**-52 of it.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch

from fedgsp.core.errors import Diverged
from fedgsp.core.tensors import Tensors

HEADROOM_BITS = 16
"""A value may outgrow the start model's largest entry (at least 1) by this many bits before it counts as diverged."""
COUNTER_BITS = 31
"""The same for whole numbers: a counter (BatchNorm's batches) starts at 0 and grows with every step of a long chain."""
SUM_BITS = 50
"""Partial sums stay below 2**SUM_BITS grid units: two bits under float64's 53 for the rounding trick below."""
MOST_ADDENDS_BITS = 20
BLOCK = 32768
"""Elements handled at a time: the temporaries stay in the cache, and torch does not start threads for so few."""
SMALL = BLOCK
"""A model of at most so many elements is added as one vector."""


def _power_of_two_above(value: float) -> int:
    """The least e with value <= 2**e."""
    mantissa, exponent = math.frexp(value)
    return exponent - 1 if mantissa == 0.5 else exponent


class _Grid:
    """One tensor's two accumulators and the constants that round a float64 to a multiple of each grid."""

    def __init__(self, like: torch.Tensor, weight_bits: int) -> None:
        largest = float(like.detach().abs().max()) if like.numel() else 0.0
        scale_bits = _power_of_two_above(max(1.0, largest))
        headroom = HEADROOM_BITS if like.is_floating_point() else COUNTER_BITS
        coarse = weight_bits + scale_bits + headroom - SUM_BITS
        fine = coarse + MOST_ADDENDS_BITS - SUM_BITS
        self.limit = 2.0 ** (scale_bits + headroom)
        self.round_coarse = 1.5 * 2.0 ** (coarse + 52)  # adding and subtracting it rounds to a multiple of 2**coarse
        self.round_fine = 1.5 * 2.0 ** (fine + 52)
        self.key = (coarse, fine)
        self.coarse = torch.zeros(like.numel(), dtype=torch.float64)
        self.fine = torch.zeros(like.numel(), dtype=torch.float64)

    def add(self, values: torch.Tensor, weight: float) -> None:
        for begin in range(0, values.numel(), BLOCK):
            part = slice(begin, begin + BLOCK)
            rest = values[part].to(torch.float64, copy=True).mul_(weight)  # a copy: the addend is not ours
            rounded = rest.add(self.round_coarse).sub_(self.round_coarse)
            self.coarse[part] += rounded
            rest.sub_(rounded)
            self.fine[part] += rest.add_(self.round_fine).sub_(self.round_fine)


class _Small:
    """All tensors of a small model as one vector: the same additions in one go, since calls cost more than numbers there."""

    def __init__(self, grids: list[_Grid]) -> None:
        sizes = torch.tensor([grid.coarse.numel() for grid in grids])

        def spread(values: list[float]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.float64).repeat_interleave(sizes)

        self._coarse, self._fine = torch.cat([g.coarse for g in grids]), torch.cat([g.fine for g in grids])
        self._round_coarse, self._round_fine = spread([g.round_coarse for g in grids]), spread([g.round_fine for g in grids])
        self._limits = spread([g.limit for g in grids])
        begin = 0
        for grid in grids:
            place = slice(begin, begin + grid.coarse.numel())
            grid.coarse, grid.fine, begin = self._coarse[place], self._fine[place], place.stop

    def add(self, tensors: list[torch.Tensor], weight: float) -> bool:
        """Add one model, unless some value is beyond its limit: then nothing, and False."""
        rest = torch.cat([tensor.detach().reshape(-1).to(torch.float64) for tensor in tensors])
        if not bool((rest.abs() <= self._limits).all()):
            return False
        rest.mul_(weight)
        rounded = rest.add(self._round_coarse).sub_(self._round_coarse)
        self._coarse += rounded
        self._fine += rest.sub_(rounded).add_(self._round_fine).sub_(self._round_fine)
        return True


def in_own_types(values: Tensors, like: Tensors) -> Tensors:
    """float64 values in the types of `like`: whole numbers rounded, truth values by majority."""
    result = {}
    for name, own in like.items():
        value = values[name]
        if own.dtype == torch.bool:
            value = value >= 0.5
        elif not own.is_floating_point():
            value = value.round()
        result[name] = value.to(own.dtype)
    return result


class ExactSum:
    """A running weighted sum of named tensors whose bits do not depend on the order of the additions.

    `like` is the model the round started from: it fixes names, shapes, types and the grids. `most_weight` bounds the sum
    of all weights (the planned samples); it is part of the grid and must be the same for sums that are merged.
    """

    def __init__(self, like: Tensors, most_weight: float) -> None:
        if not (math.isfinite(most_weight) and most_weight > 0):
            raise ValueError(f"the largest total weight must be positive, not {most_weight}")
        self._like = like
        self._most = Fraction(most_weight)
        self._weight = Fraction(0)
        self._count = 0
        bits = _power_of_two_above(most_weight)
        self._grids = {name: _Grid(t.double() if t.dtype == torch.bool else t, bits) for name, t in like.items()}
        small = 0 < sum(grid.coarse.numel() for grid in self._grids.values()) <= SMALL
        self._small = _Small(list(self._grids.values())) if small else None

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
        if tensors.keys() != self._grids.keys():
            odd = sorted(tensors.keys() ^ self._grids.keys())
            raise ValueError(f"{who} handed on other tensors than the model has: {', '.join(odd)}")
        self._check_shapes(tensors, who)
        if self._small is not None and self._small.add([tensors[name] for name in self._grids], weight):
            self._account(Fraction(weight), 1)
            return
        self._check_values(tensors, who)
        self._account(Fraction(weight), 1)
        for name, grid in self._grids.items():
            grid.add(tensors[name].detach().reshape(-1), weight)

    def merge(self, other: ExactSum) -> None:
        """Add another partial sum of the same round."""
        for name, grid in self._grids.items():
            theirs = other._grids[name]
            if theirs.key != grid.key:
                raise ValueError("partial sums of different rounds cannot be merged")
            grid.coarse += theirs.coarse
            grid.fine += theirs.fine
        self._account(other._weight, other._count)

    def mean(self) -> Tensors:
        """The weighted mean in each tensor's own type: whole numbers rounded, truth values by majority."""
        return in_own_types(self.mean64(), self._like)

    def mean64(self) -> Tensors:
        """The weighted mean in float64, for server rules that go on computing with it."""
        if self._weight == 0:
            raise Diverged("no chain of this round trained a single sample, so there is nothing to average.")
        weight = float(self._weight)
        return {name: total / weight for name, total in self.total64().items()}

    def total64(self) -> Tensors:
        """The weighted sum itself in float64."""
        return {
            name: (self._grids[name].coarse + self._grids[name].fine).reshape(like.shape) for name, like in self._like.items()
        }

    def _check_shapes(self, tensors: Tensors, who: str) -> None:
        for name, tensor in tensors.items():
            if tensor.shape != self._like[name].shape:
                raise ValueError(f"{who}: tensor '{name}' has shape {tuple(tensor.shape)}, not {tuple(self._like[name].shape)}")

    def _check_values(self, tensors: Tensors, who: str) -> None:
        for name, tensor in tensors.items():
            if tensor.numel() == 0:
                continue
            largest = (
                float(tensor.detach().double().abs().max())
                if tensor.dtype == torch.bool
                else float(tensor.detach().abs().max())
            )
            if not largest <= self._grids[name].limit:
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
