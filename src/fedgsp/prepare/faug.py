"""FAug (Jeong et al. 2018): clients send a few seed samples, the server learns to make more, everybody fills up what it lacks.

Client k has c_ky samples of label y; m_k is the median of those above 0, rounded down.

    target labels     those with c_ky < m_k (none at all included)
    redundant labels  `redundant` of the others, drawn at random and named with the targets, so that the server cannot tell them
    up                the names of both, and of each that it has up to `seeds` samples
    at the server     all seeds pooled; from them samples of any label that somebody sent can be made
    at the client     every target label is filled up to m_k, once, before training

`FAugGAN` is the paper's: the server raises every label of the pool to `per_class` samples by random affine copies (labels with
more are thinned out), trains a small conditional GAN on them (`gan.py`) and sends its generator to all; clients draw from it.
With 62 labels and a few thousand seeds its samples are poor: expect little, or harm. `FAugOversample` has the same protocol,
but the server makes random affine copies of the pooled seeds themselves and sends those: no GAN, so it has a name of its own.

Traffic, once: seeds and names up; the generator to every client, or the copies to those who lack them, down. After that as the
method it prepares for (FedAvg here; any other by a config file). Nothing is sent and nothing changes for clients that lack
nothing; if nobody does, it is that method to the bit.

To tune: `seeds` over 1, 5, 10; `redundant` 0 to 5 (more hide better and cost more); `epochs` of the GAN over 20, 40,
80; the client's lr as for FedAvg.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Purpose, generator
from fedgsp.data.federated import FederatedData, Rows
from fedgsp.prepare.augment import background_of, require_images, transformed, with_more_rows
from fedgsp.prepare.gan import Generator, train_gan
from fedgsp.prepare.preparation import LABEL_BYTES, Preparation, Prepared, sample_bytes


@dataclass(frozen=True)
class Lack:
    """What one client says and wants: the labels it names, the rows it sends, and how many of each label it lacks."""

    client: int
    named: tuple[int, ...]
    sent: Rows
    wanted: dict[int, int]


@dataclass(frozen=True, kw_only=True)
class FAug(Preparation):
    """The protocol; how samples are made is left open.

    Args:
        seeds: Samples that a client sends of each label it names, at most.
        redundant: Labels that it names beside those it lacks, to hide them.
    """

    seeds: int = 5
    redundant: int = 2

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.redundant < 0:
            raise InputError("FAug needs seeds of at least 1 and redundant of at least 0.")

    @abstractmethod
    def fill(
        self, data: FederatedData, pool: Rows, lacks: Sequence[Lack], data_seed: int
    ) -> tuple[dict[int, list[NDArray[Any]]], int]:  # fmt: skip
        """({client: its new samples, in the order of `wanted`}, bytes sent down)."""

    def prepare(self, data: FederatedData, clients: NDArray[np.int64], data_seed: int) -> Prepared:
        """Seeds up, samples made, every client filled up."""
        require_images("FAug", data)
        lacks = [self.lack_of(data, int(k), data_seed) for k in clients]
        pool = np.concatenate([lack.sent for lack in lacks])
        known = set(np.unique(np.asarray(data.labels[pool]).astype(np.int64)).tolist())
        lacks = [
            Lack(o.client, o.named, o.sent, {y: n for y, n in o.wanted.items() if y in known}) for o in lacks
        ]  # fmt: skip
        made_for, down = self.fill(data, pool, lacks, data_seed) if known else ({}, 0)
        rows_of, made, labels = list(data.train), list[NDArray[Any]](), list[int]()
        for lack in lacks:
            new = made_for.get(lack.client, [])
            numbers = len(data.features) + len(made) + np.arange(len(new), dtype=np.int64)
            rows_of[lack.client] = np.concatenate([rows_of[lack.client], numbers])
            made += new
            labels += [label for label, count in lack.wanted.items() for _ in range(count)] if new else []
        up = len(pool) * sample_bytes(data) + LABEL_BYTES * sum(len(lack.named) for lack in lacks)
        note = f"FAug: {len(pool)} seed samples of {len(known)} labels sent up; {len(made)} samples made from them."
        return Prepared(with_more_rows(data, rows_of, made, labels), up + down, (note,))

    def lack_of(self, data: FederatedData, client: int, data_seed: int) -> Lack:
        """Target and redundant labels of one client, and its seeds."""
        rng = generator(data_seed, Purpose.SEED_SAMPLES, client)
        rows = data.train[client]
        own = np.asarray(data.labels[rows]).astype(np.int64)
        counts = np.bincount(own, minlength=data.classes)
        middle = int(np.median(counts[counts > 0]))
        targets = np.flatnonzero(counts < middle)
        if not len(targets):
            return Lack(client, (), rows[:0], {})
        others = np.flatnonzero(counts >= middle)
        hidden = rng.choice(others, min(self.redundant, len(others)), replace=False)
        named = sorted([*targets.tolist(), *hidden.tolist()])
        sent = [rng.permutation(rows[own == label])[: self.seeds] for label in named]
        return Lack(
            client, tuple(named), np.sort(np.concatenate(sent)), {int(y): middle - int(counts[y]) for y in targets}
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FAugOversample(FAug):
    """Random affine copies of the pooled seeds in place of the GAN."""

    kind: ClassVar[str] = "faug-oversample"

    def fill(
        self, data: FederatedData, pool: Rows, lacks: Sequence[Lack], data_seed: int
    ) -> tuple[dict[int, list[NDArray[Any]]], int]:  # fmt: skip
        """Copies for every client, and what they are on the wire."""
        background, by_label = background_of(data), rows_by_label(data, pool)
        made: dict[int, list[NDArray[Any]]] = {}
        for lack in lacks:
            rng = generator(data_seed, Purpose.AUGMENT, lack.client)
            made[lack.client] = [
                transformed(np.asarray(data.features[int(rng.choice(by_label[label]))]), rng, background)
                for label, count in lack.wanted.items()
                for _ in range(count)
            ]
        return made, sum(map(len, made.values())) * sample_bytes(data)


@dataclass(frozen=True, kw_only=True)
class FAugGAN(FAug):
    """The paper's: a conditional GAN of the pooled seeds, whose generator every client gets.

    Args:
        epochs: Epochs that the GAN is trained for.
        per_class: Samples of each label that it is trained on.
    """

    kind: ClassVar[str] = "faug-gan"

    epochs: int = 40
    per_class: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs < 1 or self.per_class < 1:
            raise InputError("the preparation 'faug-gan': epochs and per_class must be at least 1.")

    def fill(
        self, data: FederatedData, pool: Rows, lacks: Sequence[Lack], data_seed: int
    ) -> tuple[dict[int, list[NDArray[Any]]], int]:  # fmt: skip
        """Samples that each client draws from the generator it was sent."""
        made_by = self.learn(data, pool, data_seed)
        made: dict[int, list[NDArray[Any]]] = {}
        for lack in lacks:
            labels = [label for label, count in lack.wanted.items() for _ in range(count)]
            drawn = made_by.draw(np.asarray(labels, dtype=np.int64), generator(data_seed, Purpose.GAN, lack.client + 1))
            made[lack.client] = list(drawn)
        return made, made_by.bytes * len(lacks)

    def learn(self, data: FederatedData, pool: Rows, data_seed: int) -> Generator:
        """Oversample the seeds and train the GAN."""
        rng = generator(data_seed, Purpose.GAN, 0)
        background = background_of(data)
        images, labels = [], []
        for label, rows in rows_by_label(data, pool).items():
            kept = rng.permutation(rows)[: self.per_class]
            images += [np.asarray(data.features[int(row)]) for row in kept]
            images += [
                transformed(np.asarray(data.features[int(rng.choice(kept))]), rng, background)
                for _ in range(self.per_class - len(kept))
            ]
            labels += [label] * self.per_class
        return train_gan(np.stack(images), np.asarray(labels), data.classes, self.epochs, int(rng.integers(2**63)))


def rows_by_label(data: FederatedData, pool: Rows) -> dict[int, Rows]:
    """The pooled seeds of every label that has some."""
    labels = np.asarray(data.labels[pool]).astype(np.int64)
    return {int(label): pool[labels == label] for label in np.unique(labels)}
