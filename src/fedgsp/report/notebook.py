"""What a notebook shows of runs, federations and methods: HTML with curves as inline SVG, and figures that show themselves.

HTML needs no package; a `Plot` needs matplotlib (extra `plot`).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.errors import InputError
from fedgsp.core.tables import html_table
from fedgsp.report.class_axis import MOST_NAMES, axis_word, name_classes
from fedgsp.report.colours import looks
from fedgsp.report.plotting import require_plotting
from fedgsp.run.metrics import evaluations, score_words

if TYPE_CHECKING:
    from fedgsp.data import FederatedData
    from fedgsp.method import Method
    from fedgsp.run.result import RunResult

WIDTH, HEIGHT = 460, 200
LEFT, BOTTOM, TOP = 48, 24, 8
DASHED = ("", *(f' stroke-dasharray="{dashes}"' for dashes in ("6 3", "2 3", "8 3 2 3")))
MARKS = ("&#9632;", "&#9633;", "&#9670;", "&#9671;")
"""Methods that share a colour differ in these."""
MOST_BARS = 60
"""Clients that a federation's picture shows; of more, an even sample by size."""


class Plot:
    """A figure that a notebook shows and a script can save.

    Attributes:
        figure: The matplotlib `Figure`, to be changed at will.
    """

    def __init__(self, figure: Any) -> None:
        self.figure = figure

    def save(self, path: str | Path) -> Path:
        """Write it as .png, .svg or .pdf, by the name's ending.

        Raises:
            InputError: It cannot be written there, or matplotlib does not know the ending.
        """
        try:
            self.figure.savefig(path, dpi=110)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot draw {path}: {error}.") from error
        return Path(path)

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=90)
        return file.getvalue()

    def __repr__(self) -> str:
        titles = [axes.get_title() for axes in self.figure.axes if axes.get_title()]
        return f"Plot of {'; '.join(titles) or 'a figure'}: save(path) writes it, figure is matplotlib's"


def curve(lines: Mapping[str, Sequence[tuple[float, float]]], y: str) -> str:
    """Curves over rounds as inline SVG; "" where there is nothing to draw."""
    points = [point for line in lines.values() for point in line]
    if len(points) < 2:
        return ""
    (x0, x1), (y0, y1) = ((min(v), max(v)) for v in zip(*points, strict=True))
    wide, high = (x1 - x0) or 1.0, (y1 - y0) or 1.0

    def place(point: tuple[float, float]) -> str:
        across = LEFT + (point[0] - x0) / wide * (WIDTH - LEFT - 10)
        return f"{across:.1f},{HEIGHT - BOTTOM - (point[1] - y0) / high * (HEIGHT - BOTTOM - TOP):.1f}"

    chosen = looks(list(lines))
    drawn = "".join(
        f'<polyline fill="none" stroke="{look.colour}"{DASHED[look.dash]} stroke-width="2" '
        f'points="{" ".join(map(place, line))}"/>'
        for look, line in zip(chosen, lines.values(), strict=True)
    )
    text = 'font-size="11" fill="currentColor" font-family="sans-serif"'
    axes = (
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - 10}" fill="none" stroke="currentColor" opacity="0.4"/>'
        f'<text x="{LEFT - 4}" y="{TOP + 8}" text-anchor="end" {text}>{y1:.3g}</text>'
        f'<text x="{LEFT - 4}" y="{HEIGHT - BOTTOM}" text-anchor="end" {text}>{y0:.3g}</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 8}" {text}>round {x0:g}</text>'
        f'<text x="{WIDTH - 10}" y="{HEIGHT - 8}" text-anchor="end" {text}>{x1:g}</text>'
    )
    labels = " ".join(
        f'<span style="color:{look.colour}">{MARKS[look.dash]}</span>&nbsp;{escape(name)}'
        for look, name in zip(chosen, lines, strict=True)
    )
    label = escape(f"{y} by round")
    return (
        f'<p><small>{label}: {labels}</small></p><svg role="img" aria-label="{label}" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}">{axes}{drawn}</svg>'
    )


def page(title: str, blocks: Sequence[str], lines: Mapping[str, Sequence[tuple[float, float]]], y: str) -> str:
    """A heading, blocks of HTML and a curve."""
    return f"<div><h4>{escape(title)}</h4>{''.join(blocks)}{curve(lines, y)}</div>"


def result_html(result: RunResult) -> str:
    """A run: what came out, its notes, its curve, and how its groups grew."""
    config, name = result.run.config, result.score_name
    rows = [
        ("status", f"{result.status} after {result.rounds} rounds"),
        (name, score_words(result.history, name)),
        ("clients", len(result.run.participants)),
        ("data", result.run.data.source or "in memory"),
        ("model", config.model.name),
        ("directory", result.directory or "nothing was written"),
    ]
    if name != "loss" and "loss" in result.figures.final:
        rows.insert(2, ("loss", f"{result.figures.final['loss']:.4f}"))
    points = [(float(entry["round"]), float(figures[name])) for entry, figures in evaluations(result.history, name)]
    plan = [(e["round"], e["groups"], e["chains"], e["clients"], e["left_out"]) for e in _some(result.history)]
    blocks = [
        html_table("", ("", ""), rows),
        *(f"<p>note: {escape(note)}</p>" for note in result.notes),
        html_table("Plan", ("round", "groups", "chains", "clients", "left out"), plan) if plan else "",
    ]
    return page(config.method.name, blocks, {config.method.name: points}, name)


def _some(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most six rounds, the first and the last among them."""
    at = np.unique(np.linspace(0, max(0, len(history) - 1), min(6, len(history))).astype(int))
    return [history[int(i)] for i in at]


def method_html(method: Method) -> str:
    """A method's parts, a row each."""
    rows = []
    for role, part in method.encode().items():
        if isinstance(part, dict):
            rows.append((role, part["kind"], ", ".join(f"{k}={_spelled(v)}" for k, v in part.items() if k != "kind")))
    return page(f"Method {method.name}", [html_table("", ("role", "part", "parameters"), rows)], {}, "")


def _spelled(value: Any) -> str:
    if isinstance(value, dict) and "kind" in value:
        inside = ", ".join(f"{k}={_spelled(v)}" for k, v in value.items() if k != "kind")
        return f"{value['kind']}({inside})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def data_html(data: FederatedData) -> str:
    """A federation: how much there is, and a bar of class shares for some of its clients."""
    sizes = data.sizes
    rows = [
        ("clients", f"{len(data):,}"),
        ("samples", f"{len(data.train.rows):,} train, {len(data.validation.rows):,} validation, {len(data.test.rows):,} test"),
        ("of a client", f"{sizes.min()} to {sizes.max()}, median {np.median(sizes):g}" if len(data) else "none"),
        ("a sample", f"{'x'.join(map(str, data.sample_shape)) or '1'} {data.features.dtype}"),
        ("labels", f"{data.classes} classes" if data.classes else data.target_words),
        ("source", data.source or "in memory"),
    ]
    return page("Federation", [html_table("", ("", ""), rows), _shares_svg(data)], {}, "")


def _pictured(data: FederatedData) -> Any:
    """Clients to show: all, or an even sample of them by size."""
    order = np.argsort(-data.train.sizes, kind="stable")
    return order[np.unique(np.linspace(0, len(order) - 1, min(MOST_BARS, len(order))).astype(int))] if len(order) else order


def _shares_svg(data: FederatedData) -> str:
    """A column for each client, stacked by class."""
    chosen = _pictured(data)
    counts = data.profiles().counts[chosen].astype(float)
    most = counts.sum(axis=1).max(initial=0.0)
    if not len(chosen) or most == 0:
        return ""
    bar, high = min(16.0, (WIDTH - 10) / len(chosen)), 120.0
    parts = []
    for at, row in enumerate(counts):
        below = high
        for label in np.flatnonzero(row):
            tall = row[label] / most * high
            below -= tall
            hue = 360 * label / counts.shape[1]
            parts.append(
                f'<rect x="{5 + at * bar:.1f}" y="{below:.1f}" width="{max(1.0, bar - 1):.1f}" height="{tall:.1f}" '
                f'fill="hsl({hue:.0f},60%,55%)"/>'
            )
    some = "" if len(chosen) == len(data) else f" ({len(chosen)} of {len(data)} clients)"
    told = f"training samples of each client by class{some}"
    return (
        f'<p><small>{told}{_class_key(data.class_names)}</small></p><svg role="img" aria-label="{told}" width="{WIDTH}" '
        f'height="{high:.0f}" viewBox="0 0 {WIDTH} {high:.0f}">{"".join(parts)}</svg>'
    )


def _class_key(names: Sequence[str]) -> str:
    """Which colour is which class, if classes have names and are few."""
    if not 0 < len(names) <= MOST_NAMES:
        return ""
    marks = (
        f'<span style="color:hsl({360 * label / len(names):.0f},60%,45%)">&#9632;</span> {escape(name)}'
        for label, name in enumerate(names)
    )
    return ": " + ", ".join(marks)


def plot_result(result: RunResult) -> Plot:
    """Score and loss by round, and the number of groups and chains."""
    require_plotting()
    from matplotlib.figure import Figure

    names = list(dict.fromkeys([result.score_name, "loss"]))
    figure = Figure(figsize=(4.1 * (len(names) + 1), 3.4), layout="constrained")
    panels = figure.subplots(1, len(names) + 1, squeeze=False)[0]
    (look,) = looks([result.run.config.method.name])
    for axes, name in zip(panels, names, strict=False):
        found = evaluations(result.history, name)
        axes.plot([e["round"] for e, _ in found], [f[name] for _, f in found], color=look.colour, marker="o", markersize=3)
        axes.set(title=name, xlabel="round", ylabel=f"{result.run.config.run.evaluate_on} {name}")
        axes.grid(alpha=0.3)
    rounds = [entry["round"] for entry in result.history]
    for key, style in (("groups", "-"), ("chains", "--")):
        panels[-1].plot(rounds, [e[key] for e in result.history], style, color=look.colour, label=f"{key}")
    panels[-1].set(title="plan", xlabel="round", ylabel="number")
    panels[-1].legend()
    panels[-1].grid(alpha=0.3)
    figure.suptitle(result.run.config.method.name)
    return Plot(figure)


def plot_data(data: FederatedData) -> Plot:
    """Class shares of the clients, and how many samples they have."""
    require_plotting()
    from matplotlib.figure import Figure

    chosen, counts = _pictured(data), data.profiles().counts
    shares = counts[chosen] / np.maximum(counts[chosen].sum(axis=1, keepdims=True), 1)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    image = left.imshow(shares.T, aspect="auto", origin="lower", cmap="cividis", vmin=0, vmax=max(float(shares.max()), 1e-9))
    figure.colorbar(image, ax=left, label="share of the client's samples")
    some = "" if len(chosen) == len(data) else f" ({len(chosen)} of {len(data)})"
    word = axis_word(data.classes, data.target_bins)
    left.set(title="classes of the clients", xlabel=f"client, largest first{some}", ylabel=word)
    name_classes(left, "y", data.class_names, counts.shape[1])
    right.hist(data.train.sizes, bins=min(30, max(5, len(data))), color="#0072B2")
    right.set(title="sizes of the clients", xlabel="training samples", ylabel="clients")
    return Plot(figure)
