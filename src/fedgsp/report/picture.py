"""A federation in one picture: who has which classes, how large clients are, how skewed that is, and what samples look like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import pdist

from fedgsp.core.errors import InputError
from fedgsp.core.imports import need
from fedgsp.report.class_axis import axis_word, name_classes
from fedgsp.report.federation import FEMNIST_NAMES
from fedgsp.report.inspect import Inspection, class_counts

if TYPE_CHECKING:
    from fedgsp.data import FederatedData

MOST_CLUSTERED = 5000
MOST_REORDERED = 300
CLIENTS_SHOWN = 8
SAMPLES_SHOWN = 9
INK, PALE, BAR, MARK = "#22313f", "#8a97a3", "#4c78a8", "#d1495b"


def draw(data: FederatedData, found: Inspection, out: Path) -> None:
    """Write the picture; the ending of the name (.png, .pdf, .svg) decides the format."""
    figures = need("matplotlib.figure", "plot", "drawing a picture")
    backend = need("matplotlib.backends.backend_agg", "plot", "drawing a picture")
    style = need("matplotlib", "plot", "drawing a picture")
    with style.rc_context(
        {
            "font.size": 9, "font.family": "DejaVu Sans", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": PALE,
            "xtick.color": INK, "ytick.color": INK, "axes.titlesize": 10, "axes.titleweight": "bold",
            "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False,
        }
    ):  # fmt: skip
        figure = figures.Figure(figsize=(14, 9), dpi=130, facecolor="white")
        backend.FigureCanvasAgg(figure)
        _compose(figure, data, found)
        _save(figure, out)


def order_by_similarity(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Clients (K, F) so that neighbours have alike class shares: a tree's leaves, or one direction where they are too many."""
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    if len(shares) < 3:
        return np.arange(len(shares))
    if len(shares) > MOST_CLUSTERED:
        centred = shares - shares.mean(axis=0)
        main = np.linalg.eigh(centred.T @ centred)[1][:, -1]
        return np.argsort(centred @ main, kind="stable")
    tree = linkage(pdist(shares, "cityblock"), "average", optimal_ordering=len(shares) <= MOST_REORDERED)
    return np.asarray(leaves_list(tree), dtype=np.int64)


def _compose(figure: Any, data: FederatedData, found: Inspection) -> None:
    counts = class_counts(data)
    order = order_by_similarity(counts)
    grid = figure.add_gridspec(
        3, 2, width_ratios=(1.75, 1), height_ratios=(1.0, 0.24, 0.30), left=0.05, right=0.975, top=0.875, bottom=0.065,
        wspace=0.2, hspace=0.42,
    )  # fmt: skip
    _title(figure, found)
    heat = figure.add_subplot(grid[0, 0])
    _heat_map(figure, heat, counts[order], data, _names(found))
    _sizes_in_order(figure.add_subplot(grid[1, 0], sharex=heat), data.sizes[order], [data.clients[int(k)] for k in order])
    _scale(figure.add_subplot(grid[2, 0]), found)
    _samples(figure, grid[0, 1], data, order, _names(found))
    _size_histogram(figure.add_subplot(grid[1:, 1]), data.sizes)


def _title(figure: Any, found: Inspection) -> None:
    name = found.source or "data in memory"
    name = name if len(name) <= 90 else "..." + name[-87:]
    figure.text(0.05, 0.955, _short(name, 90), fontsize=14, fontweight="bold")
    kind = f"{found.classes} classes" if found.classes else "regression"
    shape = "x".join(map(str, found.shape)) or "1"
    figure.text(
        0.05, 0.925,
        f"{found.clients:,} clients, {found.samples:,} samples of shape {shape} ({found.parts['train']:,} train, "
        f"{found.parts['test']:,} test), {kind}, fingerprint {found.fingerprint[:16]}",
        color=PALE,
    )  # fmt: skip


def _names(found: Inspection) -> str | None:
    return FEMNIST_NAMES if found.edition else None


def _heat_map(figure: Any, axes: Any, counts: NDArray[np.int64], data: FederatedData, names: str | None) -> None:
    shares = (counts / np.maximum(1, counts.sum(axis=1, keepdims=True))).T
    colors, maps = need("matplotlib.colors", "plot", "drawing a picture"), need("matplotlib", "plot", "drawing a picture")
    top = float(np.quantile(shares[shares > 0], 0.995)) if (shares > 0).any() else 1.0
    edges = (-0.5, counts.shape[0] - 0.5, counts.shape[1] - 0.5, -0.5)
    image = axes.imshow(
        np.ma.masked_equal(shares, 0), aspect="auto", cmap=maps.colormaps["YlGnBu"].with_extremes(bad="white"),
        norm=colors.PowerNorm(0.5, 0, max(top, 1e-9)), extent=edges,
        interpolation="nearest" if counts.shape[0] <= 1500 else "antialiased",
    )  # fmt: skip
    axes.set_title("Share of each class in each client's samples (white: none), clients ordered by similarity")
    axes.set_ylabel(axis_word(data.classes, data.target_bins))
    axes.tick_params(labelbottom=False)
    if names is not None and len(names) == counts.shape[1]:
        axes.set_yticks(range(0, len(names), 2), list(names[::2]), fontsize=6.5)
    elif counts.shape[1] <= 20:
        axes.set_yticks(range(counts.shape[1]))
        name_classes(axes, "y", data.class_names, counts.shape[1])
    beside = axes.inset_axes((1.012, 0.0, 0.014, 1.0))
    bar = figure.colorbar(image, cax=beside, extend="max" if top < shares.max() else "neither")
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    bar.outline.set_visible(False)


def _sizes_in_order(axes: Any, sizes: NDArray[np.int64], names: list[str]) -> None:
    axes.fill_between(np.arange(len(sizes) + 1) - 0.5, np.append(sizes, sizes[-1]), step="post", color=BAR, linewidth=0)
    axes.set_title("Samples of the same clients")
    axes.set_ylim(0, None)
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.set_xlabel("client")
    if len(sizes) <= 20:
        axes.set_xticks(range(len(sizes)), [_short(name, 80 // len(sizes)) for name in names])
    else:
        axes.set_xlabel("client, in this order")


def _short(name: str, most: int) -> str:
    printable = "".join(letter if letter.isprintable() and letter != "$" else "?" for letter in name)
    return printable if len(printable) <= max(most, 4) else printable[: max(most, 4) - 1] + "…"


def _scale(axes: Any, found: Inspection) -> None:
    """From i.i.d. to one class a client, with what people know in between."""
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-1.35, 1.6)
    axes.axis("off")
    like = f", like Dirichlet({found.skew.alpha:.2g})" if found.skew.alpha is not None else ""
    axes.set_title(f"Label skew: {100 * found.skew.place:.0f} of 100{like}; mean EMD {found.skew.emd:.2f}", y=0.92)
    axes.plot([0, 1], [0, 0], color=PALE, linewidth=3, solid_capstyle="round", zorder=1)
    ends = [-1.0] * len(found.skew.landmarks)  # where the names in each line end: a name that would overlap goes lower
    for name, place in sorted(found.skew.landmarks.items(), key=lambda mark: mark[1]):
        axes.plot([place], [0], "o", color="white", markeredgecolor=INK, markersize=7, zorder=2)
        side = "left" if place < 0.03 else "right" if place > 0.97 else "center"
        width = 0.009 * len(name)
        left = place - width * {"left": 0.0, "center": 0.5, "right": 1.0}[side]
        line = next(k for k, end in enumerate(ends) if left > end)
        ends[line] = left + width
        axes.text(place, -0.45 - 0.45 * line, name, ha=side, va="top", fontsize=8.5)
    axes.plot([found.skew.place], [0.32], "v", color=MARK, markersize=11, zorder=3, clip_on=False)


def _samples(figure: Any, place: Any, data: FederatedData, order: NDArray[np.int64], names: str | None) -> None:
    """A row of samples of clients spread over the order; class counts where samples are no pictures."""
    shape = data.sample_shape
    axes = figure.add_subplot(place)
    if not (len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3))) or min(shape[-2:]) < 4:
        _class_totals(axes, data)
        return
    axes.set_title("Training samples, a client a row")
    axes.axis("off")
    chosen = order[np.linspace(0, len(order) - 1, min(CLIENTS_SHOWN, len(order))).astype(int)]
    grid = place.subgridspec(len(chosen), SAMPLES_SHOWN + 2, wspace=0.06, hspace=0.08)
    for row, client in enumerate(chosen):
        caption = figure.add_subplot(grid[row, :2])
        caption.axis("off")
        caption.text(0.95, 0.5, _short(data.clients[int(client)], 12), ha="right", va="center", fontsize=8)
        rows = data.train[int(client)]
        some = rows[np.linspace(0, len(rows) - 1, min(SAMPLES_SHOWN, len(rows))).astype(int)] if len(rows) else rows
        for column, sample in enumerate(some):
            cell = figure.add_subplot(grid[row, column + 2])
            _show(cell, np.asarray(data.features[sample]), data.divisor)


def _show(cell: Any, pixels: NDArray[Any], divisor: float) -> None:
    pixels = pixels.transpose(1, 2, 0) if pixels.ndim == 3 else pixels
    shown = np.squeeze(pixels.astype(np.float64) / divisor)
    low, high = float(shown.min()), float(shown.max())
    if low < 0 or high > 1:  # normalised: stretch it
        shown = (shown - low) / max(high - low, 1e-9)
    cell.imshow(shown, cmap="gray", vmin=0, vmax=1)
    cell.set_xticks([])
    cell.set_yticks([])
    for side in cell.spines.values():
        side.set_visible(True)
        side.set_color("#d5dbe1")


def _class_totals(axes: Any, data: FederatedData) -> None:
    totals = class_counts(data).sum(axis=0)
    axes.bar(range(len(totals)), totals, color=BAR, width=0.85)
    word = axis_word(data.classes, data.target_bins)
    axes.set_title("Samples of each class" if data.classes else f"Training samples by {word}")
    axes.set_xlabel(word)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    name_classes(axes, "x", data.class_names, len(totals))


def _size_histogram(axes: Any, sizes: NDArray[np.int64]) -> None:
    bins = min(40, max(8, int(np.sqrt(len(sizes)))))
    axes.hist(sizes, bins=bins, color=BAR, edgecolor="white", linewidth=0.5)
    median = float(np.median(sizes))
    axes.axvline(median, color=MARK, linewidth=1.5)
    axes.annotate(
        f"median {median:g}", (median, 1), xycoords=("data", "axes fraction"), xytext=(4, -2), textcoords="offset points",
        color=MARK, va="top",
    )  # fmt: skip
    axes.set_title("Client sizes")
    axes.set_xlabel("samples of a client")
    axes.set_ylabel("clients")
    axes.yaxis.get_major_locator().set_params(integer=True)


def _save(figure: Any, out: Path) -> None:
    """Beside its final name first, so that a picture is whole or absent."""
    scratch = out.with_name(f".{out.stem}.part{out.suffix or '.png'}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(scratch)
        scratch.replace(out)
    except ValueError as error:
        raise InputError(f"cannot draw {out}: {str(error).split(';')[0]}.") from error
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}.") from error
    finally:
        scratch.unlink(missing_ok=True)
