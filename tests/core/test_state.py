from __future__ import annotations

from dataclasses import replace

import torch

from fedgsp.core.state import ServerState

W, V = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([5.0, 6.0])}
STATE = ServerState(3, {"global": W}, slots={"momentum": V}, shared={"c": torch.tensor([9.0])})


def test_the_global_model_is_the_one_called_global() -> None:
    assert ServerState(0, {"other": V, "global": W}).model is W


def test_a_digest_sees_every_kind_of_tensor() -> None:
    others = [
        replace(STATE, models={"global": V}),
        replace(STATE, models={"local": W}),
        replace(STATE, models={"global": W, "second": W}),
        replace(STATE, slots={"momentum": W}),
        replace(STATE, slots={}),
        replace(STATE, shared={"c": torch.tensor([8.0])}),
        replace(STATE, models={"global": V}, slots={"momentum": W}),
    ]
    seen = [state.digest() for state in (STATE, *others)]
    assert len(set(seen)) == len(seen)


def test_a_digest_is_of_bits_only() -> None:
    copies = {"global": {"w": W["w"].clone()}}
    assert replace(STATE, models=copies).digest() == STATE.digest()


def test_models_digest_alike_in_any_order() -> None:
    assert ServerState(0, {"a": W, "b": V}).digest() == ServerState(0, {"b": V, "a": W}).digest()
