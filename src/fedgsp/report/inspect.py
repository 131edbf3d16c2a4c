"""A federation in numbers that a person understands: how many, how large, how skewed, what is wrong with it, what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.core.tables import html_table
from fedgsp.data import FederatedData, load
from fedgsp.data.cache import Progress, silent
from fedgsp.plan.divergence import distributions, emd
from fedgsp.report.duplicates import Duplicates, duplicates
from fedgsp.report.femnist import edition
from fedgsp.report.landmarks import Scale, scale
from fedgsp.report.suggestions import suggestions

SCHEMA = 1
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)
MOST_PAIRED = 4000
"""CPD is taken over all pairs of clients; of more clients than this, over those of an even sample."""


@dataclass(frozen=True, repr=False)
class Inspection:
    """What `fedgsp data inspect` shows. Quantiles are at 0, 10, 50, 90 and 100 % of the clients (CPD: of their pairs).

    `classes` is 0 for regression, whose targets count in ten quantile bins. `class_counts` are samples of all parts.
    `effective_classes` is exp(entropy): how many equally frequent classes would be as varied.

    Args:
        source: Where the data comes from, where that has a text.
        fingerprint: A digest of the data.
        edition: Which FEMNIST this is, in a sentence; None: it is none.
        clients: How many clients there are.
        samples: How many samples.
        parts: Samples of each part: train, validation, test.
        shape: Shape of a sample.
        dtype: Type of its numbers.
        classes: How many classes there are.
        class_counts: Samples of each class.
        sizes: Quantiles of the clients' sizes.
        classes_held: Quantiles of the number of classes of a client.
        effective_classes: Quantiles of the effective number of classes of a client.
        effective_classes_all: The effective number of all samples together.
        emd: Quantiles of the distance of a client's classes to everybody's.
        cpd: Quantiles of the class probability distance over pairs.
        skew: The skew as a number from 0 to 100, in words.
        duplicates: Samples that occur more than once.
        suggestions: What to do about what was found.
    """

    source: str | None
    fingerprint: str
    edition: str | None
    clients: int
    samples: int
    parts: dict[str, int]
    shape: tuple[int, ...]
    dtype: str
    classes: int
    class_counts: list[int]
    sizes: dict[str, float]
    classes_held: dict[str, float]
    effective_classes: dict[str, float]
    effective_classes_all: float
    emd: dict[str, float]
    cpd: dict[str, float]
    skew: Scale
    duplicates: Duplicates
    suggestions: tuple[str, ...]

    def _rows(self) -> list[tuple[str, str]]:
        sizes, skew = self.sizes, self.skew
        return [
            ("clients", f"{self.clients:,}"),
            ("samples", ", ".join(f"{count:,} {name}" for name, count in self.parts.items() if count)),
            ("of a client", f"{sizes['0']:.0f} to {sizes['1']:.0f}, median {sizes['0.5']:.0f}"),
            ("classes", f"{self.classes}, of a client {self.classes_held['0.5']:.0f} (median)" if self.classes else "none"),
            ("label skew", f"{100 * skew.place:.0f} of 100 (0: i.i.d., 100: one class a client)"),
        ]

    def __repr__(self) -> str:
        rows = [f"  {name}: {told}" for name, told in self._rows()]
        return "\n".join(
            [f"Inspection of {self.source or 'data in memory'}", *rows, *(f"  ! {s}" for s in self.suggestions[:3])]
        )

    def _repr_html_(self) -> str:
        return html_table(
            f"Inspection of {self.source or 'data in memory'}", ("", ""), [*self._rows(), *(("!", s) for s in self.suggestions)]
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"schema": SCHEMA, **asdict(self)}


def inspect(data: str | FederatedData, *, progress: Progress = silent) -> Inspection:
    """Look at a federation: sizes, classes, how skewed it is, repeated samples.

    Args:
        data: A federation, or a source text such as "glyphs" or "csv:measurements.csv".
        progress: Is told how far a long reading has come.

    Returns:
        What was found; it prints as a page of text.

    Raises:
        InputError: If the source cannot be read or has no samples.
    """
    federation = load(data, progress=progress) if isinstance(data, str) else data
    if not isinstance(federation, FederatedData):
        raise InputError(f"data is a source text or a FederatedData, not {type(data).__name__}.")
    if federation.samples == 0:
        raise InputError("the data has no samples.")
    counts = class_counts(federation)
    present = counts[counts.sum(axis=1) > 0]
    shares = distributions(present)
    whole = present.sum(axis=0) / present.sum()
    repeated = duplicates(federation, progress)
    paired = shares[np.linspace(0, len(shares) - 1, min(len(shares), MOST_PAIRED)).astype(int)]
    pairs = label_cpd(paired) if len(paired) > 1 else np.zeros(1)
    standing = scale(counts)
    return Inspection(
        source=federation.source,
        fingerprint=federation.fingerprint,
        edition=edition(federation),
        clients=len(federation),
        samples=federation.samples,
        parts={name: len(getattr(federation, name).rows) for name in ("train", "validation", "test")},
        shape=federation.sample_shape,
        dtype=str(federation.features.dtype),
        classes=federation.classes,
        class_counts=counts.sum(axis=0).tolist(),
        sizes={**_quantiles(federation.sizes), "mean": float(federation.sizes.mean()), "std": float(federation.sizes.std())},
        classes_held=_quantiles((present > 0).sum(axis=1)),
        effective_classes=_quantiles(effective(shares)),
        effective_classes_all=float(effective(whole[None])[0]),
        emd={**_quantiles(emd(shares, whole)), "weighted_mean": standing.emd},
        cpd=_quantiles(pairs),
        skew=standing,
        duplicates=repeated,
        suggestions=tuple(suggestions(federation, counts, repeated)),
    )


def class_counts(data: FederatedData) -> NDArray[np.int64]:
    """(K, F) samples of each class in all parts of each client; for regression those of quantile bins of the training part."""
    if not data.classes:
        return np.asarray(data.profiles().counts, dtype=np.int64)
    parts = [data.count_classes(part) for part in (data.train, data.validation, data.test)]
    return np.asarray(parts[0] + parts[1] + parts[2])


def label_cpd(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """`plan.divergence.pairwise_cpd` of rows (n, F), to rounding: SciPy takes longer to import than all else here."""
    squares, products = (shares**2).sum(axis=1), shares @ shares.T
    squared = np.add.outer(squares, squares) - 2 * products
    return np.asarray(-np.expm1(-1.0) * np.maximum(squared, 0.0)[np.triu_indices(len(shares), 1)])


def effective(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """exp(entropy) of each row."""
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return np.asarray(np.exp(-(shares * logs).sum(axis=1)))


def _quantiles(values: NDArray[Any]) -> dict[str, float]:
    found = np.quantile(np.asarray(values, dtype=np.float64), QUANTILES)
    return {f"{q:g}": float(value) for q, value in zip(QUANTILES, found, strict=True)}
