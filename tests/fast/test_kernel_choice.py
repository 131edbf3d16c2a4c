"""Which kernel a run gets, that it is recorded, and that a run goes on with its own only."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.client import SGD, UGA, Prox
from fedgsp.client.kernel_choice import obstacles
from fedgsp.core import native
from fedgsp.core.errors import InputError
from fedgsp.core.native import Library
from fedgsp.core.tensors import clone
from fedgsp.data.arrays import from_arrays
from fedgsp.fast import Kernel, Mode, Obstacles, lazy_linears
from fedgsp.fast.build import library
from fedgsp.fast.layers import Unknown
from fedgsp.fast.lazy import large_linears
from fedgsp.fast.program import program_of
from fedgsp.models import classification, regression, small_cnn
from fedgsp.models.state import model_tensors
from tests.support.hops import choose
from tests.support.tiny import bits, chains, federation, linear

EXAMPLE = torch.rand(2, 28, 28, generator=torch.Generator().manual_seed(0))
IMAGES = from_arrays(
    np.random.default_rng(0).random((24, 28, 28), dtype=np.float32), np.arange(24) % 5, np.arange(24) % 2, [*"ab"], classes=5
)
needs_compiler = pytest.mark.skipif(not isinstance(library(), Library), reason="there is no C compiler here")


def chosen(model: nn.Module, rule: SGD | None = None, mode: Mode = "auto", **options: Any) -> Kernel:
    return choose(mode, model, IMAGES, rule, **options)


class Large(nn.Module):
    """A large linear layer behind something that the kernels do not know."""

    def __init__(self, twice: bool = False) -> None:
        super().__init__()
        self.norm, self.wide, self.end = nn.LayerNorm(784), nn.Linear(784, 784), nn.Linear(784, 5)
        self.twice = twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.wide(self.norm(x.flatten(1))).tanh()
        return torch.as_tensor(self.end(self.wide(x) if self.twice else x))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("CC", "")
    library.cache_clear()
    yield
    library.cache_clear()


@needs_compiler
def test_auto_takes_the_compiled_kernels_for_the_models_that_come_with_the_package() -> None:
    assert chosen(small_cnn(classes=5)).name.startswith("c-")
    assert chosen(small_cnn(classes=5), mode="off").name == "plain"


@pytest.mark.parametrize(
    ("rule", "reason"), [(SGD(momentum=0.9), "momentum"), (UGA(), "UGA has a step of its own")], ids=["momentum", "uga"]
)
def test_rules_with_other_steps_fall_back_by_themselves(rule: SGD, reason: str) -> None:
    kernel = chosen(small_cnn(classes=5), rule)
    assert kernel.name == "plain"
    assert reason in kernel.why
    with pytest.raises(InputError, match=f"`fast='on'`.*{reason}"):
        chosen(small_cnn(classes=5), rule, mode="on")


def test_other_losses_and_devices_fall_back() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 1))
    assert "another loss" in chosen(model, task=regression()).why
    assert "on cuda" in chosen(model, device="cuda").why


def test_without_a_compiler_small_models_are_plain_and_large_linear_layers_are_put_off(no_compiler: Any) -> None:
    assert library() == "there is no C compiler (cc, gcc or clang)"
    plain = chosen(small_cnn(classes=5))
    assert plain.name == "plain"
    kernel = chosen(Large())
    assert (kernel.name, kernel.layers) == ("lazy", ("wide",))
    assert "compiler" not in kernel.said()  # with one it would be the same: the kernels do not know its layers
    for one in (plain, replace(kernel, why=f"put off, since {library()}")):  # a run's first line says so, and what to do
        assert one.said().count("there is no C compiler (cc, gcc or clang)") == 1
        assert "`apt-get install gcc`" in one.said()
    assert chosen(Large(), Prox()).name == "plain"  # every step changes every weight: there is nothing to put off


def test_a_compiler_that_fails_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken-cc"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit 0\necho "no such instruction" >&2\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    library.cache_clear()
    try:
        assert "no such instruction" in str(library())
        assert not list((tmp_path / "cache" / "kernels").iterdir())
    finally:
        library.cache_clear()


@needs_compiler
def test_the_kernels_are_built_once_and_in_private_where_the_cache_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[Path] = []
    real = native._build

    def counted(*given: Any) -> None:
        calls.append(given[-1])
        real(*given)

    monkeypatch.setattr(native, "_build", counted)
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        library.cache_clear()
        assert isinstance(library(), Library)
    assert len(calls) == 1
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "file"))
    library.cache_clear()
    assert isinstance(library(), Library)
    assert len(calls) == 2
    assert tmp_path not in calls[1].parents
    library.cache_clear()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 5)), "BatchNorm1d"),
        (nn.Sequential(nn.Flatten(), nn.Linear(784, 5), nn.ReLU()), "last layer is not linear"),
        (nn.Sequential(nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 2, 3, stride=2)), "Unflatten"),
        (nn.Sequential(nn.Flatten(), nn.Linear(784, 5).requires_grad_(False)), "frozen"),
    ],
    ids=["batch norm", "relu last", "reshape", "frozen"],
)
def test_models_that_are_no_list_of_known_layers_say_why(model: nn.Module, reason: str) -> None:
    with pytest.raises(Unknown, match=reason):
        program_of(model, EXAMPLE)


def test_a_preparation_that_looks_at_the_whole_batch_is_refused() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.classifier = nn.Flatten(), nn.Linear(784, 5)

        def prepare(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.mean(dim=0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.classifier(self.features(self.prepare(x))))

    with pytest.raises(Unknown, match="depends on the rest of the batch"):
        program_of(Centred(), EXAMPLE)


class TestLazy:
    """Steps that are put off, in torch."""

    def test_the_weights_are_those_of_plain_steps(self) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = Large()
        x, y = torch.rand(60, 28, 28, generator=torch.Generator().manual_seed(2)), torch.arange(60) % 5
        plain, lazy = copy.deepcopy(model), copy.deepcopy(model)
        _epoch(plain, x, y)
        with lazy_linears(lazy, large_linears(lazy, x[:2]), 0.05):
            _epoch(lazy, x, y)
        before, a, b = (clone(model_tensors(m)) for m in (model, plain, lazy))
        change = max(float((a[n] - before[n]).abs().max()) for n in a)
        assert max(float((a[n] - b[n]).abs().max()) for n in a) <= 1e-5 * change
        assert all(p.requires_grad for p in lazy.parameters())

    def test_an_evaluation_in_between_sees_all_steps(self) -> None:
        model = Large()
        x, y = torch.rand(10, 28, 28, generator=torch.Generator().manual_seed(3)), torch.arange(10) % 5
        with lazy_linears(model, ("wide",), 0.05):
            _epoch(model, x, y)
            with torch.no_grad():
                inside = model(x)
        with torch.no_grad():
            assert torch.equal(inside, model(x))

    def test_layers_that_run_twice_share_a_weight_or_are_small_are_left_alone(self) -> None:
        assert large_linears(Large(), EXAMPLE) == ("wide",)
        assert large_linears(Large(twice=True), EXAMPLE) == ()
        shared = Large()
        shared.other = nn.Linear(784, 784)
        shared.other.weight = shared.wide.weight
        assert large_linears(shared, EXAMPLE) == ()

    def test_a_whole_run_by_it(self, no_compiler: Any) -> None:
        rng = np.random.default_rng(0)
        data = from_arrays(
            rng.normal(size=(40, 28, 28)).astype(np.float32), rng.integers(0, 5, 40), np.arange(40) % 4, [*"abcd"], classes=5
        )
        runs = [fedgsp.train("fedavg", data, lambda: Large(), rounds=2, workers=0, fast=fast) for fast in ("on", "off")]
        names = [run.run.worker_setup.kernel.name for run in runs]
        assert names == ["lazy", "plain"]
        assert runs[0].history[-1]["loss"] == pytest.approx(runs[1].history[-1]["loss"], rel=1e-4)


def _epoch(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for at in range(0, len(x), 5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[at : at + 5]), y[at : at + 5]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@needs_compiler
class TestRuns:
    """The kernel in whole runs."""

    def test_any_number_of_workers_gives_the_same_bits(self) -> None:
        runs = [fedgsp.train(chains(), federation(), linear, rounds=3, workers=workers, fast="on") for workers in (0, 1, 2)]
        assert len({run.state.digest() for run in runs}) == 1

    def test_it_is_recorded_and_a_run_goes_on_with_no_other(self, tmp_path: Path) -> None:
        fedgsp.train(chains(), federation(), linear, rounds=2, workers=0, out=tmp_path / "run")
        config = (tmp_path / "run" / "config.toml").read_text()
        assert 'fast = "auto"' in config
        (tmp_path / "run" / "config.toml").write_text(config.replace('fast = "auto"', 'fast = "off"'))
        resumed = fedgsp.resume(tmp_path / "run", rounds=3, data=federation(), model=linear)
        assert resumed.run.worker_setup.kernel.compiled  # as recorded, whatever the configuration says now

    def test_resumed_to_the_same_bits(self, tmp_path: Path) -> None:
        whole = fedgsp.train(chains(), federation(), linear, rounds=4, workers=0)
        fedgsp.train(chains(), federation(), linear, rounds=2, workers=0, out=tmp_path / "run")
        resumed = fedgsp.resume(tmp_path / "run", rounds=4, data=federation(), model=linear)
        assert bits(resumed.state.model) == bits(whole.state.model)

    def test_the_figures_are_those_of_the_plain_path_within_rounding(self) -> None:
        runs = [fedgsp.train(chains(), federation(), linear, rounds=5, workers=0, fast=fast) for fast in ("on", "off")]
        for ours, plain in zip(runs[0].history, runs[1].history, strict=True):
            assert ours["loss"] == pytest.approx(plain["loss"], rel=1e-5)
            assert ours["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-5)
            assert json.dumps(ours["bytes"]) == json.dumps(plain["bytes"])


def test_no_obstacle_means_none() -> None:
    assert obstacles(SGD(), classification()) == Obstacles()
