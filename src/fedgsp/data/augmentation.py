"""Samples that are made anew in every epoch: random transforms, and torch data sets that have such in them.

Only training sees them; evaluation, grouping and the fingerprint go by the samples as they are stored. What is drawn follows
from the run's seed, the round, the client and the epoch: the same bits for any number of workers, and after a resume.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.core.imports import import_named

ADDRESS = " at 0x"
if TYPE_CHECKING:
    from fedgsp.data.federated import Rows


class Augmentation(Protocol):
    """What makes training samples anew. Torch, NumPy and Python's random are seeded before each call."""

    @property
    def name(self) -> str:
        """What it is called: part of the fingerprint of the data."""

    @property
    def needs_rows(self) -> bool:
        """Whether it goes by row numbers, so that all rows must be where it is called."""

    def __call__(self, x: torch.Tensor, rows: Rows) -> torch.Tensor:
        """A batch (b, ...) as the model is to see it, from the batch as it is stored, and the numbers of its rows."""


@dataclass(frozen=True)
class EachSample:
    """A transform of one sample's tensor, called for each; of whole batches if it has an attribute `batched` that is true."""

    transform: Callable[[torch.Tensor], torch.Tensor]
    needs_rows = False

    @property
    def name(self) -> str:
        """See `Augmentation`."""
        if is_dataclass(self.transform) and ADDRESS not in repr(self.transform):
            return repr(self.transform)  # with its parameters
        kind = self.transform if hasattr(self.transform, "__qualname__") else type(self.transform)
        return f"{kind.__module__}:{kind.__qualname__}"

    def __call__(self, x: torch.Tensor, rows: Rows) -> torch.Tensor:
        """See `Augmentation`."""
        if getattr(self.transform, "batched", False):
            made = self.transform(x)
        else:
            made = torch.stack([self.transform(sample) for sample in x])
        return _alike(made, x, f"the transform {self.name}")


@dataclass(frozen=True)
class ReadAnew:
    """A torch data set whose sample i is row i, read again whenever it is trained on; later rows stay as they are stored."""

    dataset: Any
    features_of: Callable[[Any], NDArray[Any]]
    divisor: float = 1.0
    needs_rows = True

    @property
    def name(self) -> str:
        """See `Augmentation`."""
        return f"{type(self.dataset).__module__}:{type(self.dataset).__qualname__} read anew"

    def __call__(self, x: torch.Tensor, rows: Rows) -> torch.Tensor:
        """See `Augmentation`."""
        stored = len(self.dataset)
        made = [
            self._scaled(torch.from_numpy(np.array(self.features_of(self.dataset[int(row)]))).to(x.dtype))
            if row < stored
            else x[at]
            for at, row in enumerate(rows)
        ]
        return _alike(torch.stack(made), x, "the data set, read anew,")

    def _scaled(self, sample: torch.Tensor) -> torch.Tensor:
        """Bytes as parts of 255, as stored samples are."""
        return sample if self.divisor == 1 else sample / self.divisor


@dataclass(frozen=True, eq=False)
class Rescaled:
    """Samples that are read anew, standardised as stored ones: row i by `mean[which[i]]` and `deviation[which[i]]`."""

    inner: ReadAnew
    which: NDArray[np.int64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    needs_rows = True

    @property
    def name(self) -> str:
        """See `Augmentation`."""
        return f"{self.inner.name}, standardised"

    def __call__(self, x: torch.Tensor, rows: Rows) -> torch.Tensor:
        """See `Augmentation`."""
        there = np.flatnonzero(rows < len(self.inner.dataset))
        made = x.clone()
        if len(there):
            raw = self.inner(x[there], rows[there]).double() * self.inner.divisor
            by = self.which[rows[there]]
            made[there] = ((raw - torch.from_numpy(self.mean[by])) / torch.from_numpy(self.deviation[by])).to(x.dtype)
        return made


@dataclass(frozen=True, eq=False)
class Renumbered:
    """The same where only some rows are at hand, under other numbers: row i is `rows[i]` of the whole federation."""

    inner: Augmentation
    rows: Rows
    needs_rows = True

    @property
    def name(self) -> str:
        """See `Augmentation`."""
        return self.inner.name

    def __call__(self, x: torch.Tensor, rows: Rows) -> torch.Tensor:
        """See `Augmentation`."""
        return self.inner(x, self.rows[rows])


def _alike(made: Any, x: torch.Tensor, who: str) -> torch.Tensor:
    if not isinstance(made, torch.Tensor) or made.shape != x.shape:
        got = tuple(made.shape[1:]) if isinstance(made, torch.Tensor) else type(made).__name__
        raise InputError(f"{who} gives samples of shape {got}, not {tuple(x.shape[1:])}.")
    return made.to(x.dtype)


@dataclass(frozen=True)
class RandomCrop:
    """Pictures (..., H, W) moved by up to `padding` pixels each way; what comes in at the edges is zero."""

    padding: int = 4
    batched = True

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """A batch of pictures, each moved on its own."""
        height, width, by = x.shape[-2], x.shape[-1], self.padding
        wide = torch.nn.functional.pad(x, (by, by, by, by))
        places = torch.randint(0, 2 * by + 1, (len(x), 2)).tolist()
        return torch.stack(
            [one[..., top : top + height, left : left + width] for one, (top, left) in zip(wide, places, strict=True)]
        )


@dataclass(frozen=True)
class RandomFlip:
    """Pictures (..., H, W) mirrored left to right, every other one in the mean."""

    batched = True

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """A batch of pictures."""
        chosen = (torch.rand(len(x)) < 0.5).reshape(-1, *[1] * (x.dim() - 1))
        return torch.where(chosen, x.flip(-1), x)


@dataclass(frozen=True)
class Compose:
    """Several transforms of batches, one after the other."""

    transforms: tuple[Callable[[torch.Tensor], torch.Tensor], ...]
    batched = True

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """A batch through all of them."""
        for transform in self.transforms:
            x = EachSample(transform)(x, np.empty(0, dtype=np.int64))
        return x


TRANSFORMS: dict[str, Callable[..., Callable[[torch.Tensor], torch.Tensor]]] = {"crop": RandomCrop, "flip": RandomFlip}
"""What a source text or a config file may name; a number behind a name is its parameter."""


def named_transform(text: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The transform that a text names.

    Args:
        text: Names joined by +, such as "crop2+flip", or `package.module:callable`.

    Raises:
        InputError: There is no such transform.

    Example:
        >>> named_transform("crop2+flip")
        Compose(transforms=(RandomCrop(padding=2), RandomFlip()))
    """
    if ":" in text:
        found = import_named(text, "cannot import the transform")
        made = found() if isinstance(found, type) else found
        if not callable(made):
            raise InputError(f"the transform '{text}' cannot be called.")
        return made  # type: ignore[no-any-return]
    made = tuple(_named(part.strip()) for part in text.split("+"))
    return made[0] if len(made) == 1 else Compose(made)


def _named(text: str) -> Callable[[torch.Tensor], torch.Tensor]:
    name = text.rstrip("0123456789")
    if name not in TRANSFORMS:
        raise InputError(f"unknown transform '{text}': {did_you_mean(name, TRANSFORMS)} Your own is package.module:callable.")
    numbers = [int(text[len(name) :])] if len(text) > len(name) else []
    try:
        return TRANSFORMS[name](*numbers)
    except TypeError:
        raise InputError(f"the transform '{name}' takes no number.") from None
