"""`standardise=` and `transform=` wherever data comes in: Python, source texts, config files, the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.data.augmentation import Compose, EachSample, RandomCrop, RandomFlip, named_transform
from fedgsp.data.federated import FederatedData
from fedgsp.run.config import parse_toml
from fedgsp.run.trust import code_named

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(60, 3)) * [1, 10, 100] + [5, 0, -40]).astype(np.float32)
Y, OWNER = np.arange(60) % 2, np.arange(60) // 20


class Rows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(X[i]), int(Y[i])


def frame() -> pandas.DataFrame:
    return pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": Y, "client": OWNER})


def partitions(number: int) -> list[dict[str, Any]]:
    return [{"x": X[i].tolist(), "label": int(Y[i])} for i in np.flatnonzero(number == OWNER)]


DOORS: dict[str, Callable[..., FederatedData]] = {
    "from_arrays": lambda **how: fedgsp.from_arrays(X, Y, OWNER, **how),
    "from_dataset": lambda **how: fedgsp.from_dataset(Rows(), OWNER, **how),
    "from_frame": lambda **how: fedgsp.from_frame(frame(), **how),
    "from_frame, dealt": lambda **how: fedgsp.from_frame(frame(), features=list("abc"), how=fedgsp.IID(3), **how),
    "partition": lambda **how: fedgsp.partition((X, Y), fedgsp.IID(3), **how),
    "from_flower": lambda **how: fedgsp.from_flower(partitions, partitions=3, **how),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door(door: str) -> None:
    data = DOORS[door](standardise=True)
    train = data.features[data.train.rows].astype(np.float64)
    np.testing.assert_allclose((train.mean(axis=0), train.std(axis=0)), (np.zeros(3), np.ones(3)), atol=1e-4)
    each = DOORS[door](standardise="client")
    for rows in each.train:
        np.testing.assert_allclose(each.features[rows].mean(axis=0), 0, atol=1e-4)
    assert "features were standardised" in each.notes[-1]
    moved = DOORS[door](transform=torch.neg)
    assert isinstance(moved.augmentation, EachSample)
    assert DOORS[door]().augmentation is None
    with pytest.raises(InputError, match="`standardise=` is True, False or 'client', not 'yes'"):
        DOORS[door](standardise="yes")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    frame().to_csv(tmp_path / "all.csv", index=False)
    return str(tmp_path / "all.csv")


def test_a_source_says_it_or_load_does(source: str) -> None:
    said, asked = fedgsp.load(f"{source}:standardise=true"), fedgsp.load(source, standardise=True)
    assert said.fingerprint == asked.fingerprint != fedgsp.load(source).fingerprint
    assert said.source == asked.source == f"csv:{source}:standardise=true"
    assert fedgsp.load(said.source).fingerprint == said.fingerprint
    assert fedgsp.load(f"{source}:standardise=true", standardise=False).fingerprint == fedgsp.load(source).fingerprint
    fewer = fedgsp.load(source, clients=2, standardise=True)
    np.testing.assert_allclose(fewer.features[fewer.train.rows].mean(axis=0), 0, atol=1e-4)  # by the clients that are there
    with pytest.raises(InputError, match="standardise is true, false or client, not 'maybe'"):
        fedgsp.load(f"{source}:standardise=maybe")
    with pytest.raises(InputError, match="did you mean 'standardise'"):
        fedgsp.load(f"{source}:standardize=true")


def test_transforms_by_name() -> None:
    assert named_transform("crop2+flip") == Compose((RandomCrop(2), RandomFlip()))
    assert named_transform("crop") == RandomCrop()
    assert named_transform("torch:neg") is torch.neg
    for text, words in (
        ("crpo", "unknown transform 'crpo': did you mean 'crop'"), ("flip2", "'flip' takes no number"),
        ("torch:nothing", "cannot import the transform 'torch:nothing'"), ("torch:pi", "cannot be called"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            named_transform(text)
    one, two = (fedgsp.load(f"glyphs:clients=2,transform=crop{k}") for k in (1, 2))
    assert one.fingerprint != two.fingerprint != fedgsp.load("glyphs:clients=2").fingerprint
    assert one.source is not None
    assert one.source.endswith("transform=crop1")


def test_a_config_file_and_the_command_line(source: str, tmp_path: Path) -> None:
    from fedgsp.cli.options import build_config

    text = f'[data]\nsource = "{source}"\nstandardise = true\ntransform = "torch:neg"\n'
    read = parse_toml(text, "mine.toml")
    assert read.data.source == f"csv:{source}:standardise=true,transform=torch:neg"
    options = {"data": source, "standardise": "true", "transform": "torch:neg"}
    assert build_config(None, options).data == read.data
    assert code_named(read.as_dict()) == code_named({"data": {"transform": "torch:neg"}}) == ["torch:neg"]
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError, match=r"names code that is not part of fedgsp \(torch:neg\)"):
        fedgsp.tune(tmp_path / "mine.toml")
    with pytest.raises(InputError, match=r"\[data\]: standardise is true, false or 'client', and transform a text"):
        parse_toml("[data]\nstandardise = 3\n", "mine.toml")


def test_the_same_bits_for_any_number_of_workers_and_after_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    pixels, file = RNG.integers(0, 256, (24, 8, 8)).astype(np.uint8), tmp_path / "pixels.npz"
    np.savez(file, features=pixels, labels=np.arange(24) % 2, client_index=np.arange(24) // 8)
    how: dict[str, Any] = {"method": "fedavg", "data": f"npz:{file}:transform=crop2+flip", "rounds": 2}
    one = fedgsp.train(**how, workers=0)
    assert fedgsp.train(**how, workers=2).state.digest() == one.state.digest()
    assert fedgsp.train(**{**how, "data": str(file)}, workers=0).state.digest() != one.state.digest()
    fedgsp.train(**{**how, "rounds": 1}, workers=0, out=tmp_path / "r")
    assert json.loads((tmp_path / "r" / "result.json").read_text())["data"]["source"] == how["data"]
    assert fedgsp.resume(tmp_path / "r", rounds=2, workers=0).state.digest() == one.state.digest()


def test_samples_that_are_read_anew_are_standardised_as_stored_ones() -> None:
    for how in (True, "client"):
        anew, once = (fedgsp.from_dataset(Rows(), OWNER, anew=anew, standardise=how) for anew in (True, False))
        assert anew.augmentation is not None
        rows = np.concatenate([anew.train[2], anew.train[0]])
        stored = torch.from_numpy(np.asarray(once.features[rows]))
        assert torch.allclose(anew.augmentation(torch.zeros_like(stored), rows), stored, atol=1e-4)
