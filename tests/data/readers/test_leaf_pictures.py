"""LEAF's CelebA: names of pictures in JSON, the pictures where LEAF's scripts put them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fedgsp
from fedgsp import InputError, load, load_leaf


def celeba(folder: Path, people: int = 3, each: int = 4) -> Path:
    """`folder`/data as LEAF's preprocessing leaves it: train/, test/ and raw/img_align_celeba; who smiles is lighter."""
    pictures = folder / "data" / "raw" / "img_align_celeba"
    pictures.mkdir(parents=True)
    rng = np.random.default_rng(0)
    users: dict[str, dict[str, list[object]]] = {}
    for person in range(people):
        names = [f"{1 + person * each + k:06d}.png" for k in range(each)]
        smiles: list[object] = [k % 2 for k in range(each)]
        for name, smile in zip(names, smiles, strict=True):
            pixels = (rng.integers(0, 60, (21, 17, 3)) + 180 * int(str(smile))).astype(np.uint8)
            Image.fromarray(pixels).save(pictures / name)
        users[str(100 + person)] = {"x": [*names], "y": smiles}
    for part, chosen in (("train", slice(0, -1)), ("test", slice(-1, None))):
        own = {who: {key: values[chosen] for key, values in told.items()} for who, told in users.items()}
        (folder / "data" / part).mkdir()
        table = {"users": list(own), "num_samples": [len(told["y"]) for told in own.values()], "user_data": own}
        (folder / "data" / part / "all_data.json").write_text(json.dumps(table))
    return folder / "data"


def test_celeba(tmp_path: Path) -> None:
    data = load(f"leaf:{celeba(tmp_path)}:encoder=celeba")
    assert data.clients == ("100", "101", "102")
    assert (data.sample_shape, data.features.dtype.name, data.divisor) == ((3, 84, 84), "uint8", 255.0)
    assert (data.classes, data.class_names) == (2, ("not smiling", "smiling"))
    assert (data.train.sizes.tolist(), data.test.sizes.tolist()) == ([3, 3, 3], [1, 1, 1])  # LEAF's own split
    lighter = data.features.reshape(len(data.features), -1).mean(axis=1) > 128
    assert lighter.astype(int).tolist() == data.labels.tolist()


def test_size_place_and_labels_of_one(tmp_path: Path) -> None:
    folder = celeba(tmp_path)
    (folder / "raw" / "img_align_celeba").rename(tmp_path / "faces")
    with pytest.raises(InputError, match="no raw/img_align_celeba with CelebA's pictures; say where they are: images="):
        load_leaf(str(folder), encoder="celeba")
    data = load(f"leaf:{folder}:encoder=celeba,size=16x16,images={tmp_path / 'faces'}")
    assert data.sample_shape == (3, 16, 16)
    result = fedgsp.train("fedgsp", data, "small_cnn", rounds=3, lr=0.1, workers=0)
    assert result.score_name == "accuracy"
    Image.fromarray(np.full((21, 17, 3), 7, np.uint8)).save(tmp_path / "faces" / "000001.png")
    again = load_leaf(str(folder), encoder="celeba", size="16x16", images=str(tmp_path / "faces"))
    assert again.features[0].max() == 7  # a picture that changed is read anew, not taken from the cache


def test_refused(tmp_path: Path) -> None:
    folder = celeba(tmp_path)
    with pytest.raises(InputError, match="size must be WIDTHxHEIGHT"):
        load_leaf(str(folder), encoder="celeba", size="16")
    with pytest.raises(InputError, match="images= and size= are for encoder=celeba"):
        load_leaf(str(folder), size="16x16")
    with pytest.raises(InputError, match="there is no folder of pictures nowhere"):
        load_leaf(str(folder), encoder="celeba", images="nowhere")
    (folder / "raw" / "img_align_celeba" / "000002.png").unlink()
    with pytest.raises(InputError, match=r"client '100'.*cannot read .*000002\.png: No such file"):
        load_leaf(str(folder), encoder="celeba")
    shard = folder / "train" / "all_data.json"
    shard.write_text(shard.read_text().replace("000002.png", "../../secret.png"))
    with pytest.raises(InputError, match="is not the name of a picture"):
        load_leaf(str(folder), encoder="celeba")
