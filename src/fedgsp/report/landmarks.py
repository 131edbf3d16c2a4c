"""How far from i.i.d. is a federation? A scale with landmarks that people know, drawn for the very sizes at hand.

Zhao's EMD of small clients is far from 0 even when their samples are i.i.d., because twenty samples cannot show 62 classes.
So the scale starts at what i.i.d. clients of the same sizes have, and ends at one class a client; between them stand Dirichlet
partitions of the same sizes and classes. FEMNIST's own place was computed once from its published counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgsp.plan.divergence import mean_emd

FEMNIST_PLACE = 0.097
"""Of the whole of LEAF's FEMNIST, from the class frequencies and sizes of its two kinds of writers (SPECS 12.3), by this very
function: its label skew is mild, like Dirichlet(5); what sets its writers apart is style, which labels do not show."""

ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
CLIENTS_DRAWN = 400
"""Few clients are drawn several times over, many are sampled: landmarks are to be steady and quick."""


@dataclass(frozen=True)
class Scale:
    """Where a federation stands between i.i.d. (0) and one class a client (1)."""

    emd: float
    emd_iid: float
    emd_one_class: float
    place: float
    alpha: float | None
    landmarks: dict[str, float]


def scale(counts: NDArray[np.int64]) -> Scale:
    """The place of a federation with class counts (K, F) on the scale, and the landmarks'."""
    present = counts[counts.sum(axis=1) > 0]
    emd = mean_emd(present)
    p = present.sum(axis=0) / present.sum()
    sizes = _sizes(present.sum(axis=1))
    rng = np.random.default_rng(0)
    iid = _drawn(sizes, rng, lambda n: np.broadcast_to(p, (n, len(p))))
    one_class = float(2 * (1 - (p**2).sum()))
    span = one_class - iid

    def place(value: float) -> float:
        return float(np.clip((value - iid) / span, 0.0, 1.0)) if span > 1e-9 else 0.0

    places = [place(_drawn(sizes, rng, _dirichlet(p, alpha, rng))) for alpha in ALPHAS]
    named = {"i.i.d.": 0.0, "FEMNIST": FEMNIST_PLACE}
    named |= {f"Dirichlet({alpha:g})": value for alpha, value in zip(ALPHAS, places, strict=True) if alpha in (0.1, 1.0)}
    named["one class a client"] = 1.0
    mine = place(emd)
    return Scale(emd, iid, one_class, mine, _alpha(mine, places), named)


def _sizes(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(sizes) > 4 * CLIENTS_DRAWN:
        return np.asarray(np.sort(sizes)[np.linspace(0, len(sizes) - 1, 4 * CLIENTS_DRAWN).astype(int)])
    return np.tile(sizes, -(-CLIENTS_DRAWN // len(sizes)))


def _drawn(sizes: NDArray[np.int64], rng: np.random.Generator, clients: Callable[[int], NDArray[np.float64]]) -> float:
    """The mean EMD of clients of these sizes whose class distributions `clients(n)` (n, F) gives."""
    return mean_emd(rng.multinomial(sizes, clients(len(sizes))))


def _dirichlet(p: NDArray[np.float64], alpha: float, rng: np.random.Generator) -> Callable[[int], NDArray[np.float64]]:
    """Clients as the Dirichlet partition makes them: every class shared out in gamma(alpha) proportions."""

    def draw(count: int) -> NDArray[np.float64]:
        # log gamma(alpha) = log gamma(alpha + 1) + log(uniform) / alpha: no underflow for tiny alpha
        logs = np.log(rng.gamma(alpha + 1, size=(count, len(p)))) + np.log(rng.random((count, len(p)))) / alpha
        logs = np.where(p > 0, logs + np.log(np.maximum(p, 1e-300)), -np.inf)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    return draw


def _alpha(place: float, places: list[float]) -> float | None:
    """The Dirichlet parameter that would give this place; None outside what is of use."""
    if not places[-1] < place < places[0]:
        return None
    logs = np.interp(-place, -np.array(places), np.log(ALPHAS))
    return float(np.exp(logs))
