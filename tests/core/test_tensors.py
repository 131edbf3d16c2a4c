from __future__ import annotations

import pytest
import torch

from fedgsp.core.tensors import Tensors, clone, digest, tensor_bytes, total_bytes

MODEL: Tensors = {"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "n": torch.tensor(3), "ok": torch.tensor([True, False])}


def test_bytes_on_the_wire() -> None:
    assert total_bytes(MODEL) == 4 * 4 + 8 + 2
    assert total_bytes({}) == 0


def test_a_digest_does_not_depend_on_the_order_of_the_names_or_on_strides() -> None:
    columns_first = torch.tensor([[1.0, 3.0], [2.0, 4.0]]).T
    assert not columns_first.is_contiguous()
    assert digest({"ok": MODEL["ok"], "n": MODEL["n"], "a": columns_first}) == digest(MODEL)


@pytest.mark.parametrize(
    "other",
    [
        {**MODEL, "a": torch.tensor([[1.0, 2.0], [3.0, 4.0000005]])},
        {**MODEL, "a": torch.tensor([1.0, 2.0, 3.0, 4.0])},
        {**MODEL, "n": torch.tensor(3, dtype=torch.int32)},
        {**MODEL, "ok": torch.tensor([1, 0], dtype=torch.uint8)},
        {"b": MODEL["a"], "n": MODEL["n"], "ok": MODEL["ok"]},
        {"a": MODEL["a"], "n": MODEL["n"]},
    ],
)
def test_a_digest_tells_models_apart(other: Tensors) -> None:
    assert digest(other) != digest(MODEL)


def test_a_digest_tells_minus_zero_from_zero() -> None:
    assert digest({"a": torch.tensor([0.0])}) != digest({"a": torch.tensor([-0.0])})


def test_a_clone_shares_no_memory_and_wants_no_gradient() -> None:
    original: Tensors = {"a": torch.ones(2, 3, requires_grad=True).T}
    copy = clone(original)
    assert torch.equal(copy["a"], original["a"])
    assert copy["a"].is_contiguous()
    assert not copy["a"].requires_grad
    copy["a"] += 1
    assert original["a"].sum().item() == 6


def test_raw_bytes_are_little_endian_floats() -> None:
    assert bytes(tensor_bytes(torch.tensor([1.0]))) == b"\x00\x00\x80\x3f"
    assert tensor_bytes(torch.zeros(0)).size == 0
