"""Exact sums of tensors that nobody trains: buffers, counters, frozen weights. Whatever they hold can be averaged.

Nothing bounds such tensors: BatchNorm's running variance goes from 1 to 10^12 in a round of raw features, a causal mask holds
-inf, a counter is any whole number. So each weighted value is cut at fixed powers of two, 28 bits to a bin, over the whole
range of its type, and added in float64 bin by bin. No addition rounds (27 bits a value, 2**20 addends of a few pieces each), so
order and partial sums cannot matter, and the exact total is rounded at the end. Only bins that hold something exist.

Where all addends have the same bits, these bits come out again, whatever they are: a denormal number, -0.0, inf, a NaN with its
payload. As long as whole tensors repeat (masks, frozen weights), they are only compared. Else values that are not finite add
as IEEE's do, in any order: NaN, or inf and -inf together, make NaN, an inf alone stays.

Real numbers of 64 bits are exact from 1e-250 up; whole numbers always.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedgsp.core.tensors import Tensors

BIN_BITS = 28
LOWEST = -36
"""The last bin: below it float64 has no room for the constant that rounds."""
PIECE_BITS, PART_BITS = 29, 24
"""A weight comes in pieces, a value in parts, of so many bits, so that their product is exact in float64."""
BLOCK = 32768
DOUBLE_SCALE = 2.0**-128
"""Values of 64 bits are added as multiples of this: their sum would not be finite else."""
PLUS, MINUS, NAN = 1, 2, 4
"""What an element had among its addends, as bits."""
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class PartialBufferSum:
    """What some addends came to, for a sum elsewhere: see `BufferSum`, whose fields these are."""

    first: NDArray[Any] | None
    same: NDArray[np.bool_] | None
    alike: Fraction
    bins: dict[int, NDArray[np.float64]]
    odd: NDArray[np.uint8] | None


class BufferSum:
    """A weighted sum of tensors of one type, without any limit.

    `first` is the first addend; while all others have its bits, `alike` is what they weigh together. Then `same` says in which
    elements they still have, `bins` add up and `odd` remembers what was not finite.
    """

    def __init__(self, like: Tensors) -> None:
        self._like = like
        self._sizes = [flat(tensor).numel() for tensor in like.values()]
        self._kind = flat(next(iter(like.values()))).dtype
        self._first: torch.Tensor | None = None
        self._same: torch.Tensor | None = None
        self._alike = Fraction(0)
        self._bins: dict[int, torch.Tensor] = {}
        self._odd: torch.Tensor | None = None

    def add(self, tensors: Tensors, weight: Fraction) -> None:
        """Add `weight * tensors`; what weighs nothing is nothing, also where it is not finite."""
        if not weight:
            return
        if self._first is None:
            self._first = self._joined(tensors)
            self._alike = weight
        elif self._same is None and self._repeats(self._first, tensors):
            self._alike += weight
        else:
            values = self._joined(tensors)
            self._compare(self._first, values)
            self._deposit(values, weight)

    def partial(self) -> PartialBufferSum:
        """What was added so far; a copy."""
        return PartialBufferSum(
            None if self._first is None else bits_of(self._first).numpy().copy(),
            None if self._same is None else self._same.numpy().copy(),
            self._alike,
            {number: held.numpy().copy() for number, held in self._bins.items()},
            None if self._odd is None else self._odd.numpy().copy(),
        )

    def merge(self, other: PartialBufferSum) -> None:
        """Add a partial sum of the same tensors."""
        if other.first is None:
            return
        first = torch.from_numpy(other.first.copy()).view(self._kind)
        if self._first is None:
            self._first = first
            self._same = None if other.same is None else torch.from_numpy(other.same.copy())
            self._alike += other.alike
        elif self._same is None and other.same is None and torch.equal(bits_of(first), bits_of(self._first)):
            self._alike += other.alike
            return
        else:
            same = self._compare(self._first, first)
            if other.same is None:
                self._deposit(first, other.alike)
            else:
                same &= torch.from_numpy(other.same.copy())
        for number, held in other.bins.items():
            self._bin(number).add_(torch.from_numpy(held.copy()))
        if other.odd is not None:
            self._odds().bitwise_or_(torch.from_numpy(other.odd.copy()))

    def mean(self, weight: Fraction) -> Tensors:
        """The weighted mean in the tensors' own type, whole numbers rounded to the nearest."""
        assert self._first is not None
        values = self._first.clone()
        if self._same is not None:
            at = (~self._same).nonzero().reshape(-1)
            bits_of(values)[at] = bits_of(self._means(at, weight))
        return self._apart(values)

    def total64(self) -> Tensors:
        """The weighted sum itself in float64."""
        everywhere = torch.arange(sum(self._sizes))
        if self._first is None:
            return self._apart(torch.zeros(len(everywhere), dtype=torch.float64))
        self._settle(self._first)
        return self._apart(self._with_odd(self._totals(everywhere) / self._scale(), everywhere))

    def _means(self, at: torch.Tensor, weight: Fraction) -> torch.Tensor:
        if not self._kind.is_floating_point:
            columns = zip(*(held[at].tolist() for held in self._bins.values()), strict=True)
            whole = [round(Fraction(sum(map(int, column))) / weight) for column in columns]
            return torch.from_numpy(np.array(whole, dtype=torch.empty(0, dtype=self._kind).numpy().dtype))
        return self._with_odd(self._totals(at) / float(weight) / self._scale(), at).to(self._kind)

    def _totals(self, at: torch.Tensor) -> torch.Tensor:
        """The exact totals of some elements, rounded to float64."""
        blocks = torch.split(at, BLOCK) if self._bins else ()
        found = [rounded_sums([self._bins[number][some] for number in sorted(self._bins)]) for some in blocks]
        return torch.cat(found) if found else torch.zeros(len(at), dtype=torch.float64)

    def _scale(self) -> float:
        return DOUBLE_SCALE if self._kind == torch.float64 else 1.0

    def _with_odd(self, values: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        if self._odd is None:
            return values
        odd = self._odd[at]
        values[odd == PLUS] = math.inf
        values[odd == MINUS] = -math.inf
        values[odd > MINUS] = math.nan  # a NaN, or both
        return values

    def _compare(self, first: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Note where `values` have other bits than all before them."""
        same = self._settle(first)
        same &= bits_of(values) == bits_of(first)
        return same

    def _settle(self, first: torch.Tensor) -> torch.Tensor:
        """From now on bins count: put down there what was all alike."""
        if self._same is None:
            self._same = torch.ones(len(first), dtype=torch.bool)
            self._deposit(first, self._alike)
            self._alike = Fraction(0)
        return self._same

    def _deposit(self, values: torch.Tensor, weight: Fraction) -> None:
        parts = parts_of(values) if values.is_floating_point() else whole_parts_of(values)
        if values.is_floating_point() and not bool((finite := values.to(torch.float64).isfinite()).all()):
            wide = values.to(torch.float64)
            kinds = wide.isposinf() * PLUS + wide.isneginf() * MINUS + wide.isnan() * NAN
            self._odds().bitwise_or_(kinds.to(torch.uint8))
            parts = [torch.where(finite, part, 0.0) for part in parts]
        for part in parts:
            for piece in pieces_of(weight):
                for begin in range(0, len(part), BLOCK):
                    self._cut(part[begin : begin + BLOCK] * piece, slice(begin, begin + BLOCK))

    def _cut(self, rest: torch.Tensor, where: slice) -> None:
        """Share products out among the bins, from the largest that is needed down."""
        while (largest := float(rest.abs().max())) > 0:
            number = -(-(power_of_two_above(largest) + 1) // BIN_BITS) - 1
            if number < LOWEST:
                return
            rounding = 1.5 * 2.0 ** (BIN_BITS * number + 52)  # adding and subtracting it rounds to a multiple of the bin's unit
            rounded = rest.add(rounding).sub_(rounding)
            self._bin(number)[where] += rounded
            rest.sub_(rounded)

    def _bin(self, number: int) -> torch.Tensor:
        if number not in self._bins:
            self._bins[number] = torch.zeros(sum(self._sizes), dtype=torch.float64)
        return self._bins[number]

    def _odds(self) -> torch.Tensor:
        if self._odd is None:
            self._odd = torch.zeros(sum(self._sizes), dtype=torch.uint8)
        return self._odd

    def _repeats(self, first: torch.Tensor, tensors: Tensors) -> bool:
        known = zip(self._like, torch.split(first, self._sizes), strict=True)
        return all(torch.equal(bits_of(flat(tensors[name])), bits_of(own)) for name, own in known)

    def _joined(self, tensors: Tensors) -> torch.Tensor:
        return torch.cat([flat(tensors[name]) for name in self._like])

    def _apart(self, values: torch.Tensor) -> Tensors:
        found = {}
        for (name, like), own in zip(self._like.items(), torch.split(values, self._sizes), strict=True):
            own = own.clone()  # memory of its own
            found[name] = torch.view_as_complex(own.reshape(*like.shape, 2)) if like.is_complex() else own.reshape(like.shape)
        return found


def rounded_sums(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sums of some rows (n,) of float64, each as if it were added exactly and rounded once."""
    high, low = torch.zeros_like(rows[0]), torch.zeros_like(rows[0])
    lost = torch.zeros_like(rows[0], dtype=torch.bool)
    for row in rows:
        high, rest = _two_sum(high, row)
        low, rest = _two_sum(low, rest)
        lost |= rest != 0
    total = high + low
    for at in lost.nonzero().reshape(-1).tolist():  # more than two numbers can hold
        total[at] = math.fsum(float(row[at]) for row in rows)
    return total


def _two_sum(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(the rounded sum, what rounding took away)."""
    total = one + other
    back = total - one
    return total, (one - (total - back)) + (other - back)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All its numbers in a row; a complex one is two."""
    tensor = tensor.detach()
    return (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).reshape(-1)


def bits_of(values: torch.Tensor) -> torch.Tensor:
    """The same memory as whole numbers: NaN is like itself there, and -0.0 unlike 0.0."""
    return values.view(BITS[values.element_size()])


def pieces_of(weight: Fraction) -> list[float]:
    """Numbers of at most `PIECE_BITS` bits that add up to a weight (which is a float, or a sum of such)."""
    found = []
    while weight:
        top = weight.numerator.bit_length() - weight.denominator.bit_length()
        unit = Fraction(2) ** (top + 1 - PIECE_BITS)
        piece = weight // unit * unit
        found.append(float(piece))
        weight -= piece
    return found


def parts_of(values: torch.Tensor) -> list[torch.Tensor]:
    """float64 numbers of at most `PART_BITS` bits that add up to real values (times `DOUBLE_SCALE` for those of 64 bits)."""
    rest = values.to(torch.float64)
    if values.dtype != torch.float64:
        return [rest]
    found, rest = [], rest * DOUBLE_SCALE
    for _ in range(3):
        top = (rest.view(torch.int64) & -(2 ** (53 - PART_BITS))).view(torch.float64)
        found.append(top)
        rest = rest - top
    return found


def whole_parts_of(values: torch.Tensor) -> list[torch.Tensor]:
    """The same for whole numbers: 22, 22 and 20 bits."""
    low, rest = 2**22 - 1, values.numpy()
    if rest.dtype.itemsize < 8:
        rest = rest.astype(np.int64)
    parts = [(rest & low).astype(np.float64), ((rest >> 22) & low) * 2.0**22, (rest >> 44) * 2.0**44]
    return [torch.from_numpy(part) for part in parts if part.any()]


def power_of_two_above(value: float) -> int:
    """The least e with value <= 2**e."""
    mantissa, exponent = math.frexp(value)
    return exponent - 1 if mantissa == 0.5 else exponent
