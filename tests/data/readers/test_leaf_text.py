"""LEAF's texts and its synthetic data: characters by LEAF's numbers, words by their checksums, plain numbers as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp import InputError, load, load_leaf
from fedgsp.data.readers.leaf_text import CHARACTERS, ENCODERS


def written(folder: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> str:
    folder.mkdir()
    table = {
        "users": list(users), "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }  # fmt: skip
    (folder / "all_data.json").write_text(json.dumps(table))
    return str(folder)


def test_shakespeare(tmp_path: Path) -> None:
    assert (len(CHARACTERS), len(set(CHARACTERS))) == (80, 80)
    path = written(
        tmp_path / "plays", {"HAMLET": (["To be, or", "not~to be"], [" ", "!"]), "LEAR": (["Blow wind"] * 2, ["s", "."])}
    )
    data = load(f"leaf:{path}:encoder=shakespeare,test=0.5")
    assert (data.classes, data.count_tokens(), data.sample_shape, data.padding) == (80, 80, (9,), None)
    mine = load_leaf(path, encoder="shakespeare", test=0)
    assert "".join(CHARACTERS[c] for c in mine.features[0]) == "To be, or"
    assert "".join(CHARACTERS[c] for c in mine.features[1]) == "not to be"  # LEAF has no ~
    assert [CHARACTERS[c] for c in mine.labels] == [" ", "!", "s", "."]


def test_sent140(tmp_path: Path) -> None:
    def tweet(text: str) -> list[str]:
        return ["1", "Mon", "NO_QUERY", "ann", text, "training"]

    path = written(
        tmp_path / "tweets", {"ann": ([tweet("Good day!"), tweet("bad Day")], [4, 0]), "bob": ([tweet("x " * 40)], ["1"])}
    )
    data = load_leaf(path, encoder="sent140", test=0)
    assert (data.classes, data.count_tokens(), data.sample_shape, data.padding) == (2, 4096, (25,), 0)
    assert data.labels.tolist() == [1, 0, 1]
    assert data.features[0, 1] == data.features[1, 1]  # "day" is one word however it is written
    assert [int((row > 0).sum()) for row in data.features] == [3, 2, 25]


def test_synthetic(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    users = {f"f_{k}": (rng.normal(size=(6, 60)).tolist(), rng.integers(0, 10, 6).tolist()) for k in range(3)}
    data = load_leaf(written(tmp_path / "synthetic", users), test=0, classes=10)
    assert (data.classes, data.sample_shape, data.count_tokens()) == (10, (60,), 0)
    np.testing.assert_allclose(data.features[data.train[1]].sum(), np.sum(users["f_1"][0]), rtol=1e-4)


def test_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "odd", {"ann": ([["1", "", "", "", "well"]], [3])})
    with pytest.raises(InputError, match="mood is 0, 1 or 4, not 3"):
        load_leaf(path, encoder="sent140")
    with pytest.raises(InputError, match="encoder must be shakespeare, sent140, celeba or look like"):
        load_leaf(path, encoder="shakespear")
    assert set(ENCODERS) == {"shakespeare", "sent140"}
