"""From per-sample values to the figures that are reported.

LEAF's (and the paper's) accuracy is the mean of the clients' own test accuracies, each weighed by the client's train + test
samples; the plain one counts every test sample once. A mean hides the clients that lose, so quantiles over
clients stand beside both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedgsp.evaluate.forward import SampleScores

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class ClientScores:
    """Means per client over its test samples; clients without test samples are left out.

    Args:
        clients: Numbers of the clients.
        samples: Test samples of each.
        weights: What each counts for, as LEAF weighs clients.
        values: For loss and each metric, a mean for each client.
    """

    clients: NDArray[np.int64]
    samples: NDArray[np.int64]
    weights: NDArray[np.int64]
    values: dict[str, NDArray[np.float64]]

    def without(self, clients: frozenset[int]) -> ClientScores:
        """The same without some of the clients."""
        keep = np.isin(self.clients, sorted(clients), invert=True)
        values = {name: column[keep] for name, column in self.values.items()}
        return ClientScores(self.clients[keep], self.samples[keep], self.weights[keep], values)


@dataclass(frozen=True)
class Summary:
    """Figures of one evaluation: `leaf` weighs clients by their samples, `plain` counts test samples once each.

    Args:
        leaf: Figures in which clients count as LEAF weighs them.
        plain: Figures in which each test sample counts once.
        quantiles: Of the clients' own figures.
        clients: How many clients were evaluated.
        samples: How many test samples.
    """

    leaf: dict[str, float]
    plain: dict[str, float]
    quantiles: dict[str, dict[str, float]]
    clients: int
    samples: int

    def as_dict(self) -> dict[str, object]:
        """For the journal."""
        return {
            **self.leaf,
            **{f"{name}_plain": value for name, value in self.plain.items()},
            "quantiles": self.quantiles,
            "clients": self.clients,
            "samples": self.samples,
        }


def per_client(
    scores: SampleScores,
    clients: NDArray[np.int64],
    sizes: NDArray[np.int64],
    weights: NDArray[np.int64],
    counted: NDArray[np.int64] | None = None,
) -> ClientScores:
    """Mean loss and metrics per client: `sizes` are the consecutive runs of scores, one for each of `clients`.

    `counted` are the samples that each client counts for, where that is another number.

    Args:
        scores: Scores of samples, client after client.
        clients: Numbers of the clients.
        sizes: How many of the scores are each client's.
        weights: What each client counts for.
        counted: Samples that each client counts for, where that is another number.
    """
    present = sizes > 0
    owner = np.repeat(np.arange(len(sizes)), sizes)
    values = {
        name: np.bincount(owner, weights=column, minlength=len(sizes))[present] / sizes[present]
        for name, column in {"loss": scores.loss, **scores.metrics}.items()
    }
    return ClientScores(clients[present], (sizes if counted is None else counted)[present], weights[present], values)


def summarise(scores: ClientScores) -> Summary | None:
    """The figures for the journal; None where no client has a test sample.

    Args:
        scores: Scores of the clients.
    """
    if len(scores.clients) == 0:
        return None
    quantiles = {
        name: {f"{q:g}": float(v) for q, v in zip(QUANTILES, np.quantile(column, QUANTILES), strict=True)}
        for name, column in scores.values.items()
    }
    return Summary(
        leaf={name: _weighted(column, scores.weights) for name, column in scores.values.items()},
        plain={name: _weighted(column, scores.samples) for name, column in scores.values.items()},
        quantiles=quantiles,
        clients=len(scores.clients),
        samples=int(scores.samples.sum()),
    )


def _weighted(values: NDArray[np.float64], weights: NDArray[np.int64]) -> float:
    return float(np.sum(values * weights) / np.sum(weights))
