"""The sequential-to-parallel picture with matplotlib: rounds side by side, for figures, TensorBoard and MLflow."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.imports import need
from fedgsp.report.client_clusters import kinds_of
from fedgsp.report.colours import TONES

if TYPE_CHECKING:
    from fedgsp.report.runview import RunView

KIND_COLOURS = (*(TONES[tone] for tone in ("blue", "orange", "green", "red", "sky", "purple")), "#F0E442")
NO_KIND = "#b6bec7"
MOST_ROUNDS = 6
MOST_LANES = 60
Plan = Mapping[str, Any]


def plain(text: str) -> str:
    """Text that matplotlib takes as it is."""
    return "".join(letter if letter.isprintable() else "?" for letter in text).replace("$", r"\$")


def picked_rounds(plans: Sequence[Plan]) -> list[Plan]:
    """Some rounds, denser where lanes multiply fastest: the first ones."""
    places = np.unique(np.round(np.geomspace(1, len(plans), min(MOST_ROUNDS, len(plans)))).astype(int)) - 1
    return [plans[int(k)] for k in places]


def kinds_of_run(run: RunView) -> tuple[NDArray[np.uint8] | None, NDArray[np.int64] | None]:
    """(kind, training samples) of each client; nothing where the run does not say."""
    if run.facts is None:
        return None, None
    return kinds_of(run.facts.counts.astype(np.float64)).of, run.facts.train


def group_counts(run: RunView, plan: Plan) -> NDArray[np.float64]:
    """(M, F) class counts of the groups of a plan; groups without samples are left out."""
    assert run.facts is not None
    counts = run.facts.counts  # sites that joined later are not in it
    chains = [np.array(chain["clients"], dtype=np.int64) for chain in plan["chains"]]
    rows = np.array([counts[clients[clients < len(counts)]].sum(axis=0) for clients in chains], dtype=np.float64)
    rows = rows.reshape(len(chains), counts.shape[1])  # in some rounds nobody trains
    return np.asarray(rows[rows.sum(axis=1) > 0])


def draw_rounds(figure: Any, plans: Sequence[Plan], kinds: NDArray[np.uint8] | None, sizes: NDArray[np.int64] | None) -> None:
    """Rounds side by side, each as wide as its longest lane."""
    widths = [max([3, *(len(chain["clients"]) for chain in plan["chains"])]) for plan in plans]
    for axes, plan in zip(figure.subplots(1, len(plans), width_ratios=widths, squeeze=False)[0], plans, strict=True):
        draw_lanes(axes, plan, kinds, sizes)


def draw_lanes(axes: Any, plan: Plan, kinds: NDArray[np.uint8] | None, sizes: NDArray[np.int64] | None) -> None:
    """One round: a lane a chain, a dot a client."""
    chains = plan["chains"][:MOST_LANES]
    biggest = float(np.sqrt(max(1, int(sizes.max(initial=1))))) if sizes is not None else 1.0
    for lane, chain in enumerate(chains):
        clients = np.array(chain["clients"], dtype=np.int64)
        axes.plot([-0.5, len(clients) - 0.5], [lane, lane], color="#dfe4ea", linewidth=1.2, zorder=1)
        colours = [_colour(kinds, client) for client in clients]
        dots = 5 + 16 * np.sqrt(sizes.take(clients, mode="clip")) / biggest if sizes is not None else 12
        axes.scatter(np.arange(len(clients)), np.full(len(clients), lane), s=dots, c=colours, linewidths=0, zorder=2)
    more = f" of {len(plan['chains'])}" if len(plan["chains"]) > MOST_LANES else ""
    axes.set_title(f"round {plan['round']}\n{len(chains)}{more} lanes", fontsize=8)
    axes.set_ylim(max(len(chains), 12) - 0.4, -0.6)
    axes.axis("off")


def _colour(kinds: NDArray[np.uint8] | None, client: int) -> str:
    kind = 255 if kinds is None or client >= len(kinds) else int(kinds[client])
    return KIND_COLOURS[kind] if kind < len(KIND_COLOURS) else NO_KIND


def lanes_png(plan: Plan, counts: NDArray[np.float64], sizes: NDArray[np.int64]) -> bytes:
    """One round as a PNG."""
    figure = need("matplotlib.figure", "plot", "drawing plans").Figure(figsize=(7, 3.2), layout="constrained")
    draw_lanes(figure.subplots(), plan, kinds_of(counts).of, sizes)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()
