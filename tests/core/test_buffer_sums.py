"""Sums of tensors that nobody trains: any value, any order, any tree of partial sums; exact fractions are the oracle."""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgsp.core.buffer_sums import BLOCK, parts_of, pieces_of, rounded_sums, whole_parts_of
from fedgsp.core.errors import Diverged
from fedgsp.core.sums import ExactSum
from fedgsp.core.tensors import Tensors, digest

WIDTH = 3
LIKE: Tensors = {"running_var": torch.ones(WIDTH)}
MOST = 10_000
Addend = tuple[Any, float]

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
patterns = st.integers(0, 2**32 - 1)  # every float32 there is: denormal numbers, infinities, NaNs with any payload
weights = st.integers(0, 1000) | st.floats(2.0**-30, 1000.0)


def of_patterns(values: Sequence[int]) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.uint32).view(np.float32))


def summed(addends: Sequence[Addend], like: Tensors = LIKE) -> ExactSum:
    """A sum in which nothing is trained; values are a tensor, or floats."""
    total, name = ExactSum(like, MOST, trained=()), next(iter(like))
    for values, weight in addends:
        total.add({name: values if isinstance(values, torch.Tensor) else torch.tensor(values)}, weight, "someone")
    return total


def bits(total: ExactSum) -> str:
    return digest(total.mean())


def rows(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[list[Any], float]]]:
    addend = st.tuples(st.lists(values, min_size=WIDTH, max_size=WIDTH), weights)
    return st.lists(addend, min_size=1, max_size=7).filter(lambda found: any(weight for _, weight in found))


def some_alike(data: st.DataObject, addends: list[tuple[list[int], float]]) -> list[Addend]:
    """Some of the addends repeat others' values, in whole or in one element."""
    found: list[Addend] = []
    for values, weight in addends:
        kept = list(data.draw(st.sampled_from(addends))[0]) if data.draw(st.booleans()) else list(values)
        if data.draw(st.booleans()):
            kept[0] = addends[0][0][0]
        found.append((of_patterns(kept), weight))
    return found


@settings(max_examples=200, deadline=None)
@given(rows(patterns), st.data())
def test_neither_order_nor_any_tree_of_partial_sums_matters(
    addends: list[tuple[list[int], float]], data: st.DataObject
) -> None:
    mixed = some_alike(data, addends)
    straight = summed(mixed)
    assert bits(summed(data.draw(st.permutations(mixed)))) == bits(straight)
    forest = [summed([addend]) for addend in mixed] + [summed([])]
    while len(forest) > 1:
        left = forest.pop(data.draw(st.integers(0, len(forest) - 1)))
        right = forest.pop(data.draw(st.integers(0, len(forest) - 1)))
        left.merge(pickle.loads(pickle.dumps(right.partial())))  # as it comes from another machine
        forest.append(left)
    assert bits(forest[0]) == bits(straight)
    assert forest[0].weight == straight.weight


@settings(max_examples=200, deadline=None)
@given(rows(finite))
def test_the_total_is_exact_over_the_whole_range(addends: list[tuple[list[float], float]]) -> None:
    """The exact total, rounded to float64, over the total weight, rounded to float32; nothing is lost anywhere."""
    total = summed(addends)
    weight = sum((Fraction(w) for _, w in addends), Fraction(0))
    for column in range(WIDTH):
        exact = sum((Fraction(values[column]) * Fraction(w) for values, w in addends), Fraction(0))
        values = {struct.pack("f", v[column]) for v, w in addends if w}
        wanted = np.float32(float(exact) / float(weight))
        found = total.mean()["running_var"][column].numpy()
        if len(values) > 1:
            assert found == wanted
            half_an_ulp = Fraction(float(np.spacing(np.abs(found)))) / 2
            assert abs(Fraction(float(found)) - exact / weight) <= half_an_ulp * (1 + Fraction(1, 2**20))
            assert total.total64()["running_var"][column].item() == float(exact)
        else:
            assert {struct.pack("f", found)} == values


@settings(max_examples=200, deadline=None)
@given(st.lists(patterns, min_size=WIDTH, max_size=WIDTH), st.lists(weights.filter(bool), min_size=1, max_size=6))
def test_what_all_have_comes_out_to_the_bit(model: list[int], shares: list[float]) -> None:
    found = summed([(of_patterns(model), share) for share in shares]).mean()["running_var"]
    assert found.numpy().view(np.uint32).tolist() == model


@pytest.mark.parametrize("value", [1e12, -3.4e38, 1e-45, -0.0, math.inf, -math.inf, math.nan])
def test_one_element_that_all_have_beside_one_that_differs(value: float) -> None:
    found = summed([([value, float(k), 5.0], k + 1) for k in range(3)]).mean()["running_var"]
    expected = torch.tensor([value, 8 / 6, 5.0])  # (0 * 1 + 1 * 2 + 2 * 3) / 6
    assert found.numpy().tobytes() == expected.numpy().tobytes()


def test_bits_are_compared_not_values() -> None:
    """A NaN is like itself, payload and all; 0.0 and -0.0 are not alike, and add up to 0.0 in any order."""
    payload, zeros = 0x7FC01234, (0x00000000, 0x80000000)
    for signs in (zeros, zeros[::-1]):
        found = summed([(of_patterns([payload, sign, k]), 1) for k, sign in enumerate(signs)]).mean()["running_var"]
        assert found.numpy().view(np.uint32).tolist()[:2] == [payload, 0]


def test_a_running_variance_may_grow_by_any_factor_in_a_round() -> None:
    """From 1 to 10^12 and 3 * 10^12: the mean by 1 and 3 samples is 2.5 * 10^12."""
    assert summed([([1e12] * 3, 1), ([3e12] * 3, 3)]).mean()["running_var"].tolist() == [np.float32(2.5e12)] * 3


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((math.inf, 1.0), math.inf),
        ((1.0, -math.inf), -math.inf),
        ((math.inf, -math.inf), math.nan),
        ((math.nan, 1.0), math.nan),
        ((math.nan, math.inf), math.nan),
        ((math.inf, 2.0, math.inf), math.inf),
    ],
)
def test_values_that_are_not_finite_add_as_ieee_says(values: tuple[float, ...], expected: float) -> None:
    for ordered in (values, values[::-1]):
        found = summed([([value, 1.0, 2.0], 1) for value in ordered]).mean()["running_var"]
        assert np.array_equal(found.numpy(), np.array([expected, 1.0, 2.0], dtype=np.float32), equal_nan=True)


def test_what_weighs_nothing_is_nothing() -> None:
    assert summed([([math.nan] * 3, 0), ([2.0] * 3, 5)]).mean()["running_var"].tolist() == [2.0] * 3


INT64 = torch.iinfo(torch.int64)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(INT64.min, INT64.max), st.integers(1, 1000)), min_size=1, max_size=6), st.data())
def test_whole_numbers_are_exact_to_their_ends(addends: list[tuple[int, int]], data: st.DataObject) -> None:
    like: Tensors = {"count": torch.tensor(0)}
    wanted = round(Fraction(sum(n * w for n, w in addends), sum(w for _, w in addends)))
    for ordered in (addends, data.draw(st.permutations(addends))):
        found = summed([(torch.tensor(n), w) for n, w in ordered], like).mean()["count"]
        assert found.dtype == torch.int64
        assert found.item() == wanted


@pytest.mark.parametrize("ends", [(INT64.min, 40), (40, INT64.min), (INT64.min, INT64.max), (INT64.max, INT64.max)])
def test_a_hostile_counter_breaks_nothing(ends: tuple[int, int]) -> None:
    found = summed([(torch.tensor(n), 1) for n in ends], {"count": torch.tensor(7)}).mean()["count"].item()
    assert found == round(Fraction(sum(ends), 2))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (torch.uint8, (250, 255)),
        (torch.int8, (-128, 127)),
        (torch.int16, (-(2**15), 1)),
        (torch.int32, (-(2**31), 2**31 - 1)),
    ],
)
def test_small_whole_numbers_keep_their_type(kind: torch.dtype, values: tuple[int, int]) -> None:
    found = summed([(torch.tensor([n], dtype=kind), 1) for n in values], {"n": torch.zeros(1, dtype=kind)}).mean()["n"]
    assert found.dtype == kind
    assert found.item() == round(Fraction(sum(values), 2))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_real_types(kind: torch.dtype) -> None:
    largest = torch.finfo(kind).max
    values = [torch.tensor(row, dtype=kind) for row in ([0.5, largest, -3.0], [2.0, largest, 5.0])]
    found = summed([(value, 1) for value in values], {"w": torch.zeros(3, dtype=kind)}).mean()["w"]
    assert found.dtype == kind
    assert found.tolist() == [1.25, largest, 1.0]


def test_complex_numbers_keep_both_parts() -> None:
    """Rotary embeddings are often kept as complex buffers; 0.1.0 averaged their real parts and dropped the rest."""
    like: Tensors = {"freqs": torch.zeros(2, dtype=torch.complex64)}
    rows = [torch.tensor([1 + 2j, 0 - 1j]), torch.tensor([3 + 6j, 0 - 1j])]
    assert summed([(row, 1) for row in rows], like).mean()["freqs"].tolist() == [2 + 4j, -1j]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-200), min_size=2, max_size=2, unique=True))
def test_numbers_of_64_bits_are_averaged_without_overflow(values: list[float]) -> None:
    found = summed([(torch.tensor([v], dtype=torch.float64), 3) for v in values], {"w": torch.zeros(1, dtype=torch.float64)})
    exact = (Fraction(values[0]) + Fraction(values[1])) / 2
    assert found.mean()["w"].item() == pytest.approx(float(exact), rel=2**-52)


def significant_bits(value: float) -> int:
    numerator = Fraction(value).numerator
    return (numerator // (numerator & -numerator)).bit_length() if numerator else 0


@settings(max_examples=100, deadline=None)
@given(st.fractions(min_value=0, max_value=10_000).map(lambda f: Fraction(float(f))))
def test_a_weights_pieces_are_the_weight(weight: Fraction) -> None:
    pieces = pieces_of(weight)
    assert sum(map(Fraction, pieces), Fraction(0)) == weight
    assert all(significant_bits(piece) <= 29 for piece in pieces)


@settings(max_examples=100, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-200), st.integers(INT64.min, INT64.max))
def test_a_values_parts_are_the_value(real: float, whole: int) -> None:
    parts = parts_of(torch.tensor([real], dtype=torch.float64))
    assert sum(Fraction(p.item()) for p in parts) * 2**128 == Fraction(real)
    assert all(significant_bits(p.item()) <= 24 for p in parts)
    assert sum(int(p.item()) for p in whole_parts_of(torch.tensor([whole]))) == whole


def test_blocks_of_a_large_buffer_are_all_added() -> None:
    large = torch.linspace(-1e9, 1e9, 2 * BLOCK + 17).reshape(1, -1)
    total = summed([(large, 1), (3 * large, 1)], {"w": large})
    assert torch.equal(total.mean()["w"], 2 * large)


def test_only_a_trained_tensor_can_diverge_and_only_then_the_learning_rate_is_to_blame() -> None:
    like: Tensors = {"weight": torch.ones(2), "running_var": torch.ones(2), "mask": torch.tensor([0.0, -math.inf])}
    model = {**like, "running_var": torch.full((2,), 1e12)}
    total = ExactSum(like, 10, trained={"weight"})
    total.add(model, 4, "chain 0")
    assert digest(total.mean()) == digest(model)
    for wrong, told in ((1e6, "far too large"), (math.nan, "not finite")):
        with pytest.raises(Diverged, match=rf"chain 1: values of tensor 'weight' are {told}.*try a smaller learning rate"):
            total.add({**model, "weight": torch.full((2,), wrong)}, 1, "chain 1")
    assert digest(total.mean()) == digest(model), "what was refused left no trace"


def test_adding_keeps_nothing_of_what_was_added() -> None:
    """A result's memory is used again for the next one."""
    scratch = {"running_var": torch.tensor([1.0, 2.0, 3.0])}
    total = ExactSum(LIKE, 10, trained=())
    total.add(scratch, 1, "a")
    scratch["running_var"].fill_(9.0)
    assert total.mean()["running_var"].tolist() == [1.0, 2.0, 3.0]
    part = total.partial()
    total.add(scratch, 1, "b")
    assert part.wide[0].first is not None
    assert part.wide[0].bins == {}


def test_a_buffer_of_another_type_is_refused_with_its_source() -> None:
    with pytest.raises(ValueError, match=r"chain 4: tensor 'running_var' is of type torch\.float64, not torch\.float32"):
        summed([]).add({"running_var": torch.ones(WIDTH, dtype=torch.float64)}, 1, "chain 4")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.floats(-1e200, 1e200), min_size=3, max_size=3), min_size=1, max_size=7))
def test_sums_of_bins_are_rounded_once(rows: list[list[float]]) -> None:
    found = rounded_sums([torch.tensor(row, dtype=torch.float64) for row in rows]).tolist()
    assert found == [float(sum(map(Fraction, column), Fraction(0))) for column in zip(*rows, strict=True)]
