"""Samples that are made anew: other ones in every epoch, the same for every number of workers, never in evaluation."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedgsp
from fedgsp.client import SGD
from fedgsp.client.train import Trainer
from fedgsp.core.chain import Hop
from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Seeds
from fedgsp.data.augmentation import Compose, EachSample, RandomCrop, RandomFlip
from fedgsp.data.federated import FederatedData
from fedgsp.models import classification

X, Y, OWNER = np.ones((24, 2), dtype=np.float32), np.arange(24) % 2, np.arange(24) // 12


class Seen(nn.Module):
    """Remembers the batches it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.shown = nn.Linear(2, 2), list[torch.Tensor]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shown.append(x.clone())
        outputs: torch.Tensor = self.out(x)
        return outputs


def shifted(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(()) + float(np.random.rand()) + random.random()  # noqa: NPY002 - as users do


def shown(data: FederatedData, rule: SGD, round_: int = 1) -> torch.Tensor:
    model = Seen()
    Trainer(model, rule, classification(), data, torch.device("cpu"), Seeds(3)).train(round_, Hop(0, 0, 0), {}, {})
    return torch.cat(model.shown)


def data() -> FederatedData:
    return fedgsp.from_arrays(X, Y, OWNER, test_fraction=0.25)


def test_another_variant_in_every_epoch_and_the_same_again_for_the_same_seed() -> None:
    moved = data().with_transform(shifted)
    torch.manual_seed(1)
    one = shown(moved, SGD(epochs=2))
    torch.manual_seed(2)
    np.random.seed(5)  # noqa: NPY002 - what a user's script may have done
    assert torch.equal(shown(moved, SGD(epochs=2)), one)
    assert len(torch.unique(one[:, 0])) == 18  # nine samples, twice
    assert not torch.equal(shown(moved, SGD(epochs=2), round_=2), one)
    assert (one > 1).all()


def test_samples_as_they_are_stored_without_a_transform() -> None:
    assert (shown(data(), SGD(epochs=2)) == 1).all()


def test_evaluation_and_grouping_see_what_is_stored() -> None:
    moved = data().with_transform(shifted)
    assert np.array_equal(moved.features, X)
    assert moved.fingerprint != data().fingerprint
    assert np.array_equal(moved.profiles().counts, data().profiles().counts)


def test_a_transform_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(1,\), not \(2,\)"):
        EachSample(lambda x: x[:1])(torch.ones(3, 2), np.arange(3))


class Noisy(torch.utils.data.Dataset[Any]):
    reads = 0

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        Noisy.reads += 1
        return torch.tensor([float(i), float(torch.rand(()))]), i % 2


def test_a_data_set_is_read_anew_where_it_is_trained_on() -> None:
    anew = fedgsp.from_dataset(Noisy(), OWNER, anew=True, test_fraction=0.25)
    assert np.array_equal(anew.features, fedgsp.from_dataset(Noisy(), OWNER, anew=True, test_fraction=0.25).features)
    seen = shown(anew, SGD(epochs=2))
    assert sorted(seen[:, 0].tolist()) == sorted(2 * anew.features[anew.train[0], 0].tolist())
    assert len(torch.unique(seen[:, 1])) == 18
    once = fedgsp.from_dataset(Noisy(), OWNER, test_fraction=0.25)
    before = Noisy.reads
    assert len(torch.unique(shown(once, SGD(epochs=2))[:, 1])) == 9
    assert Noisy.reads == before


def test_pictures_that_are_read_anew_are_scaled_like_stored_ones() -> None:
    pixels = [(np.full(2, 51, dtype=np.uint8), k % 2) for k in range(24)]

    class Pixels(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 24

        def __getitem__(self, i: int) -> Any:
            return pixels[i]

    anew = fedgsp.from_dataset(Pixels(), OWNER, anew=True)
    assert torch.allclose(shown(anew, SGD()), torch.tensor(0.2))


def test_arrays_cannot_be_read_anew() -> None:
    with pytest.raises(InputError, match="with_transform"):
        fedgsp.partition((X, Y), fedgsp.IID(2), anew=True)


def test_crops_move_each_picture_on_its_own() -> None:
    torch.manual_seed(0)
    x = torch.zeros(200, 5, 5)
    x[:, 2, 2] = 1
    moved = Compose((RandomCrop(2), RandomFlip()))(x)
    assert moved.sum(dim=(1, 2)).eq(1).all()
    assert len({tuple(one.nonzero()[0].tolist()) for one in moved}) == 25


def test_the_kernels_train_on_what_is_made_anew_too() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 8, 8)).astype(np.uint8)
    moved = fedgsp.from_arrays(pixels, Y, OWNER).with_transform(RandomCrop(1))
    fast, plain = (fedgsp.train("fedavg", moved, "small_cnn", rounds=1, workers=0, fast=mode) for mode in ("auto", "off"))
    for name, tensor in plain.state.model.items():
        assert torch.allclose(fast.state.model[name], tensor, atol=1e-5)
    stored = fedgsp.train("fedavg", replace(moved, augmentation=None), "small_cnn", rounds=1, workers=0, fast="off")
    assert stored.state.digest() != plain.state.digest()
