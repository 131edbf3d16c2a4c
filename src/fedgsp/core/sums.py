"""Weighted sums of models that are exact, so that their order cannot matter.

Every product weight * value is split on two fixed grids of powers of two (a coarse and a fine one, the same for every
addend of a round) and added in float64. Multiples of a grid below 2**53 of them add without rounding, hence addition is
associative and commutative to the bit: any number of workers, any order of arrival, any tree of partial sums gives the same
model. The fine grid keeps what the coarse one drops, so the mean of equal float32 models is that model, to the bit, but for
values below some 2**-28 of the largest (or of 1; for planned weights of 8,000, a bit less for each doubling): these are kept to
within 2**-52 of it.

Where there is a compiler the two grids' numbers are added as one whole number of 64 bits (`core.whole_sums`): the same bits.

That is for tensors that are trained, whose values have a scale; for one that outgrew it by far, training has diverged. Tensors
that nobody trains (buffers, counters, frozen weights) have none: they are summed by `core.buffer_sums`, without any limit.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.core.buffer_sums import BufferSum, PartialBufferSum, flat, power_of_two_above
from fedgsp.core.errors import Diverged
from fedgsp.core.sum_grids import BLOCK, HEADROOM_BITS, MOST_ADDENDS_BITS, SMALL, SPARE, SPARE_WHOLE, Grid, SmallSum
from fedgsp.core.whole_sums import WholeSum, available

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

__all__ = ["BLOCK", "HEADROOM_BITS", "MOST_ADDENDS_BITS", "ExactSum", "PartialSum", "in_own_types"]


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
        self._weight: Fraction | int = 0
        self._count = 0
        bits = power_of_two_above(most_weight)
        on_grids, apart = _sorted_out(like, trained)
        self._wide = [BufferSum(tensors) for tensors in apart]
        self._apart = {name for tensors in apart for name in tensors}
        self._grids = {
            name: Grid(tensor.double() if tensor.dtype == torch.bool else tensor, bits) for name, tensor in on_grids.items()
        }
        self._names = list(self._grids)
        self._keys = {name: grid.key for name, grid in self._grids.items()}
        self._accumulators: torch.Tensor | None = None
        self._small: SmallSum | None = None
        self._whole: WholeSum | None = None
        if on_grids and available() and all(tensor.dtype == torch.float32 for tensor in on_grids.values()):
            wholes = [grid.whole for grid in self._grids.values()]
            self._whole = WholeSum(wholes, SPARE_WHOLE.take, SPARE_WHOLE.give)
        else:
            self._accumulators = self._joined()
            if 0 < self._accumulators.shape[1] <= SMALL:
                self._small = SmallSum(list(self._grids.values()), self._accumulators)

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
        exactly = weight if isinstance(weight, int) else Fraction(weight)  # whole ones add up exactly, and sooner
        names = self._names
        for name in self._added_quickly([tensors[name] for name in names], names, weight, who):
            self._grids[name].add(tensors[name].detach().reshape(-1), weight)
        self._account(exactly, 1)
        for wide in self._wide:
            wide.add(tensors, Fraction(weight))

    def partial(self) -> PartialSum:
        """What was added so far, for a sum elsewhere to merge; a copy."""
        wide = tuple(wide.partial() for wide in self._wide)
        return PartialSum(self._settled().numpy().copy(), self._keys, Fraction(self._weight), self._count, wide)

    def merge(self, other: PartialSum) -> None:
        """Add a partial sum of the same round."""
        if other.keys != self._keys or len(other.wide) != len(self._wide):
            raise ValueError("partial sums of different rounds cannot be merged")
        ours = self._settled().numpy()
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
        found = self._on_grids(float(self._weight))
        for wide in self._wide:
            found.update(wide.mean(Fraction(self._weight)))
        return {name: found[name] for name in self._like}

    def total64(self) -> Tensors:
        """The weighted sum itself in float64."""
        found = self._on_grids(1.0)
        for wide in self._wide:
            found.update(wide.total64())
        return {name: found[name] for name in self._like}

    def _added_quickly(self, tensors: list[torch.Tensor], names: list[str], weight: float, who: str) -> list[str]:
        """Add what can be as whole numbers or as one vector; the names of the rest. Nothing is added if a value diverged."""
        left = names
        if self._whole is not None:
            numbers = self._whole.add(tensors, weight)
            left = [names[number] for number in numbers]
        elif self._small is not None and self._small.put(tensors, weight):
            left = []
        if left:
            try:
                self._check_values(dict(zip(names, tensors, strict=True)), left, who)
            except Diverged:
                if self._whole is not None:
                    self._whole.take_back(tensors, weight, numbers)
                raise
        return left

    def _on_grids(self, weight: float) -> Tensors:
        """What was added on grids, divided by a weight."""
        found = {}
        if self._whole is not None:
            for number, grid in enumerate(self._grids.values()):
                if grid.pair is not None:
                    self._whole.move(number, *grid.pair)
            parts = torch.split(self._whole.means(weight), [grid.whole.size for grid in self._grids.values()])
            found = dict(zip(self._grids, parts, strict=True))
        elif self._small is not None:
            self._small.flush()
        for name, grid in self._grids.items():
            if grid.pair is not None or self._whole is None:
                coarse, fine = grid.accumulators()
                found[name] = (coarse + fine) / weight
        return {name: found[name].reshape(self._like[name].shape) for name in self._grids}

    def _settled(self) -> torch.Tensor:
        """The accumulators (2, size) of all tensors, with all that was added otherwise."""
        if self._accumulators is None:
            self._accumulators = self._joined()
        if self._small is not None:
            self._small.flush()
        if self._whole is not None:
            for number, grid in enumerate(self._grids.values()):
                self._whole.move(number, *grid.accumulators())
        return self._accumulators

    def _joined(self) -> torch.Tensor:
        """Accumulators that lie one after the other, with what is in those that there are."""
        sizes = [grid.whole.size for grid in self._grids.values()]
        whole = SPARE.take(sum(sizes))
        weakref.finalize(self, SPARE.give, whole).atexit = False
        for grid, part in zip(self._grids.values(), torch.split(whole, sizes, dim=1), strict=True):
            if grid.pair is not None:
                part += grid.pair
            grid.pair = part
        return whole

    def _check_shapes(self, tensors: Tensors, who: str) -> None:
        for name, tensor in tensors.items():
            if tensor.shape != self._like[name].shape:
                raise ValueError(f"{who}: tensor '{name}' has shape {tuple(tensor.shape)}, not {tuple(self._like[name].shape)}")
            if name in self._apart and tensor.dtype != self._like[name].dtype:
                raise ValueError(f"{who}: tensor '{name}' is of type {tensor.dtype}, not {self._like[name].dtype}")

    def _check_values(self, tensors: Tensors, names: Sequence[str], who: str) -> None:
        for name in names:
            tensor, grid = tensors[name].detach(), self._grids[name]
            if tensor.numel() == 0:
                continue
            largest = float((tensor.double() if tensor.dtype == torch.bool else tensor).abs().max())
            if not largest <= grid.limit:
                kind = "far too large" if math.isfinite(largest) else "not finite"
                raise Diverged(
                    f"{who}: values of tensor '{name}' are {kind} ({largest:.3g}), so the round cannot be averaged; "
                    f"try a smaller learning rate."
                )

    def _account(self, weight: Fraction | int, count: int) -> None:
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
