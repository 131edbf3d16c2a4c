"""How far from i.i.d. is a federation? A scale with landmarks that people know, drawn for the very sizes at hand.

Zhao's EMD of small clients is far from 0 even when their samples are i.i.d., because twenty samples cannot show 62 classes.
So the scale starts at what i.i.d. clients of the same sizes have, and ends at one class a client; between them stand Dirichlet
partitions of the same classes over as many clients. FEMNIST's own place was computed once from its published counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgsp.plan.divergence import distributions, mean_emd
from fedgsp.plan.divergence import emd as emd_to

FEMNIST_PLACE = 0.097
"""Of the whole of LEAF's FEMNIST, from the class frequencies and sizes of its two kinds of writers
(docs/methods-reference.md), by this very function: its label skew is mild, like Dirichlet(2); what sets its writers apart is
style, which labels do not show."""

ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
CLIENTS_DRAWN = 400
"""Few clients are drawn several times over, many are sampled: landmarks are to be steady and quick."""

SIZES_TRIED, SIZE_DRAWN = 32, 1000
"""For what chance does to clients of some size: so many sizes, so many clients of each."""


@dataclass(frozen=True)
class Scale:
    """Where a federation stands between i.i.d. (0) and one class a client (1).

    `place` is of the mean; `beyond` clients are further from the population than chance explains, whatever the mean is: in
    FEMNIST most writers filled in the same form, and are more alike than chance, while some wrote digits only.
    """

    emd: float
    emd_iid: float
    emd_one_class: float
    place: float
    alpha: float | None
    landmarks: dict[str, float]
    beyond: int


def scale(counts: NDArray[np.int64]) -> Scale:
    """The place of a federation with class counts (K, F) on the scale, and the landmarks'."""
    present = counts[counts.sum(axis=1) > 0]
    emd = mean_emd(present)
    totals = present.sum(axis=0)
    p = totals / totals.sum()
    rng = np.random.default_rng(0)
    sizes = _sizes(present.sum(axis=1))
    iid = mean_emd(rng.multinomial(sizes, np.broadcast_to(p, (len(sizes), len(p)))))
    one_class = float(2 * (1 - (p**2).sum()))
    span = one_class - iid

    def place(value: float) -> float:
        return float(np.clip((value - iid) / span, 0.0, 1.0)) if span > 1e-9 else 0.0

    dealt = {alpha: _dirichlet(p, len(present), alpha, rng) for alpha in ALPHAS}
    named = {"i.i.d.": 0.0, "FEMNIST": FEMNIST_PLACE}
    named |= {f"Dirichlet({alpha:g})": place(dealt[alpha]) for alpha in (1.0, 0.1)}
    named["one class a client"] = 1.0
    alpha = _alpha(emd, list(dealt.values())) if place(emd) > 0 else None
    return Scale(emd, iid, one_class, place(emd), alpha, named, _beyond_chance(present, p, rng))


def _beyond_chance(counts: NDArray[np.int64], p: NDArray[np.float64], rng: np.random.Generator) -> int:
    """Clients (K, F) whose EMD is above that of all but one in a thousand i.i.d. clients of their size, or a little less."""
    sizes = counts.sum(axis=1)
    steps = np.unique(np.quantile(sizes, np.linspace(0, 1, SIZES_TRIED), method="lower"))
    far = [np.quantile(emd_to(distributions(rng.multinomial(size, p, SIZE_DRAWN)), p), 1 - 1 / SIZE_DRAWN) for size in steps]
    bound = np.asarray(far)[np.searchsorted(steps, sizes, side="right") - 1]
    return int((emd_to(distributions(counts), p) > bound).sum())


def _sizes(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(sizes) > 4 * CLIENTS_DRAWN:
        return np.asarray(np.sort(sizes)[np.linspace(0, len(sizes) - 1, 4 * CLIENTS_DRAWN).astype(int)])
    return np.tile(sizes, -(-CLIENTS_DRAWN // len(sizes)))


def _dirichlet(p: NDArray[np.float64], clients: int, alpha: float, rng: np.random.Generator) -> float:
    """The mean EMD of a Dirichlet(alpha) partition: every class (F,) shared out in gamma(alpha) proportions."""
    drawn = []
    clients = min(clients, 4 * CLIENTS_DRAWN)
    for _ in range(-(-CLIENTS_DRAWN // clients)):
        # log gamma(alpha) = log gamma(alpha + 1) + log(uniform) / alpha: no underflow for tiny alpha
        logs = np.log(rng.gamma(alpha + 1, size=(len(p), clients))) + np.log(rng.random((len(p), clients))) / alpha
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares = p[:, None] * weights / weights.sum(axis=1, keepdims=True)
        drawn.append(mean_emd(np.maximum(shares.T, 1e-300 * (p > 0))))
    return float(np.mean(drawn))


def _alpha(emd: float, dealt: list[float]) -> float | None:
    """The Dirichlet parameter whose partitions have this EMD; None outside what is of use."""
    if not dealt[-1] < emd < dealt[0]:
        return None
    return float(np.exp(np.interp(-emd, -np.array(dealt), np.log(ALPHAS))))
