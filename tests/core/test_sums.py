from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedgsp.core import sums, whole_sums
from fedgsp.core.errors import Diverged
from fedgsp.core.sum_grids import WAITING
from fedgsp.core.sums import BLOCK, ExactSum
from fedgsp.core.tensors import Tensors, digest

WIDTH = 4
LIKE: Tensors = {"w": torch.ones(WIDTH)}
LIMIT = 2.0**16  # what values may grow to from a start model of ones

anything = st.floats(-LIMIT, LIMIT, width=32)  # from denormal numbers to the limit
ordinary = st.floats(2.0**-28, LIMIT, width=32) | st.floats(-LIMIT, -(2.0**-28), width=32) | st.just(0.0)
weights = st.integers(0, 1000)


@pytest.fixture(autouse=True, scope="module", params=["whole numbers", "one vector", "tensor by tensor"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """By machine code; without it, small models as one vector, large ones tensor by tensor: everything here holds for each."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "whole numbers":
            patch.setattr(sums, "available", lambda: False)
        if request.param == "tensor by tensor":
            patch.setattr(sums, "SMALL", 0)
        yield


def rows(values: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[list[float], int]]]:
    addend = st.tuples(st.lists(values, min_size=WIDTH, max_size=WIDTH), weights)
    return st.lists(addend, min_size=1, max_size=8).filter(lambda found: any(weight for _, weight in found))


def summed(addends: list[tuple[list[float], int]], most: float = 8000) -> ExactSum:
    total = ExactSum(LIKE, most)
    for values, weight in addends:
        total.add({"w": torch.tensor(values)}, weight, "someone")
    return total


def exact_mean(addends: list[tuple[list[float], int]], column: int) -> Fraction:
    parts = (Fraction(values[column]) * weight for values, weight in addends)
    return sum(parts, Fraction(0)) / sum(weight for _, weight in addends)


def bits(total: ExactSum) -> str:
    return digest(total.mean())


@settings(max_examples=150, deadline=None)
@given(rows(anything), st.randoms(use_true_random=False))
def test_the_order_of_the_additions_does_not_matter(addends: list[tuple[list[float], int]], shuffle: object) -> None:
    shuffled = list(addends)
    shuffle.shuffle(shuffled)  # type: ignore[attr-defined]
    assert bits(summed(addends)) == bits(summed(shuffled))


@settings(max_examples=150, deadline=None)
@given(rows(anything), st.data())
def test_any_tree_of_partial_sums_gives_the_same_bits(addends: list[tuple[list[float], int]], data: st.DataObject) -> None:
    partial = [summed([addend]) for addend in addends]
    while len(partial) > 1:
        left = partial.pop(data.draw(st.integers(0, len(partial) - 1)))
        right = partial.pop(data.draw(st.integers(0, len(partial) - 1)))
        left.merge(right.partial())
        partial.append(left)
    straight = summed(addends)
    assert bits(partial[0]) == bits(straight)
    assert partial[0].weight == straight.weight
    assert partial[0].count == straight.count == len(addends)


def test_an_order_that_would_matter_in_plain_floats_does_not() -> None:
    values = [1.0, 2.0**-20, -1.0, 2.0**-19, 3.0e4, -3.0e4, 2.0**-30]
    in_order = summed([([v] * WIDTH, 1) for v in values])
    reverse = summed([([v] * WIDTH, 1) for v in values[::-1]])
    exact = sum(map(Fraction, values)) / len(values)
    assert bits(in_order) == bits(reverse)
    assert in_order.mean()["w"].tolist() == [float(np.float32(float(exact)))] * WIDTH


@pytest.mark.parametrize("small", [[0.1], [1e-6], [1e-9], [0.1, 0.3, 1e-3, 1e-9], [0.7, -0.7, 1e-25, 3e-30]])
def test_the_largest_values_may_cancel_and_leave_the_small_ones_right(small: list[float]) -> None:
    """The worst case for the grids: every bit of the planned weight, every value at its limit, in any order."""
    addends = [([sign * LIMIT] * WIDTH, 990) for sign in (1, -1) for _ in range(4)]
    addends += [([float(np.float32(value))] * WIDTH, 77) for value in small]
    most = sum(weight for _, weight in addends)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(40):
        total = summed([addends[i] for i in rng.permutation(len(addends))], most)
        seen.add(bits(total))
    assert len(seen) == 1
    assert abs(Fraction(total.mean()["w"][0].item()) - exact_mean(addends, 0)) < Fraction(1, 2**33)


def test_blocks_of_a_large_tensor_are_all_added() -> None:
    large = torch.linspace(-1, 1, 2 * BLOCK + 17).reshape(1, -1)
    total = ExactSum({"w": large}, 4)
    total.add({"w": large}, 1, "a")
    total.add({"w": 3 * large}, 1, "b")
    assert torch.equal(total.mean()["w"], 2 * large)


@settings(max_examples=150, deadline=None)
@given(st.lists(ordinary, min_size=WIDTH, max_size=WIDTH), st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_the_mean_of_equal_models_is_that_model_to_the_bit(model: list[float], shares: list[int]) -> None:
    assert digest(summed([(model, share) for share in shares]).mean()) == digest({"w": torch.tensor(model)})


@settings(max_examples=100, deadline=None)
@given(st.lists(anything, min_size=WIDTH, max_size=WIDTH), st.integers(1, 8000))
def test_one_model_comes_back_and_its_tiniest_values_lose_less_than_a_grid(model: list[float], weight: int) -> None:
    back = summed([(model, weight)]).mean()["w"].tolist()
    for value, found in zip(model, back, strict=True):
        assert found == value or (abs(value) < 2.0**-28 and abs(found - value) <= 2.0**-52)


multiples = st.integers(-(2**30), 2**30).map(lambda n: n * 2.0**-20).map(lambda v: float(np.float32(v)))


@settings(max_examples=150, deadline=None)
@given(rows(multiples))
def test_the_mean_is_the_exact_one_rounded(addends: list[tuple[list[float], int]]) -> None:
    found = summed(addends).mean()["w"].tolist()
    for column, value in enumerate(found):
        exact = exact_mean(addends, column)
        assert value == float(np.float32(float(exact)))


@settings(max_examples=150, deadline=None)
@given(rows(anything))
def test_values_of_any_size_are_averaged_within_rounding(addends: list[tuple[list[float], int]]) -> None:
    for column, value in enumerate(summed(addends).mean()["w"].tolist()):
        exact = exact_mean(addends, column)
        half_an_ulp = Fraction(float(np.spacing(np.float32(abs(float(exact)))))) / 2
        assert abs(Fraction(value) - exact) <= half_an_ulp * Fraction(1001, 1000) + Fraction(1, 2**45)


def test_fractions_of_a_sample_are_weights_too() -> None:
    total = ExactSum(LIKE, 1.0)
    total.add({"w": torch.full((WIDTH,), 1.0)}, 0.25, "a")
    total.add({"w": torch.full((WIDTH,), 5.0)}, 0.75, "b")
    assert total.mean()["w"].tolist() == [4.0] * WIDTH
    assert total.weight == 1.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_real_types_keep_their_type(dtype: torch.dtype) -> None:
    model = torch.tensor([0.5, -3.25, 1000.0], dtype=dtype)
    total = ExactSum({"w": model}, 10)
    total.add({"w": model}, 3, "a")
    total.add({"w": model}, 7, "b")
    mean = total.mean()["w"]
    assert mean.dtype == dtype
    assert torch.equal(mean, model)


def test_whole_numbers_are_averaged_and_rounded() -> None:
    like: Tensors = {"steps": torch.tensor(40, dtype=torch.int64), "small": torch.tensor([1, 2], dtype=torch.uint8)}
    total = ExactSum(like, 10)
    total.add({"steps": torch.tensor(100), "small": torch.tensor([10, 250], dtype=torch.uint8)}, 1, "a")
    total.add({"steps": torch.tensor(200), "small": torch.tensor([20, 255], dtype=torch.uint8)}, 2, "b")
    mean = total.mean()
    assert mean["steps"].dtype == torch.int64
    assert mean["steps"].item() == 167  # 500 / 3
    assert mean["small"].dtype == torch.uint8
    assert mean["small"].tolist() == [17, 253]


def test_truth_values_go_by_majority() -> None:
    like: Tensors = {"seen": torch.tensor([False, False, True])}
    total = ExactSum(like, 10)
    total.add({"seen": torch.tensor([True, True, False])}, 6, "a")
    total.add({"seen": torch.tensor([True, False, True])}, 4, "b")
    assert total.mean()["seen"].tolist() == [True, True, False]


def test_empty_and_scalar_tensors_pass_through() -> None:
    like: Tensors = {"none": torch.zeros(0, 3), "one": torch.tensor(2.0)}
    total = ExactSum(like, 1)
    total.add(like, 1, "a")
    mean = total.mean()
    assert mean["none"].shape == (0, 3)
    assert mean["one"].item() == 2.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_model_that_is_not_finite_is_refused_with_its_source(value: float) -> None:
    total = ExactSum(LIKE, 10)
    with pytest.raises(Diverged, match=r"client 'ada'.*tensor 'w'.*not finite.*smaller learning rate"):
        total.add({"w": torch.tensor([1.0, value, 1.0, 1.0])}, 1, "client 'ada'")


def test_values_that_outgrew_the_start_model_are_refused() -> None:
    summed([([LIMIT] * WIDTH, 1)])
    with pytest.raises(Diverged, match=r"someone.*far too large"):
        summed([([LIMIT * 1.01] * WIDTH, 1)])


def test_the_limit_grows_with_the_start_model() -> None:
    total = ExactSum({"w": torch.full((WIDTH,), 1000.0)}, 10)
    total.add({"w": torch.full((WIDTH,), 6.0e7)}, 1, "a")
    assert total.mean()["w"].tolist() == [6.0e7] * WIDTH


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_no_share_is_refused_with_its_source(weight: float) -> None:
    total = ExactSum(LIKE, 10)
    with pytest.raises(Diverged, match=r"client 'bo' has the weight"):
        total.add(LIKE, weight, "client 'bo'")


def test_a_refused_addend_leaves_no_trace() -> None:
    clean, tried = summed([([3.0] * WIDTH, 2)]), summed([([3.0] * WIDTH, 2)])
    with pytest.raises(Diverged):
        tried.add({"w": torch.full((WIDTH,), math.nan)}, 1, "client 'bo'")
    assert bits(tried) == bits(clean)
    assert tried.weight == clean.weight
    assert tried.count == clean.count


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        ({}, "chain 4 handed on other tensors.*w"),
        ({"w": torch.ones(WIDTH), "x": torch.ones(1)}, "chain 4 handed on other tensors.*x"),
        ({"w": torch.ones(WIDTH + 1)}, r"chain 4: tensor 'w' has shape \(5,\), not \(4,\)"),
        ({"w": torch.ones(2, 2)}, r"chain 4: tensor 'w' has shape \(2, 2\), not \(4,\)"),
    ],
)
def test_another_model_is_refused_with_its_source(tensors: Tensors, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ExactSum(LIKE, 10).add(tensors, 1, "chain 4")


def test_more_weight_than_planned_is_refused_also_in_a_merge() -> None:
    total = summed([([1.0] * WIDTH, 7)], most=10)
    with pytest.raises(ValueError, match=r"add up to 11.*planned 10"):
        total.add(LIKE, 4, "a")
    with pytest.raises(ValueError, match=r"add up to 13.*planned 10"):
        summed([([1.0] * WIDTH, 7)], most=10).merge(summed([([1.0] * WIDTH, 6)], most=10).partial())


def test_all_of_the_planned_weight_may_come() -> None:
    assert summed([([1.5] * WIDTH, 7), ([1.5] * WIDTH, 3)], most=10).mean()["w"].tolist() == [1.5] * WIDTH


def test_partial_sums_of_different_rounds_do_not_merge() -> None:
    with pytest.raises(ValueError, match=r"different rounds"):
        summed([], most=10).merge(summed([], most=1000).partial())
    with pytest.raises(ValueError, match=r"different rounds"):
        summed([], most=10).merge(ExactSum({"w": torch.full((WIDTH,), 9.0)}, 10).partial())


def test_nothing_trained_is_nothing_to_average() -> None:
    with pytest.raises(Diverged, match=r"no chain of this round trained a single sample"):
        summed([([1.0] * WIDTH, 0)]).mean()


@pytest.mark.parametrize("most", [0.0, -1.0, math.nan, math.inf])
def test_a_sum_needs_room_for_some_weight(most: float) -> None:
    with pytest.raises(ValueError, match=r"positive"):
        ExactSum(LIKE, most)


def test_adding_does_not_change_what_is_added() -> None:
    model: NDArray[np.float32] = np.array([1.5, -2.5, 3.0, 0.1], dtype=np.float32)
    addend: Tensors = {"w": torch.from_numpy(model.copy())}
    ExactSum(LIKE, 10).add(addend, 7, "a")
    assert addend["w"].tolist() == model.tolist()


def test_a_long_chain_may_count_more_batches_than_a_value_may_grow() -> None:
    """BatchNorm's counter starts at 0 and counts every step: 3,550 writers in one chain make 160,000 of them."""
    total = ExactSum({"batches": torch.tensor(0)}, 800_000)
    total.add({"batches": torch.tensor(163_300)}, 400_000, "a")
    total.add({"batches": torch.tensor(163_302)}, 400_000, "b")
    assert total.mean()["batches"].item() == 163_301


def test_all_ways_of_adding_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    like = {"w": torch.ones(3, 5), "b": torch.full((4,), 100.0), "n": torch.tensor(7)}
    models = [
        {"w": torch.from_numpy(rng.normal(size=(3, 5)).astype("f4")), "b": torch.rand(4) * 50, "n": torch.tensor(k)}
        for k in range(6)
    ]
    models[3]["w"][1, 1] = 0.8  # too much for a whole number, so this tensor goes another way than its neighbours
    results = []
    for small, compiled in ((0, False), (sums.BLOCK, False), (0, whole_sums.available())):
        monkeypatch.setattr(sums, "SMALL", small)
        monkeypatch.setattr(sums, "available", lambda found=compiled: found)
        total, parts = ExactSum(like, 100), [ExactSum(like, 100), ExactSum(like, 100)]
        for weight, model in enumerate(models):
            total.add(model, weight, "someone")
            parts[weight % 2].add(model, weight, "someone")
        parts[0].merge(parts[1].partial())
        results += [digest(total.mean64()), digest(parts[0].mean64()), digest(total.mean64())]
    assert len(set(results)) == 1


def test_a_model_that_diverged_leaves_no_trace() -> None:
    """Not even of its tensors before the one that did."""
    like: Tensors = {"a": torch.zeros(5000), "b": torch.zeros(9000)}
    good = {"a": torch.full((5000,), 0.25), "b": torch.linspace(-0.4, 0.4, 9000)}
    bad = {"a": torch.full((5000,), 0.125), "b": torch.full((9000,), 0.3)}
    bad["b"][8999] = math.nan
    total = ExactSum(like, 100)
    total.add(good, 3, "good")
    with pytest.raises(Diverged):
        total.add(bad, 5, "bad")
    assert total.weight == 3
    assert digest(total.mean()) == digest(good)


def test_many_addends_are_added_some_at_a_time_to_the_same_bits() -> None:
    """Three times as many as wait at once, and some more; in another order and as partial sums."""
    rng = np.random.default_rng(5)
    addends = [(rng.normal(size=WIDTH).astype(np.float32).tolist(), int(rng.integers(1, 30))) for _ in range(3 * WAITING + 7)]
    whole, backwards = summed(addends), summed(addends[::-1])
    parts = summed(addends[:40])
    parts.merge(summed(addends[40:]).partial())
    exact = [float(exact_mean(addends, at)) for at in range(WIDTH)]
    assert np.allclose(whole.mean64()["w"].numpy(), exact, rtol=1e-15, atol=1e-15)
    assert bits(whole) == bits(backwards) == bits(parts)


def memory(total: ExactSum) -> int:
    return total._grids["odd size"].accumulators().data_ptr() if total._whole is None else total._whole._sum.data_ptr()


def test_the_memory_of_a_sum_that_is_gone_is_taken_again_and_starts_at_zero() -> None:
    like: Tensors = {"odd size": torch.zeros(1237)}
    first = ExactSum(like, 10)
    first.add({"odd size": torch.full((1237,), 3.0)}, 1, "a")
    first.mean()
    place = memory(first)
    beside = ExactSum(like, 10)
    assert memory(beside) != place, "two sums at a time share nothing"
    del first
    second = ExactSum(like, 10)
    assert memory(second) == place
    second.add({"odd size": torch.full((1237,), 1.0)}, 1, "a")
    assert bool((second.mean()["odd size"] == 1.0).all())
