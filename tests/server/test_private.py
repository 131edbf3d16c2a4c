"""The server rule `private`: clipped updates and noise, worked out by hand; the same bits in any order."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedgsp.core.chain import Chain, ChainResult, HopReport, Plan
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Purpose, noise_generator
from fedgsp.core.state import ServerState, Setting
from fedgsp.core.tensors import Tensors
from fedgsp.server import Adam, Mean, Median, Momentum, Private
from fedgsp.server.private import CLIP, KEY


def result(index: int, tensors: Tensors) -> ChainResult:
    return ChainResult(index, Chain((index,)), tensors, (HopReport(index, 0, 0, 1 + index, 1, 0, 0, 0.0),))


def plan(chains: int, round_: int = 1) -> Plan:
    return Plan(round_, tuple(Chain((k,)) for k in range(chains)), 2 * chains)


def model(*values: float) -> Tensors:
    return {"w": torch.tensor(values), "seen": torch.tensor(3)}


def after(rule: Private, updates: list[Tensors], state: ServerState | None = None, seed: int = 5) -> ServerState:
    state = rule.init(model(1.0, 2.0), Setting(trained=frozenset({"w"}), seed=seed)) if state is None else state
    state = replace(state, trained=frozenset({"w"}))
    update = rule.start(state, plan(len(updates)), [1] * len(updates))
    for index, tensors in enumerate(updates):
        update.add(result(index, tensors))
    return update.finish()


def test_updates_are_clipped_and_count_the_same() -> None:
    """Lengths 5 and 0.5 at a clip of 1: (0.6, 0.8) and (0, 0.5) are left, whose mean is (0.3, 0.65)."""
    made = after(Private(Mean(), clip=1.0, noise=1e-9), [model(4.0, 6.0), model(1.0, 2.5)])
    assert made.model["w"].tolist() == pytest.approx([1.3, 2.65], abs=1e-5)
    assert made.round == 1


def test_what_is_not_trained_stays_and_what_is_not_finite_counts_nothing() -> None:
    odd = {**model(math.nan, math.inf), "seen": torch.tensor(1000)}
    made = after(Private(Mean(), clip=1.0, noise=1e-9), [odd, model(1.0, 2.5)])
    assert made.model["w"].tolist() == pytest.approx([1.0, 2.25], abs=1e-5)
    assert made.model["seen"].item() == 3


def test_noise_is_that_of_its_key_and_of_what_it_hides() -> None:
    rule, updates = Private(Mean(), clip=1.0, noise=2.0), [model(1.5, 2.0), model(1.0, 2.5)]
    made = after(rule, updates)
    assert torch.equal(made.model["w"], after(rule, updates[::-1]).model["w"])  # any order, the same bits
    assert not torch.equal(made.model["w"], after(rule, updates, seed=6).model["w"])
    moved = after(rule, [model(1.5, 2.0), model(1.0, 2.75)])
    difference = moved.model["w"] - made.model["w"]
    assert not torch.allclose(difference, torch.tensor([0.0, 0.125]), atol=1e-3)  # noise used twice would tell this


def test_the_noise_has_the_stated_deviation() -> None:
    """2,000 numbers, 4 chains that stay where they are: deviation noise * clip / 4 = 0.75 in each."""
    start = {"w": torch.zeros(2000)}
    rule = Private(Mean(), clip=1.5, noise=2.0)
    state = rule.init(start, Setting(seed=1))
    update = rule.start(state, plan(4), [1] * 4)
    for k in range(4):
        update.add(result(k, start))
    made = update.finish().model["w"]
    assert float(made.std()) == pytest.approx(0.75, rel=0.06)
    assert abs(float(made.mean())) < 0.06


def test_a_secret_key_is_drawn_once_and_stays() -> None:
    rule = Private(Mean(), secret=True)
    one, other = (rule.init(model(1.0, 2.0), Setting(seed=5)) for _ in range(2))
    assert one.extra[KEY] != other.extra[KEY]
    assert len(one.extra[KEY]) == 8
    assert after(rule, [model(1.5, 2.0)], one).extra[KEY] == one.extra[KEY]


def test_the_clip_follows_the_quantile() -> None:
    """Both updates are longer than 0.1: b is near 0, so C grows by exp(0.2 * 0.5); with C = 10 it shrinks."""
    updates = [model(4.0, 6.0), model(1.0, 2.5)]
    for clip, factor in ((0.1, math.exp(0.1)), (10.0, math.exp(-0.1))):
        rule = Private(Mean(), clip=clip, noise=1e-3, adaptive=True, count_noise=1e-3)
        assert after(rule, updates).extra[CLIP] == pytest.approx(clip * factor, rel=0.01)


def test_the_noise_is_split_between_sum_and_count_as_the_paper_has_it() -> None:
    on_sum, on_count = Private(Mean(), noise=1.0, adaptive=True).noises(100)
    assert on_count == 5.0
    assert on_sum == pytest.approx((1 - 0.01) ** -0.5)
    assert on_sum**-2 + (2 * on_count) ** -2 == pytest.approx(1.0)
    with pytest.raises(InputError, match=r"set count_noise above 1"):
        Private(Mean(), noise=2.0, adaptive=True).noises(10)


def test_with_poisson_sampling_it_is_divided_by_what_is_expected() -> None:
    """3 of 20 groups came where 0.2 * 20 = 4 are expected: the sum is divided by 4, and who is not there says nothing."""
    start = {"w": torch.zeros(2)}
    rule = Private(Mean(), clip=1.0, noise=1e-9, adaptive=True, count_noise=1e-9, clip_lr=1.0)
    state = rule.init(start, Setting(seed=1))
    update = rule.start(state, Plan(1, tuple(Chain((k,)) for k in range(3)), 20, share=0.2), [1] * 3)
    for k, values in enumerate(([0.0, 0.5], [0.5, 0.0], [3.0, 4.0])):
        update.add(result(k, {"w": torch.tensor(values)}))
    after_round = update.finish()
    assert after_round.model["w"].tolist() == pytest.approx([1.1 / 4, 1.3 / 4], abs=1e-6)
    assert after_round.extra[CLIP] == pytest.approx(math.exp(-((2 - 1.5) / 4)))  # 2 of 3 are short
    nobody = rule.start(state, Plan(1, (), 20, share=0.2), [])
    assert nobody.finish().model["w"].tolist() == pytest.approx([0.0, 0.0], abs=1e-6)


def test_rules_that_go_on_from_the_mean_do_so() -> None:
    updates = [model(4.0, 6.0), model(1.0, 2.5)]
    plain = after(Private(Mean(), clip=1.0, noise=1e-9), updates)
    slowed = after(Private(Momentum(lr=0.5, beta=0.9), clip=1.0, noise=1e-9), updates)
    half = (plain.model["w"] - torch.tensor([1.0, 2.0])) / 2
    assert torch.allclose(slowed.model["w"], torch.tensor([1.0, 2.0]) + half, atol=1e-6)
    Private(Adam())
    with pytest.raises(InputError, match="not around 'median'"):
        Private(Median())


@pytest.mark.parametrize("wrong", [{"clip": 0.0}, {"noise": -1.0}, {"delta": 1.0}, {"budget": 0.0}, {"quantile": 1.0}])
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Private(Mean(), **wrong)  # type: ignore[arg-type]


def test_generators_differ_in_every_part_of_the_key() -> None:
    digest = "ab" * 32
    keys = [((1,), digest, 1), ((2,), digest, 1), ((1,), "ac" + digest[2:], 1), ((1,), digest, 2)]
    drawn = [noise_generator(key, Purpose.SERVER_NOISE, about, at).standard_normal() for key, about, at in keys]
    assert len(np.unique(drawn)) == len(keys)
