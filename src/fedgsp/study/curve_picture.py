"""Curves of methods: score and loss against rounds, serial SGD steps, traffic and simulated time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedgsp.core.adding import added
from fedgsp.report.study_figures import Curve, LinePlot, Picture
from fedgsp.run.metrics import evaluations
from fedgsp.study.tables import bytes_unit, time_unit_of

if TYPE_CHECKING:
    from fedgsp.study.records import Trace

FLEET = "paper"


def curves_picture(
    name: str, traces: dict[str, list[Trace]], of: str, score: str | None = "accuracy", fleet: str = FLEET
) -> Picture:
    """Score and loss against the four costs; a band from the lowest to the highest seed."""
    every = [trace for runs in traces.values() for trace in runs]
    size, size_unit = bytes_unit(max(trace.history[-1]["bytes_total"] for trace in every))
    timed = all(fleet in trace.seconds for trace in every)  # a run that wrote nothing down has no times
    time, time_unit = time_unit_of(max((trace.seconds[fleet][-1] for trace in every), default=0.0) if timed else 0.0)
    axes: dict[str, Callable[[Trace, Any], float]] = {
        "rounds": lambda trace, entry: entry["round"],
        "serial SGD steps": lambda trace, entry: entry["serial_steps_total"],
        f"{size_unit} handed on": lambda trace, entry: entry["bytes_total"] / size,
        f"simulated {time_unit} ({fleet} fleet)": lambda trace, entry: trace.seconds[fleet][entry["round"] - 1] / time,
    }
    axes = axes if timed else dict(list(axes.items())[:-1])
    rows = [
        [
            LinePlot(
                f"against {across}", across, f"test {metric}",
                [_line(label, runs, metric, at) for label, runs in traces.items()], log_x=across == "serial SGD steps",
            )
            for across, at in axes.items()
        ]
        for metric in ([score] if score else []) + ["loss"]
    ]  # fmt: skip
    caption = (
        f"Test figures against four costs: {of}; lines are means over seeds, bands reach from the lowest to the highest seed."
    )
    return Picture(name, caption, rows)


def _line(label: str, runs: list[Trace], metric: str, at: Any) -> Curve:
    columns = list(zip(*(evaluations(trace.history) for trace in runs), strict=False))
    x = [added(at(trace, entry) for trace, (entry, _) in zip(runs, column, strict=True)) / len(runs) for column in columns]
    y = [[figures[metric] for _, figures in column] for column in columns]
    means = [added(values) / len(values) for values in y]
    return Curve(label, x, means, *(([min(v) for v in y], [max(v) for v in y]) if len(runs) > 1 else ()))
