"""Twelve tasks as people bring them: each in a few lines, better than chance, with the same result for 0 and 2 workers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import fedgsp
from fedgsp.client import SGD
from fedgsp.data.augmentation import Compose, RandomCrop, RandomFlip

MOST_LINES = 25
Given = dict[str, Any]


def pictures(channels: int, side: int, samples: int = 160) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Bytes: one bright quarter of the picture is the class."""
    rng = np.random.default_rng(0)
    y = np.arange(samples) % 4
    x = rng.integers(0, 90, (samples, channels, side, side))
    half = side // 2
    for place, label in zip(x, y, strict=True):
        place[:, half * (label // 2) :, half * (label % 2) :][:, :half, :half] += 120
    return x.astype(np.uint8), y


def verses(samples: int = 160, length: int = 6) -> np.ndarray[Any, Any]:
    """Characters 1..5 that follow each other in a circle."""
    start = np.random.default_rng(1).integers(0, 5, samples)
    return (start[:, None] + np.arange(length + 1)) % 5 + 1


def mnist_like() -> Given:
    x, y = pictures(1, 8)
    data = fedgsp.partition((x[:, 0], y), fedgsp.Dirichlet(clients=4, alpha=0.5, min_size=10))
    return {"data": data, "model": "small_cnn", "lr": 0.1, "chance": 0.25}


def cifar_like_with_augmentation() -> Given:
    x, y = pictures(3, 8)
    data = fedgsp.partition((x, y), fedgsp.Shards(clients=4, per_client=2), test_fraction=0.2)
    data = data.with_transform(Compose((RandomCrop(1),)))
    return {"data": data, "model": "small_cnn", "lr": 0.1, "chance": 0.25}


def tabular_with_names() -> Given:
    rng = np.random.default_rng(0)
    y = np.array(["good", "fair", "poor"])[np.arange(150) % 3]
    x = np.stack([(y == name) * 2 + rng.normal(size=150) * 0.4 for name in ("fair", "good", "poor")], axis=1) * 100
    data = fedgsp.from_arrays(x.astype(np.float32), y, np.arange(150) // 38, standardise=True)
    return {"data": data, "model": "mlp", "lr": 0.1, "chance": 1 / 3}


def regression() -> Given:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(160, 4)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5, 1.0]).astype(np.float32)
    return {
        "data": fedgsp.from_arrays(x, y, np.arange(160) // 40),
        "model": "linear",
        "lr": 0.05,
        "most_loss": float(y.var()) / 4,
    }


def next_character_at_the_last_position() -> Given:
    text = verses()
    data = fedgsp.from_arrays(text[:, :-1], text[:, -1], np.arange(160) // 40)
    return {"data": data, "model": "char_lstm", "local": SGD(lr=0.01, optim="adam", batch_size=10), "chance": 0.2}


def next_character_at_every_position() -> Given:
    text = verses()
    data = fedgsp.from_arrays(text[:, :-1], text[:, 1:] - 1, np.arange(160) // 40)
    return {"data": data, "model": "tiny_transformer", "local": SGD(lr=0.01, optim="adam", batch_size=10), "chance": 0.2}


def text_with_a_small_transformer() -> Given:
    rng = np.random.default_rng(0)
    y = np.arange(160) % 2 == 1
    words = rng.integers(2, 9, (160, 5)) + np.where(y, 7, 0)[:, None]
    data = fedgsp.from_arrays(words, y, np.arange(160) // 40)
    return {"data": data, "model": "tiny_transformer", "local": SGD(lr=0.003, optim="adamw", clip_norm=1.0), "chance": 0.5}


def adapters() -> Given:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=20, pad_token_id=0, max_position_embeddings=8, **sizes)
    torch.manual_seed(0)
    base = transformers.BertForSequenceClassification(config)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"]))
    y = np.arange(160) % 2
    words = np.random.default_rng(0).integers(1, 9, (160, 5)) + 9 * y[:, None]
    data = fedgsp.from_arrays(words, y, np.arange(160) // 40)
    return {"data": data, "model": model, "local": SGD(lr=0.02, optim="adam"), "chance": 0.5}


def a_hugging_face_data_set() -> Given:
    datasets = pytest.importorskip("datasets")
    texts = [f"{'good fine' if k % 2 else 'bad poor'} {'day ' * (k % 3)}film" for k in range(160)]
    kinds = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    table = datasets.Dataset.from_dict({"text": texts, "label": [k % 2 for k in range(160)]}, features=kinds)
    words = {word: 1 + k for k, word in enumerate(sorted({word for text in texts for word in text.split()}))}
    data = fedgsp.from_huggingface(
        table, tokenizer=lambda some: [[words[w] for w in text.split()] for text in some], how=fedgsp.IID(clients=4)
    )
    return {"data": data, "model": "tiny_transformer", "local": SGD(lr=0.003, optim="adam"), "chance": 0.5}


class Cropped(torch.utils.data.Dataset[Any]):
    """Pictures that are moved at random whenever they are read."""

    def __init__(self) -> None:
        self.x, self.y = pictures(1, 8)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> dict[str, Any]:
        moved = torch.roll(torch.from_numpy(self.x[i, 0]), int(torch.randint(0, 2, ())), 1)
        return {"image": moved, "label": int(self.y[i])}


def a_torch_data_set_with_random_crops() -> Given:
    data = fedgsp.from_dataset(Cropped(), client=[f"site {k // 40}" for k in range(160)], anew=True)
    return {"data": data, "model": "small_cnn", "lr": 0.1, "chance": 0.25}


def sentences_with_padding() -> Given:
    pyarrow = pytest.importorskip("pyarrow")
    words = [[2 + k % 3] * (2 + k % 4) + [5] for k in range(160)]
    table = pyarrow.table(
        {"input_ids": words, "label": [[w - 2 for w in s] for s in words], "user": [k // 40 for k in range(160)]}
    )
    data = fedgsp.from_huggingface(table)
    return {"data": data, "model": "tiny_transformer", "local": SGD(lr=0.003, optim="adam"), "chance": 0.5}


def several_labels_a_sample() -> Given:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(160, 6)).astype(np.float32)
    data = fedgsp.from_arrays(x, (x[:, :3] > 0).astype(np.float32), np.arange(160) // 40, classes=0)
    return {"data": data, "model": "linear", "lr": 0.3, "task": fedgsp.multilabel(), "chance": 0.5}


def time_series() -> Given:
    rng = np.random.default_rng(0)
    y = np.arange(160) % 2
    steps = np.arange(12) / 6 * (2 * y - 1)[:, None] + rng.normal(size=(160, 12)) / 2
    x = np.stack([steps, rng.normal(size=steps.shape)], axis=2).astype(np.float32)
    data = fedgsp.from_arrays(x, y, np.arange(160) // 40)
    return {"data": data, "model": "tiny_transformer", "local": SGD(lr=0.003, optim="adam"), "chance": 0.5}


TASKS: list[Callable[[], Given]] = [
    mnist_like, cifar_like_with_augmentation, tabular_with_names, regression, next_character_at_the_last_position,
    next_character_at_every_position, text_with_a_small_transformer, adapters, a_hugging_face_data_set,
    a_torch_data_set_with_random_crops, sentences_with_padding, several_labels_a_sample, time_series,
]  # fmt: skip


def run(given: Given, workers: int, rounds: int) -> fedgsp.RunResult:
    method = fedgsp.named("fedgsp")
    if "local" in given:
        method = replace(method, local=given["local"])
    known = {name: given[name] for name in ("lr", "task") if name in given}
    return fedgsp.train(method, given["data"], given["model"], rounds=rounds, workers=workers, **known)


SLOW = (adapters, next_character_at_the_last_position)


@pytest.mark.parametrize("task", [pytest.param(t, marks=pytest.mark.slow if t in SLOW else (), id=t.__name__) for t in TASKS])
def test_learns_more_than_chance(task: Callable[[], Given]) -> None:
    given = task()
    result = run(given, 0, 4)
    if "most_loss" in given:
        assert result.history[-1]["loss"] < given["most_loss"]
    else:
        assert result.history[-1]["accuracy"] > given["chance"] + 0.15


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: str(task.__name__))
def test_the_same_bits_for_0_and_2_workers(task: Callable[[], Given]) -> None:
    given = task()
    alone, several = (run(given, workers, 1) for workers in (0, 2))
    assert alone.state.digest() == several.state.digest()
    assert alone.history[-1]["loss"] == several.history[-1]["loss"]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: str(task.__name__))
def test_a_few_lines_are_enough(task: Callable[[], Given]) -> None:
    assert len(inspect.getsource(task).splitlines()) < MOST_LINES


def test_flips_are_among_the_transforms() -> None:
    x = torch.arange(8.0).reshape(2, 1, 2, 2)
    flipped = RandomFlip()(x)
    assert all(torch.equal(a, b) or torch.equal(a, b.flip(-1)) for a, b in zip(flipped, x, strict=True))
