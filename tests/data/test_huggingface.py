"""Hugging Face's data sets and Arrow tables: columns, splits, names, tokens and padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.data.huggingface import padded

datasets = pytest.importorskip("datasets")
pyarrow = pytest.importorskip("pyarrow")


class Words:
    """What a tokenizer of transformers looks like from outside."""

    pad_token_id = 9
    vocab_size = 10

    def __len__(self) -> int:
        return 12

    def __call__(self, texts: list[str]) -> dict[str, Any]:
        return {"input_ids": [[len(word) for word in text.split()] for text in texts]}


def test_texts_and_splits_and_names() -> None:
    kinds = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"]), "user": datasets.Value("string")}
    )

    def part(texts: list[str]) -> Any:
        return datasets.Dataset.from_dict(
            {"text": texts, "label": [1] * len(texts), "user": ["ann", "bob"] * (len(texts) // 2)}, kinds
        )

    both = datasets.DatasetDict({"train": part(["a bb", "a", "ccc", "dd a bb a"]), "test": part(["a", "bb"])})
    data = fedgsp.from_huggingface(both, tokenizer=Words(), max_length=3)
    assert (data.clients, data.classes, data.class_names) == (("ann", "bob"), 2, ("no", "yes"))
    assert (data.padding, data.count_tokens()) == (9, 12)
    assert data.features[data.train[1]].tolist() == [[1, 9, 9], [2, 1, 2]]
    assert data.features[data.test[0]].tolist() == [[1, 9, 9]]
    assert data.validation.sizes.tolist() == [0, 0]


def test_pictures() -> None:
    image = pytest.importorskip("PIL.Image")
    pictures = [image.fromarray(np.full((4, 4), 10 * k, dtype=np.uint8)) for k in range(8)]
    table = datasets.Dataset.from_dict(
        {"image": pictures, "label": [k % 2 for k in range(8)]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
    )
    data = fedgsp.from_huggingface(table, how=fedgsp.IID(clients=2))
    assert (data.sample_shape, data.features.dtype) == ((4, 4), np.dtype(np.uint8))
    assert data.features[3, 0, 0] == 30


def test_an_arrow_table_of_numbers() -> None:
    table = pyarrow.table(
        {"age": [1, 2, 3, 4], "dose": [0.5, 1.5, 2.5, 3.5], "label": ["ill", "well"] * 2, "site": [1, 1, 2, 2]}
    )
    data = fedgsp.from_huggingface(table, test_fraction=0)
    assert data.features.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5], [4, 3.5]]
    assert (data.class_names, data.labels.tolist(), data.clients) == (("ill", "well"), [0, 1, 0, 1], ("1", "2"))


def test_a_single_column_of_whole_numbers_means_sizes() -> None:
    table = pyarrow.table({"age": [1, 2, 3, 4], "label": [0.5, 1.5, 2.5, 3.5]})
    data = fedgsp.from_huggingface(table, how=fedgsp.IID(clients=2))
    assert (data.features.dtype, data.sample_shape, data.classes) == (np.dtype(np.float32), (1,), 0)


def test_labels_at_every_position_are_padded_too() -> None:
    table = pyarrow.table({"input_ids": [[1, 2, 3], [4]], "labels": [[0, 1, 0], [1]], "user": [0, 1]})
    data = fedgsp.from_huggingface(table, test_fraction=0)
    assert data.features.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert data.labels.tolist() == [[0, 1, 0], [1, -100, -100]]
    assert (data.classes, data.target_shape, data.padding) == (2, (3,), 0)
    assert padded([[1, 2, 3], [4]], 7, 2).tolist() == [[1, 2], [4, 7]]


@pytest.mark.parametrize(
    ("table", "options", "told"),
    [
        ({"text": ["a", "b"], "label": [0, 1], "user": [0, 1]}, {}, "made of texts: give a tokenizer"),
        ({"x": [1.0, 2.0], "user": [0, 1]}, {}, "which column is the label"),
        ({"x": [1.0, 2.0], "label": [0, 1]}, {}, "which column is the client"),
        ({"x": [1.0, 2.0], "label": [0, 1], "user": [0, 1]}, {"features": "y"}, "no column 'y'"),
        ({"name": ["a", "b"], "label": [0, 1], "user": [0, 1]}, {}, "no columns of numbers"),
    ],
)
def test_refused(table: dict[str, Any], options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        fedgsp.from_huggingface(datasets.Dataset.from_dict(table), **options)
    with pytest.raises(InputError, match="a split 'extra'"):
        fedgsp.from_huggingface(datasets.DatasetDict({"extra": datasets.Dataset.from_dict(table)}))
