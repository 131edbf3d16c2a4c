"""Astraea's rebalancing (Duan et al., ICCD 2019 and TPDS 2021): rare classes are augmented before training.

Each client sends its class counts once; the server adds them up to C_y and sends the sums back; each client then augments its
own training samples, once, with a fixed seed. Both variants only say how many samples a class should have for each it has:

    ICCD 2019 (`AugmentMean`):    R_y = (Cbar / C_y)^alpha            where C_y < Cbar = mean_y C_y
    TPDS 2021 (`AugmentZScore`):  z_y = (C_y - mean) / s, s the standard deviation with ddof 1, tau_a = -1 / tau_d
                                  R_y = (mean - s sqrt(z_y tau_a)) / C_y      where z_y < tau_a  (> 1: R_y - 1 more a sample)
                                  R_y = (mean + s sqrt(z_y tau_d)) / C_y      where z_y > tau_d  (< 1: kept with chance R_y)

A fraction of a copy is rounded at random. Means are over the classes that occur. A new sample is one of: rotation by up to 25
degrees, shear by up to 25 degrees, scaling by 0.5 to 1.5 along each axis, a shift by up to 10 %; what comes into the picture is
filled with the background. A client always keeps at least one sample.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy  # its parts are imported when they are used
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.seeds import Purpose, generator
from fedgsp.data.federated import FederatedData, Rows, Split
from fedgsp.prepare.preparation import Preparation, Prepared

COUNT_BYTES = 4
"""A class count on the wire."""
DEGREES = 25.0
SCALES = (0.5, 1.5)
SHIFT = 0.1


@dataclass(frozen=True, kw_only=True)
class Augment(Preparation):
    """What both variants share. `background` of None is the commonest value on the border of the first training images.

    Args:
        background: The value that fills new picture edges; None: the commonest on the border of the first pictures.
    """

    background: float | None = None

    @abstractmethod
    def ratios(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """R_y (F,): how many samples there should be of each class for every one there is; 1 leaves it alone."""

    def prepare(self, data: FederatedData, clients: NDArray[np.int64], data_seed: int) -> Prepared:
        """Augment (and thin out) the training part of `clients`."""
        require_images("augmentation", data)
        ratios = self.ratios(data.profiles(clients).counts.sum(axis=0).astype(np.int64))
        chosen, background = set(clients.tolist()), self._background(data)
        rows_of: list[Rows] = []
        made: list[NDArray[Any]] = []
        origins: list[int] = []
        for client, rows in enumerate(data.train):
            if client not in chosen or len(rows) == 0:
                rows_of.append(rows)
                continue
            rng = generator(data_seed, Purpose.AUGMENT, client)
            copies = _wanted(ratios[np.asarray(data.labels[rows])], rng)
            if not copies.any():
                copies[0] = 1
            new = []
            for row, count in zip(rows.tolist(), copies.tolist(), strict=True):
                for _ in range(count - 1):
                    new.append(len(data.features) + len(made))
                    made.append(transformed(np.asarray(data.features[row]), rng, background))
                    origins.append(row)
            rows_of.append(np.concatenate([rows[copies > 0], np.asarray(new, dtype=np.int64)]))
        prepared = with_more_rows(data, rows_of, made, np.asarray(data.labels)[origins].tolist())
        dropped = len(data.train.rows) + len(made) - len(prepared.train.rows)
        note = f"augmentation added {len(made)} training samples and left out {dropped}, of {len(data.train.rows)}."
        return Prepared(prepared, 2 * COUNT_BYTES * data.classes * len(clients), (note,))

    def _background(self, data: FederatedData) -> float:
        if self.background is not None:
            return self.background * data.divisor
        return background_of(data)


@dataclass(frozen=True, kw_only=True)
class AugmentMean(Augment):
    """ICCD 2019: classes below the mean grow to (Cbar / C_y)^alpha of themselves; alpha 0 is off, 1 full balance.

    Args:
        alpha: How far rare classes grow: 0 is off, 1 full balance.
    """

    kind: ClassVar[str] = "augment-mean"

    alpha: float = 0.67

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise InputError(f"the preparation 'augment-mean': alpha must be a number of at least 0, not {self.alpha}.")

    def ratios(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """(Cbar / C_y)^alpha where C_y is below the mean."""
        there = counts > 0
        result = np.ones(len(counts))
        result[there] = np.maximum(1.0, counts[there].mean() / counts[there]) ** self.alpha
        return result


@dataclass(frozen=True, kw_only=True)
class AugmentZScore(Augment):
    """TPDS 2021: classes far below the mean grow, those far above it shrink; `tau_d` is 3.0 or 3.5 in the paper.

    Args:
        tau_d: How many standard deviations above the mean a class is thinned out at.
    """

    kind: ClassVar[str] = "augment-zscore"

    tau_d: float = 3.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tau_d) and self.tau_d > 0):
            raise InputError(f"the preparation 'augment-zscore': tau_d must be a positive number, not {self.tau_d}.")

    def ratios(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """R_y by the class's z-score."""
        result = np.ones(len(counts))
        there = np.flatnonzero(counts > 0)
        if len(there) < 2:
            return result
        c = counts[there].astype(np.float64)
        mean, spread = c.mean(), c.std(ddof=1)
        if spread == 0:
            return result
        z, tau_a = (c - mean) / spread, -1 / self.tau_d
        low, high = z < tau_a, z > self.tau_d
        result[there[low]] = np.maximum(1.0, (mean - spread * np.sqrt(z[low] * tau_a)) / c[low])
        result[there[high]] = (mean + spread * np.sqrt(z[high] * self.tau_d)) / c[high]
        return result


def require_images(who: str, data: FederatedData) -> None:
    """Refuse data that has no classes to balance or no images to transform."""
    if not data.classes:
        raise InputError(f"{who} balances classes, and this data has none (it is a regression).")
    if len(data.sample_shape) not in (2, 3):
        raise InputError(f"{who} turns and shifts images; samples of shape {data.sample_shape} are none.")


def background_of(data: FederatedData) -> float:
    """The commonest value on the border of the first training images, as stored."""
    images = np.asarray(data.features[np.sort(data.train.rows[:64])])
    border = np.concatenate(
        [part.ravel() for part in (images[..., 0, :], images[..., -1, :], images[..., :, 0], images[..., :, -1])]
    )
    values, counts = np.unique(border, return_counts=True)
    return float(values[np.argmax(counts)])


def with_more_rows(data: FederatedData, rows_of: list[Rows], made: list[NDArray[Any]], labels: list[int]) -> FederatedData:
    """The same federation with new samples at the end of the arrays, and these training rows for every client."""
    added = np.asarray(made, dtype=data.features.dtype).reshape(len(made), *data.sample_shape)
    return replace(
        data,
        features=np.concatenate([data.features, added]) if made else data.features,
        labels=np.concatenate([data.labels, np.asarray(labels, dtype=data.labels.dtype)]) if made else data.labels,
        train=Split.of(rows_of),
        memo=None,
    )


def _wanted(ratios: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers whose expectation is `ratios`: rounded up with the fraction's probability."""
    whole = np.floor(ratios)
    return (whole + (rng.random(len(ratios)) < ratios - whole)).astype(np.int64)


def transformed(image: NDArray[Any], rng: np.random.Generator, background: float) -> NDArray[Any]:
    """A randomly turned, sheared, scaled or shifted copy of an image (H, W) or (C, H, W), in its own type."""
    kind, matrix, shift = int(rng.integers(4)), np.eye(2), np.zeros(2)
    if kind == 0:
        angle = math.radians(float(rng.uniform(-DEGREES, DEGREES)))
        matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    elif kind == 1:
        matrix = np.array([[1.0, 0.0], [math.tan(math.radians(float(rng.uniform(-DEGREES, DEGREES)))), 1.0]])
    elif kind == 2:
        matrix = np.diag(1 / rng.uniform(*SCALES, size=2))
    else:
        shift = rng.uniform(-SHIFT, SHIFT, size=2) * image.shape[-2:]
    middle = (np.asarray(image.shape[-2:]) - 1) / 2
    offset = middle - matrix @ (middle + shift)
    planes = image.reshape(-1, *image.shape[-2:]).astype(np.float64)
    moved = np.stack([scipy.ndimage.affine_transform(p, matrix, offset, order=1, cval=background) for p in planes])
    if np.issubdtype(image.dtype, np.integer):
        limits = np.iinfo(image.dtype)
        moved = np.clip(np.rint(moved), limits.min, limits.max)
    return moved.reshape(image.shape).astype(image.dtype)
