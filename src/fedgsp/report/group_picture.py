"""A picture of groups: their class distributions, and CPD over pairs, random against ICG against the groups formed.

The right half is the paper's figure of class probability distances, with groups in place of its three methods.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgsp.core.errors import InputError
from fedgsp.plan import ICG, Random, distributions, group_sums, pairwise_cpd
from fedgsp.report.class_axis import name_classes
from fedgsp.report.plotting import require_plotting

if TYPE_CHECKING:
    from fedgsp.plan.groupers import Counts
    from fedgsp.report.groups import Grouping

MOST_DRAWN = 1000
"""Groups whose pairs are drawn: of more, a thousand are taken at random."""

MOST_FOR_ICG = 20_000


def draw_groups(path: Path, counts: Counts, grouping: Grouping, seed: int) -> None:
    """Draw into a file (.png, .svg, .pdf)."""
    try:
        groups_figure(counts, grouping, seed).savefig(path, dpi=90)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot draw {path}: {error}.") from error


def groups_figure(counts: Counts, grouping: Grouping, seed: int) -> Any:
    """Each group a line of its class distribution, and box plots of CPD over pairs."""
    require_plotting()
    from matplotlib.figure import Figure

    rivals: dict[str, NDArray[np.int64]] = {"random": Random(n_groups=grouping.n_groups, random_state=seed).fit(counts).labels_}
    if len(counts) <= MOST_FOR_ICG:
        rivals["icg"] = ICG(n_groups=grouping.n_groups, random_state=seed).fit(counts).labels_
    rivals[grouping.grouper] = grouping.labels
    shares = {name: _distributions(counts, labels, grouping.n_groups) for name, labels in rivals.items()}

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for colour, (name, rows) in zip(("C7", "C1", "C0"), shares.items(), strict=False):
        _band(left, rows, name, colour)
    left.plot(distributions(counts.sum(axis=0)), color="black", linewidth=0.8, label="everybody")
    left.set(xlabel="class", ylabel="share of a group's samples", title=f"{grouping.n_groups} groups of {len(counts)} clients")
    name_classes(left, "x", grouping.class_names, counts.shape[1])
    left.legend(fontsize="small")
    pairs = {name: pairwise_cpd(rows) for name, rows in {"clients": _clients(counts), **shares}.items()}
    kept = {name: np.maximum(values, 1e-9) for name, values in pairs.items() if len(values)}
    if kept:
        right.boxplot(list(kept.values()), whis=(0, 100), tick_labels=list(kept))
        right.set_yscale("log")
    right.set(ylabel="CPD over pairs", title="class probability distance (log scale)")
    right.grid(axis="y", alpha=0.3)
    return figure


def _band(axes: Any, rows: NDArray[np.float64], name: str, colour: str) -> None:
    """From the smallest to the largest share of any group, class by class."""
    classes = np.arange(rows.shape[1])
    axes.fill_between(
        classes, rows.min(axis=0), rows.max(axis=0), step="mid", alpha=0.45, color=colour, label=name, linewidth=0
    )


def _distributions(counts: Counts, labels: NDArray[np.int64], n_groups: int) -> NDArray[np.float64]:
    return _some(group_sums(counts, labels, n_groups))


def _clients(counts: Counts) -> NDArray[np.float64]:
    return _some(np.asarray(counts, dtype=np.float64))


def _some(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    present = rows[rows.sum(axis=1) > 0]
    drawn = np.random.default_rng(0).permutation(len(present))[:MOST_DRAWN]
    return distributions(present[drawn]) if len(present) else np.zeros((0, rows.shape[1]))
