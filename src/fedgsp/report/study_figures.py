"""Figures of studies: what is to be seen as plain data, and one function that draws it into PNG and SVG.

Colours are those of Okabe and Ito, which people with any kind of colour blindness can tell apart; lines differ in their dashes
too, so that a print in grey can be read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.report.colours import MARKERS, known_look, looks
from fedgsp.report.plotting import require_plotting

DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)), (0, (8, 3)), (0, (2, 4)))
NO_METHOD = "#9AA5B1"
"""Of bars that are no method's."""
PAPER = {"marker": "D", "markersize": 7, "markerfacecolor": "white", "markeredgewidth": 1.8, "linestyle": "none"}
"""The paper's own figures: in the colour of their curve, beside bars in black."""


@dataclass(frozen=True)
class Curve:
    """A curve; `low` and `high` are drawn as a band around it."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class LinePlot:
    """Curves over one axis; `paper` has points of the paper's, by the label of their curve."""

    title: str
    x: str
    y: str
    lines: Sequence[Curve]
    log_x: bool = False
    paper: Sequence[tuple[str, float, float]] = ()

    def draw(self, axes: Any) -> None:
        """Each in its colour and dashes, the same in every panel."""
        for at, (line, look) in enumerate(zip(self.lines, looks([line.label for line in self.lines]), strict=True)):
            colour, dashes = look.colour, DASHES[at % len(DASHES)]
            point = len(line.x) == 1
            axes.plot(
                line.x, line.y, color=colour, linestyle="none" if point else dashes, label=line.label, linewidth=1.6,
                marker=MARKERS[look.dash % len(MARKERS)] if point else "o",
                markersize=7 if point else 0 if len(line.x) > 12 else 3,
            )  # fmt: skip
            if line.low:
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
            for label, x, y in self.paper:
                if label == line.label:
                    axes.plot([x], [y], markeredgecolor=colour, zorder=3, **PAPER)
        if self.paper:
            axes.plot([], [], markeredgecolor="black", label="the paper", **PAPER)
        if self.log_x:
            axes.set_xscale("log")
            _plain_log(axes.xaxis)
        axes.grid(alpha=0.3)


@dataclass(frozen=True)
class BoxPlot:
    """Box plots: the paper's orange line is the median, its green triangle the mean; whiskers reach the extremes."""

    title: str
    x: str
    y: str
    boxes: Sequence[tuple[str, Sequence[float]]]
    log_y: bool = True

    def draw(self, axes: Any) -> None:
        """Medians and means."""
        floor = 1e-9 if self.log_y else -np.inf
        axes.boxplot(
            [np.maximum(np.asarray(values, dtype=float), floor) for _, values in self.boxes], whis=(0, 100), widths=0.6,
            tick_labels=[label for label, _ in self.boxes], showmeans=True, medianprops={"color": "#E69F00", "linewidth": 2},
            meanprops={"marker": "^", "markerfacecolor": "#009E73", "markeredgecolor": "#009E73"},
        )  # fmt: skip
        if self.log_y:
            axes.set_yscale("log")
            _plain_log(axes.yaxis)
        axes.tick_params(axis="x", rotation=20)
        axes.grid(axis="y", alpha=0.3)


@dataclass(frozen=True)
class HeatMap:
    """A heat map with its numbers written in; None is a cell without a figure, `low` and `high` the scale's ends.

    A frame marks the smallest of the map, or with `most` the largest of each column.
    """

    title: str
    x: str
    y: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[float | None]]
    low: float
    high: float
    most: bool = False

    def draw(self, axes: Any) -> None:
        """Dark is small."""
        grid = np.array([[np.nan if v is None else v for v in row] for row in self.values], dtype=float)
        axes.imshow(grid, cmap="cividis", vmin=self.low, vmax=self.high, aspect="auto", origin="lower")
        middle = (self.low + self.high) / 2
        for i, j in np.ndindex(grid.shape):
            value = grid[i, j]
            text = "-" if np.isnan(value) else f"{value:.3g}"
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if value < middle else "black")
        if not np.isnan(grid).all():
            from matplotlib.patches import Rectangle

            best = [divmod(int(np.nanargmin(grid)), grid.shape[1])]
            if self.most:
                best = [(int(np.nanargmax(column)), j) for j, column in enumerate(grid.T) if not np.isnan(column).all()]
            for i, j in best:
                axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=3))
        slanted = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if max(map(len, self.columns)) > 8 else {}
        axes.set_xticks(range(len(self.columns)), self.columns, **slanted)
        axes.set_yticks(range(len(self.rows)), self.rows)


@dataclass(frozen=True)
class BarChart:
    """Bars, each a stack of one or more parts, in the colours of the methods that they are of.

    Args:
        title: What stands above it.
        x: What stands below it.
        y: What stands beside it.
        labels: Of the bars.
        stacks: The parts from below: their name, and a height for each bar.
        errors: Half-widths on top.
        method: The method of all bars, where the labels say something else.
        paper: The paper's own figure for each bar; None where it has none.
    """

    title: str
    x: str
    y: str
    labels: Sequence[str]
    stacks: Sequence[tuple[str, Sequence[float]]]
    errors: Sequence[float] = ()
    method: str = ""
    paper: Sequence[float | None] = ()

    def draw(self, axes: Any) -> None:
        """Stacked from below, the sum written on top."""
        bottom = np.zeros(len(self.labels))
        known = [known_look(self.method or label) for label in self.labels]
        colours = [NO_METHOD if look is None else look.colour for look in known]
        shared = [look is not None and look.dash > 0 for look in known]  # a colour with another method: hatched
        styles: list[dict[str, Any]] = [
            {"color": colours, "edgecolor": "white", "hatch": ["//" if one else "" for one in shared], "linewidth": 0},
            {"color": "white", "edgecolor": colours, "hatch": "xx", "linewidth": 1},
        ]
        for at, (name, values) in enumerate(self.stacks):
            axes.bar(self.labels, values, bottom=bottom, width=0.6, **styles[min(at, 1)])
            if len(self.stacks) > 1:  # no method's colour in the legend
                style = {"color": NO_METHOD} if at == 0 else {"color": "white", "edgecolor": NO_METHOD, "hatch": "xx"}
                axes.bar([0], [0], label=name, **style)
            bottom += np.asarray(values, dtype=float)
        halves = list(self.errors) or [0.0] * len(self.labels)
        if any(halves):
            axes.errorbar(range(len(self.labels)), bottom, yerr=halves, fmt="none", ecolor="black", capsize=4)
        beside = list(self.paper) or [None] * len(self.labels)
        for at, (total, half, theirs) in enumerate(zip(bottom, halves, beside, strict=True)):
            top = max(total + half, theirs or 0.0)
            axes.annotate(brief(total), (at, top), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8)
            if theirs is not None:
                axes.plot([at], [theirs], markeredgecolor="black", label="the paper", **PAPER)
        axes.margins(y=0.12)
        if len(self.labels) > 5 and max(map(len, self.labels)) > 5:
            axes.set_xticks(range(len(self.labels)), self.labels, rotation=40, ha="right", rotation_mode="anchor")
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)


def brief(value: float) -> str:
    """Three significant digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _plain_log(axis: Any) -> None:
    """Ticks as plain numbers: at powers of ten, and at 2 and 5 times them where there are too few of those."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 30 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:.1g}"))
    axis.set_minor_formatter(NullFormatter())


Panel = LinePlot | BoxPlot | HeatMap | BarChart


@dataclass(frozen=True)
class Picture:
    """A figure.

    Args:
        name: The name of its files.
        caption: What stands below it.
        rows: Rows of panels.
        wide: How wide a panel is, as a multiple of the usual width.
    """

    name: str
    caption: str
    rows: Sequence[Sequence[Panel]]
    wide: float = 1.0

    def digest(self) -> str:
        """Of what is drawn: it is the same wherever the figures are, while the bytes of a PNG are those of one matplotlib."""
        panels = [[[type(panel).__name__, asdict(panel)] for panel in row] for row in self.rows]
        return hashlib.sha256(json.dumps([self.name, panels], default=float).encode()).hexdigest()[:16]


def figure_of(picture: Picture) -> Any:
    """The picture as a figure of matplotlib."""
    require_plotting()
    from matplotlib.figure import Figure

    width = max(len(row) for row in picture.rows)
    figure = Figure(figsize=(4.1 * picture.wide * width + 0.6, 3.4 * len(picture.rows) + 0.6), layout="constrained")
    grid = figure.subplots(len(picture.rows), width, squeeze=False)
    handles: dict[str, Any] = {}
    for row, places in zip(picture.rows, grid, strict=True):
        for panel, axes in zip(row, places, strict=False):
            panel.draw(axes)
            axes.set_title(panel.title, fontsize=10)
            axes.set_xlabel(panel.x)
            axes.set_ylabel(panel.y)
            handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        for unused in places[len(row) :]:
            unused.axis("off")
    if handles:
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=min(5, len(handles)))
    return figure


def draw_picture(picture: Picture, folder: Path, endings: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Draw into folder/NAME.png and folder/NAME.svg, or into those that are wanted, the same bytes each time."""
    figure = figure_of(picture)
    import matplotlib

    paths = [folder / f"{picture.name}.{suffix}" for suffix in endings]
    try:
        with matplotlib.rc_context({"svg.hashsalt": "fedgsp", "svg.fonttype": "none"}):
            for path in paths:
                metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
                figure.savefig(path, dpi=110, metadata=metadata)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot draw {paths[0]}: {error}.") from error
    return paths
