"""Whole runs of models that hold more than weights: buffers of any size, masks of -inf, counters, frozen weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedgsp
from fedgsp.core.errors import Diverged
from fedgsp.data.arrays import from_arrays
from tests.support import tiny

METHODS = ["fedavg", "fedgsp", "fedadam", "fednova", "fedexp", "ida", "scaffold", "feddyn", "fedseq-inter", "cfl"]


def federation(scale: float = 1.0, clients: int = 6) -> fedgsp.FederatedData:
    """Samples of six features whose sign says the class, times `scale`; 8 to train on and 2 to test with a client."""
    rng = np.random.default_rng(3)
    owner = np.repeat(np.arange(clients), 10)
    x = rng.normal(size=(len(owner), 6))
    return from_arrays((x * scale).astype(np.float32), (x[:, 0] > 0).astype(np.int64), owner, classes=2, test_fraction=0.2)


class Normed(nn.Module):
    """BatchNorm on the samples as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.out = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.out(self.norm(x))
        return y


class Masked(nn.Module):
    """Attention over the features, each to itself and those before it, by a mask of -inf; and a frozen table with a NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Linear(1, 4), nn.Linear(4, 2)
        self.register_buffer("mask", torch.full((6, 6), -math.inf).triu(1))
        self.table = nn.Parameter(torch.tensor([math.nan, -math.inf, 1e-30]), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.embed(x.unsqueeze(-1))
        mixed = (z @ z.transpose(1, 2) + self.mask).softmax(-1) @ z
        y: torch.Tensor = self.out(mixed.mean(1))
        return y


def trained(method: str, make: type[nn.Module], scale: float, workers: int = 0, **options: Any) -> fedgsp.RunResult:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return make()

    return fedgsp.train(method, federation(scale), model, rounds=2, workers=workers, **options)


@pytest.mark.parametrize("method", METHODS)
def test_batch_norm_on_raw_features_of_any_scale(method: str) -> None:
    """A running variance goes from 1 to about 10^12 / 2 in a round: 0.1.0 said "far too large ... a smaller learning rate"."""
    result = trained(method, Normed, 1e6)
    variance = next(iter(result.state.models.values()))["norm.running_var"]
    assert result.rounds == 2
    assert bool((variance > 1e11).all())
    assert bool((variance < 1e13).all())


@pytest.mark.parametrize(("method", "make", "scale"), [("fedavg", Normed, 1e6), ("fedgsp", Normed, 1e6), ("ida", Masked, 1.0)])
def test_any_number_of_workers_gives_the_same_bits(method: str, make: type[nn.Module], scale: float) -> None:
    alone, several = (trained(method, make, scale, workers) for workers in (0, 2))
    assert alone.state.digest() == several.state.digest()
    assert alone.history[-1]["loss"] == several.history[-1]["loss"]


@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_finite_and_not_trained_passes_through_to_the_bit(method: str) -> None:
    result = trained(method, Masked, 1.0)
    for model in result.state.models.values():
        assert torch.equal(model["mask"], torch.full((6, 6), -math.inf).triu(1))
        assert "table" not in model  # what is frozen is neither sent nor summed
    if result.yields == "one":
        table = result.model().get_parameter("table").detach()
        assert table.numpy().tobytes() == torch.tensor([math.nan, -math.inf, 1e-30]).numpy().tobytes()
    assert math.isfinite(result.history[-1]["loss"])


@pytest.mark.parametrize(("make", "scale", "name"), [(Normed, 1e6, "norm.running_var"), (Masked, 1.0, "mask")])
def test_a_run_goes_on_from_its_checkpoint_to_the_same_bits(
    make: type[nn.Module], scale: float, name: str, tmp_path: Path
) -> None:  # fmt: skip
    """A checkpoint does not say what is trained: the run does, anew."""
    run, data = tmp_path / "run", federation(scale)
    straight = fedgsp.train("fedavg", data, make, rounds=3, workers=0)
    fedgsp.train("fedavg", data, make, rounds=1, workers=0, out=run)
    longer = fedgsp.resume(run, rounds=3, data=data, model=make)
    assert longer.state.digest() == straight.state.digest()
    assert torch.equal(load_file(run / "model.safetensors")[name], straight.state.model[name])
    assert fedgsp.replay(run, data=data, model=make).differs is None


def test_the_running_statistics_are_the_clients_mean() -> None:
    """One batch of 8 a client and round 1: running_mean = 0.1 * the client's mean, the model's is their mean."""
    method = fedgsp.named("fedavg")
    kappa_one = fedgsp.Method(
        fedgsp.plan.Grouped(fedgsp.plan.Singletons(), fedgsp.plan.Random(), kappa=1.0),
        fedgsp.client.SGD(batch_size=8),
        method.server,
    )
    data = federation(1e6)
    model = fedgsp.train(kappa_one, data, Normed, rounds=1, workers=0).state.model
    rows = [np.asarray(data.features)[data.train[k]].astype(np.float64) for k in range(len(data))]
    expected = np.mean([0.1 * x.mean(0) for x in rows], axis=0)
    np.testing.assert_allclose(model["norm.running_mean"].numpy(), expected, rtol=1e-5)
    variance = np.mean([0.9 + 0.1 * x.var(0, ddof=1) for x in rows], axis=0)
    np.testing.assert_allclose(model["norm.running_var"].numpy(), variance, rtol=1e-5)
    assert model["norm.num_batches_tracked"].item() == 1


class Leaping(nn.Module):
    """A weight whose gradient is that of the samples: with large ones it leaps away."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.out(x)
        return y


def test_a_trained_tensor_that_diverged_still_ends_with_the_learning_rate() -> None:
    with pytest.raises(Diverged, match=r"tensor 'out\.weight' are far too large.*try a smaller learning rate"):
        trained("fedavg", Leaping, 1e9)


class Spoilt(nn.Module):
    """Its buffer becomes infinite while it trains, and counts only where it is evaluated."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 2)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.out(x)
        if self.training:
            self.scale.fill_(math.inf)
            return y
        return y * self.scale * 0


def test_a_buffer_that_spoils_the_figures_is_named_and_the_learning_rate_is_not_blamed() -> None:
    with pytest.raises(Diverged, match=r"test loss nan; all its trained weights are finite, but 'scale'") as failed:
        trained("fedavg", Spoilt, 1.0)
    assert "learning rate" not in str(failed.value)


class Tied(nn.Module):
    """One weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.last(self.second(self.first(x).tanh())))


@pytest.mark.parametrize("method", ["fedavgm", "fedadam", "scaffold", "feddyn", "fednova", "fedexp", "ida"])
def test_a_weight_with_two_names_stays_one_whatever_the_server_does(method: str) -> None:
    """On 0.1.0 a server's own step was made under one name and undone when the other was loaded."""
    run = fedgsp.train(method, tiny.federation(), Tied, rounds=3, workers=0, lr=0.05)
    for model in run.state.models.values():
        assert torch.equal(model["first.weight"], model["second.weight"])
    two = [fedgsp.train(name, tiny.federation(), Tied, rounds=2, workers=0, lr=0.05) for name in (method, "fedavg")]
    if method == "fedavgm":
        assert not torch.equal(*(r.state.model["second.weight"] for r in two))
