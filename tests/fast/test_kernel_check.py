"""The check before a run finds out a kernel that makes other steps, however small the difference or the steps are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedgsp.client import SGD, Prox, Scaffold
from fedgsp.client.context import GradientTerm
from fedgsp.client.kernel_check import MOST_SHAKEN, ROUNDING, KernelCheck
from fedgsp.client.train import PlainSteps
from fedgsp.core.native import Library
from fedgsp.core.seeds import Seeds
from fedgsp.core.tensors import clone
from fedgsp.data import FederatedData
from fedgsp.data.arrays import from_arrays
from fedgsp.fast.build import library
from fedgsp.fast.compiled import Step, StoredSamples
from fedgsp.fast.fused import FusedNet
from fedgsp.models import classification, small_cnn
from fedgsp.models.state import model_tensors
from tests.support.hops import choose

pytestmark = pytest.mark.skipif(not isinstance(library(), Library), reason="there is no C compiler here")


def images(sizes: tuple[int, ...] = (11, 4, 7)) -> FederatedData:
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.random((len(owner), 8, 8), dtype=np.float32)
    names = [f"c{k}" for k in range(len(sizes))]
    return from_arrays(x, rng.integers(0, 3, len(x)), owner, names, classes=3, test_fraction=0.0)


def net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return small_cnn((8, 8), 3)


def test_an_honest_kernel_is_taken() -> None:
    kernel = choose("on", net(), images())
    assert kernel.compiled
    assert "2 hops" in kernel.checked


@pytest.mark.parametrize("lr", [1e-12, 1e-6, 0.01, 1.0])
@pytest.mark.parametrize("wrong", [1.001, 2.0, 0.0])
def test_one_whose_steps_are_a_thousandth_too_long_is_not(lr: float, wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any learning rate, also where weights of float32 would hardly show it."""
    begin = FusedNet.begin
    monkeypatch.setattr(FusedNet, "begin", lambda net, step: begin(net, replace(step, lr=wrong * step.lr)))
    kernel = choose("auto", net(), images(), SGD(lr=lr))
    assert kernel.name == "plain"
    assert "its steps are not those of plain PyTorch" in kernel.why


@pytest.mark.parametrize("lr", [1e-12, 1e-8])
def test_steps_that_drown_in_the_rounding_of_weights_are_made_larger(lr: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bias that begins at zero nothing would show at such rates, right or wrong."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3, bias=False))
    nn.init.constant_(model[1].weight, 0.5)  # type: ignore[arg-type]
    assert choose("auto", model, images(), SGD(lr=lr)).compiled
    begin = FusedNet.begin
    monkeypatch.setattr(FusedNet, "begin", lambda net, step: begin(net, replace(step, lr=2 * step.lr)))
    assert choose("auto", model, images(), SGD(lr=lr)).name == "plain"


def test_what_clients_keep_is_part_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """c_k is zero at a client's first visit: without a second one a lost correction would not show."""
    shared = {f"control.{name}": torch.zeros_like(p) for name, p in net().named_parameters()}
    assert choose("auto", net(), images(), Scaffold(), shared=shared).compiled
    monkeypatch.setattr(GradientTerm, "step", lambda pull, lr, decay: Step(lr, decay))
    assert choose("auto", net(), images(), Scaffold(), shared=shared).name == "plain"


def test_so_is_a_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("auto", net(), images(), Prox(mu=1.0)).compiled
    monkeypatch.setattr(GradientTerm, "step", lambda pull, lr, decay: Step(lr, decay))
    assert choose("auto", net(), images(), Prox(mu=1.0)).name == "plain"


def test_samples_that_are_read_wrongly_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    read = StoredSamples.read
    monkeypatch.setattr(StoredSamples, "read", lambda kept, rows: read(kept, rows) * 1.0001)
    assert "does not read the samples" in choose("auto", net(), images()).why


def test_so_is_an_evaluation_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    call = FusedNet.__call__
    monkeypatch.setattr(FusedNet, "__call__", lambda net, x: call(net, x) * 1.001)
    assert "does not give the model's outputs" in choose("auto", net(), images()).why


def test_a_client_with_a_full_and_a_partial_batch_and_one_with_a_part_only() -> None:
    check = KernelCheck.of(net(), SGD(), classification(), images(), Seeds(0), {}, {})
    assert check.data.train.sizes.tolist() == [7, 0, 2]
    assert KernelCheck.of(net(), SGD(), classification(), images((1,)), Seeds(0), {}, {}).data.train.sizes.tolist() == [1]


def test_nothing_of_it_is_left_behind() -> None:
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    model = net()
    start = clone(model_tensors(model))
    check = KernelCheck.of(model, SGD(), classification(), images(), Seeds(0), start, {})
    kernel = choose("auto", model, images())
    assert check.check(kernel).why_not is None
    assert all(torch.equal(t, start[n]) for n, t in model_tensors(model).items())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]  # noqa: NPY002


def test_a_unit_at_the_kink_of_its_relu_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where plain steps themselves amplify a change in the last bit, a kernel may be as far away as they are."""
    check = KernelCheck.of(net(), SGD(), classification(), images(), Seeds(0), clone(model_tensors(net())), {})
    kernel = choose("auto", net(), images())
    begin = FusedNet.begin
    monkeypatch.setattr(FusedNet, "begin", lambda net, step: begin(net, replace(step, lr=(1 + 30 * ROUNDING) * step.lr)))
    assert check.check(kernel).why_not is not None
    shaken: Any = KernelCheck._shaken

    def nervous(self: KernelCheck, plain: Any, before: Any, *rest: Any) -> Any:
        ended = shaken(self, plain, before, *rest)
        return {name: before[name] + (tensor - before[name]) * (1 + 6 * ROUNDING) for name, tensor in ended.items()}

    monkeypatch.setattr(KernelCheck, "_shaken", nervous)
    assert check.check(kernel).why_not is None


def test_a_kernel_on_the_other_side_of_a_kink_is_right_and_one_beside_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far from the plain steps, but where plain steps end from weights that differ by rounding: then, and only then."""
    check = KernelCheck.of(net(), SGD(), classification(), images(), Seeds(0), clone(model_tensors(net())), {})
    kernel, begin, far = choose("auto", net(), images()), FusedNet.begin, 1.2
    monkeypatch.setattr(FusedNet, "begin", lambda net, step: begin(net, replace(step, lr=far * step.lr)))
    assert check.check(kernel).why_not is not None
    shaken: Any = KernelCheck._shaken

    def across(share: float) -> None:
        def ends(self: KernelCheck, plain: Any, before: Any, client: int, number: int, states: Any, seed: int) -> Any:
            rule = replace(plain, rule=replace(plain.rule, lr=share * plain.rule.lr)) if seed == MOST_SHAKEN - 1 else plain
            return shaken(self, rule, before, client, number, states, seed)

        monkeypatch.setattr(KernelCheck, "_shaken", ends)

    across(far)
    assert check.check(kernel).why_not is None
    across(1.1)
    assert check.check(kernel).why_not is not None


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_plain_steps_are_those_of_torch_to_the_bit(decay: float) -> None:
    ours, theirs = net(), net()
    for model in (ours, theirs):
        next(model.parameters()).requires_grad_(False)
    optimizers: list[Any] = [
        PlainSteps(ours, 0.03, decay),
        torch.optim.SGD(theirs.parameters(), 0.03, weight_decay=decay, foreach=True),
    ]
    x, y = torch.rand(10, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3
    for _ in range(5):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
