"""A picture of a sweep: the validation score over one axis, a line for every combination of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgsp.report.plotting import require_plotting

Rows = Sequence[tuple[Mapping[str, Any], float | None, float]]
"""(values, score, spread) of every point."""


def plot_tuning(path: Path, score: str, rows: Rows, *, joined: bool = True) -> None:
    """Draw (values, score, spread) of every point into a file."""
    tuning_figure(score, rows, joined=joined).savefig(path, dpi=150)


def tuning_figure(score: str, rows: Rows, *, joined: bool = True) -> Any:
    """(values, score, spread) of every point over the first axis; points that diverged are left out.

    `joined`: by lines, as those of a grid; the points of a search stand alone.
    """
    require_plotting()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    across = next(iter(rows[0][0]))
    lines: dict[str, list[tuple[Any, float, float]]] = {}
    for values, value, spread in rows:
        rest = ", ".join(f"{name}={v}" for name, v in values.items() if name != across) if joined else ""
        if value is not None:
            lines.setdefault(rest, []).append((values[across], value, spread))
    numbers = all(isinstance(x, int | float) for line in lines.values() for x, _, _ in line)
    for label, line in lines.items():
        ordered = sorted(line, key=lambda item: item[0]) if numbers else line
        x = [item[0] if numbers else str(item[0]) for item in ordered]
        axes.errorbar(
            x, [v for _, v, _ in ordered], yerr=[s for _, _, s in ordered], marker="o", capsize=3, label=label or None,
            linestyle="-" if joined else "none",
        )  # fmt: skip
    if numbers and all(x > 0 for line in lines.values() for x, _, _ in line):
        axes.set_xscale("log")
        tried = sorted({x for line in lines.values() for x, _, _ in line})
        if joined:
            axes.set_xticks(tried, [f"{x:g}" for x in tried])
            axes.minorticks_off()
    axes.set_xlabel(across)
    axes.set_ylabel(f"validation {score}")
    axes.grid(alpha=0.3)
    if any(lines):
        axes.legend()
    return figure
