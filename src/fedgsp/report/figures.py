"""The report's figures for papers: each as PNG and SVG, drawn from the same runs."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.adding import added
from fedgsp.core.errors import InputError
from fedgsp.core.imports import need
from fedgsp.cost import FLEETS
from fedgsp.plan.divergence import distributions, pairwise_cpd
from fedgsp.report.colours import MARKERS, TONES, looks
from fedgsp.report.labels import RunGroup, group_runs
from fedgsp.report.lane_figure import draw_rounds, group_counts, kinds_of_run, picked_rounds, plain
from fedgsp.run.files import CannotWrite, write_whole

if TYPE_CHECKING:
    from fedgsp.report.runview import RunView

COST_COLOURS = tuple(TONES[tone] for tone in ("green", "sky", "orange"))
STYLES = ("-", "--", ":", "-.")
FLEET = "paper"
X_AXES = {
    "rounds": "round",
    "steps": "serial SGD steps",
    "traffic": "traffic [MB]",
    "time": f"estimated time [s], fleet '{FLEET}'",
}
RC = {
    "font.size": 9, "font.family": "DejaVu Sans", "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.alpha": 0.25, "legend.frameon": False, "svg.hashsalt": "fedgsp", "axes.axisbelow": True,
}  # fmt: skip


def draw_figures(runs: Sequence[RunView], folder: Path) -> list[Path]:
    """Write every figure that the runs have the data for; returns the files."""
    figures = need("matplotlib.figure", "plot", "drawing figures")
    style = need("matplotlib", "plot", "drawing figures")
    groups = group_runs(runs)
    drawers: dict[str, Callable[[Any, Sequence[RunView], Sequence[RunGroup]], bool]] = {
        **{f"curves-{key}": _curves(key) for key in X_AXES},
        "lanes": _lanes, "class-shares": _shares, "cpd": _cpd, "costs": _costs, "clients": _clients,
    }  # fmt: skip
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be made: {error.strerror}.") from error
    with style.rc_context(RC):
        for name, draw in drawers.items():
            figure = figures.Figure(figsize=(6.4, 3.6), layout="constrained")
            if draw(figure, runs, groups):
                written += _saved(figure, folder / name)
    return written


def _saved(figure: Any, stem: Path) -> list[Path]:
    made = []
    for ending, options in (("png", {"dpi": 200}), ("svg", {"metadata": {"Date": None}})):
        content = io.BytesIO()
        figure.savefig(content, format=ending, **options)
        path = stem.with_name(f"{stem.name}.{ending}")
        try:
            write_whole(path, content.getvalue())
        except CannotWrite as error:
            raise InputError(f"the figure {path} cannot be written; choose another folder with `figures=`.") from error
        made.append(path)
    return made


def _points(run: RunView, x: str) -> tuple[list[float], list[float]]:
    """Where a run stood after each evaluated round: (what was spent, its score)."""
    seconds, xs, ys = 0.0, [], []
    for entry in run.history:
        cost = run.events.costs_of(entry["round"]).get(FLEET) if x == "time" else None
        if x == "time" and cost is None:
            break
        seconds += cost.seconds if cost is not None else 0.0
        value = entry.get(run.score or "loss")
        if value is not None:
            steps, moved = entry["serial_steps_total"], entry["bytes_total"] / 1e6
            xs.append(float({"rounds": entry["round"], "steps": steps, "traffic": moved, "time": seconds}[x]))
            ys.append(float(value))
    return xs, ys


def _curves(x: str) -> Callable[[Any, Sequence[RunView], Sequence[RunGroup]], bool]:
    def draw(figure: Any, runs: Sequence[RunView], groups: Sequence[RunGroup]) -> bool:
        axes = figure.subplots()
        for group, drawn in zip(groups, looks([g.method for g in groups]), strict=True):
            look = {"color": drawn.colour, "linestyle": STYLES[drawn.dash]}
            each = [points for i in group.runs if (points := _points(runs[i], x))[0]]
            if not each:
                continue
            length = min(len(xs) for xs, _ in each)
            if len(each) > 1:
                for xs, ys in each:
                    axes.plot(xs, ys, linewidth=0.6, alpha=0.45, **look)
            middle = [np.mean([part[:length] for part in parts], axis=0) for parts in zip(*each, strict=True)]
            axes.plot(*middle, linewidth=1.7, label=plain(group.label), **look)
        if not axes.lines:
            return False
        axes.set(xlabel=X_AXES[x], ylabel=plain(runs[0].score or "loss"))
        axes.legend(fontsize="small")
        return True

    return draw


def _lanes(figure: Any, runs: Sequence[RunView], groups: Sequence[RunGroup]) -> bool:
    """The sequential-to-parallel picture: some rounds of the first run whose groups multiply, else of the first one."""
    planned = [run for run in runs if run.plans]
    if not planned:
        return False
    growing = [run for run in planned if len(run.plans[-1]["chains"]) > len(run.plans[0]["chains"])]
    run = (growing or planned)[0]
    figure.set_size_inches(9.0, 3.4)
    draw_rounds(figure, picked_rounds(run.plans), *kinds_of_run(run))
    figure.suptitle(f"{plain(run.method)}: a lane is a group, a dot a client, its colour the kind of its class mix", fontsize=9)
    return True


def _shares(figure: Any, runs: Sequence[RunView], groups: Sequence[RunGroup]) -> bool:
    """Class shares of the last round's groups against the population, method by method."""
    first = [runs[group.runs[0]] for group in groups]
    shown = [run for run in first if run.facts is not None and run.plans and run.plans[0]["chains"]][:4]
    if not shown:
        return False
    figure.set_size_inches(7.0, 1.7 * len(shown) + 0.5)
    rows_of_axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, run, look in zip(rows_of_axes, shown, looks([run.method for run in shown]), strict=True):
        rows = distributions(group_counts(run, run.plans[0]))
        classes = np.arange(rows.shape[1])
        assert run.facts is not None
        axes.bar(classes, distributions(run.facts.counts.sum(axis=0)), color="#dfe4ea", width=0.85, label="all clients")
        axes.vlines(classes, rows.min(axis=0), rows.max(axis=0), color=look.colour, label="groups, round 1")
        axes.set_title(plain(run.method), fontsize=9, loc="left")
        axes.grid(axis="x", visible=False)
    axes.set_xlabel("class")
    figure.axes[0].legend(fontsize="small")
    figure.supylabel("share of samples", fontsize=9)
    return True


def _cpd(figure: Any, runs: Sequence[RunView], groups: Sequence[RunGroup]) -> bool:
    """Boxes of CPD over pairs of the first round's groups."""
    boxes: dict[str, Any] = {}
    colours = []
    for group, look in zip(groups, looks([g.method for g in groups]), strict=True):
        run = runs[group.runs[0]]
        if run.facts is not None and run.plans and len(run.plans[0]["chains"]) > 1:
            boxes[plain(group.label)] = np.maximum(pairwise_cpd(distributions(group_counts(run, run.plans[0]))), 1e-9)
            colours.append((look.colour, "" if look.dash == 0 else "//"))
    if not boxes:
        return False
    axes = figure.subplots()
    drawn = axes.boxplot(
        list(boxes.values()), whis=(0, 100), orientation="horizontal", tick_labels=list(boxes), patch_artist=True,
        medianprops={"color": "black"},
    )  # fmt: skip
    for box, (colour, hatch) in zip(drawn["boxes"], colours, strict=True):
        box.set(facecolor=colour, alpha=0.6, hatch=hatch)
    axes.set(xscale="log", xlabel="class probability distance over pairs of groups, round 1")
    axes.invert_yaxis()
    return True


def _costs(figure: Any, runs: Sequence[RunView], groups: Sequence[RunGroup]) -> bool:
    """Stacked bars of the estimated time on each fleet."""
    figure.set_size_inches(8.0, 1.4 + 0.5 * len(groups))
    parts: dict[str, dict[str, list[float]]] = {}
    for group in groups:
        run = runs[group.runs[0]]
        every = [run.events.costs_of(entry["round"]) for entry in run.history]
        if every and all(every):
            names = ("computing", "chains", "seconds")
            parts[plain(group.label)] = {f: [added(getattr(c[f], name) for c in every) for name in names] for f in FLEETS}
    if not parts:
        return False
    places = np.arange(len(parts))
    for axes, fleet in zip(figure.subplots(1, len(FLEETS), sharey=True), FLEETS, strict=True):
        table = np.array([parts[label][fleet] for label in parts])
        stacked = np.diff(table, axis=1, prepend=0.0)
        left = np.zeros(len(parts))
        for column, (word, colour) in enumerate(zip(("computing", "transfers", "waiting"), COST_COLOURS, strict=True)):
            axes.barh(places, stacked[:, column], left=left, color=colour, label=word)
            left += stacked[:, column]
        axes.set_yticks(places, list(parts))
        axes.set_title(fleet, fontsize=9)
        axes.set_xlabel("seconds")
    figure.axes[0].invert_yaxis()
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    return True


def _clients(figure: Any, runs: Sequence[RunView], groups: Sequence[RunGroup]) -> bool:
    """Each client's score against its samples."""
    axes = figure.subplots()
    for group, look in zip(groups[: len(TONES)], looks([g.method for g in groups]), strict=False):
        run = runs[group.runs[0]]
        scores = run.client_scores()
        if scores is None or run.facts is None or len(scores) != len(run.facts.train):
            continue
        axes.scatter(
            run.facts.train, scores, s=9, alpha=0.5, color=look.colour, label=plain(group.label), linewidths=0,
            marker=MARKERS[look.dash],
        )  # fmt: skip
    if not axes.collections:
        return False
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="x", which="minor", labelsize=7)
    axes.set(xlabel="training samples of a client", ylabel=f"{plain(runs[0].score or 'loss')} of the client")
    axes.legend(fontsize="small")
    return True
