"""Curves of methods: score and loss against rounds, serial SGD steps, traffic and simulated time on one fleet or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fedgsp.core.adding import added
from fedgsp.report.study_figures import Curve, LinePlot, Picture
from fedgsp.run.metrics import evaluations
from fedgsp.study.tables import bytes_unit, time_unit_of

if TYPE_CHECKING:
    from fedgsp.study.records import Trace

FLEET = "paper"
Points = Sequence[tuple[str, float, float]]


def curves_picture(
    name: str,
    traces: dict[str, list[Trace]],
    of: str,
    score: str | None = "accuracy",
    fleets: Sequence[str] = (FLEET,),
    paper: Mapping[str, Points] = MappingProxyType({}),
) -> Picture:
    """Score and loss against every cost; a band from the lowest to the highest seed.

    Args:
        name: Of the picture's files.
        traces: The runs of each method.
        of: What the runs are, for the caption.
        score: The metric beside the loss; None: there is none.
        fleets: Those whose time is a cost. One that a run has no times for is left out.
        paper: Figure -> points of the paper's: the method, the round, and the figure.
    """
    every = [trace for runs in traces.values() for trace in runs]
    size, size_unit = bytes_unit(max(trace.history[-1]["bytes_total"] for trace in every))
    axes: dict[str, Callable[[Trace, Any], float]] = {
        "rounds": lambda trace, entry: entry["round"],
        "serial SGD steps": lambda trace, entry: entry["serial_steps_total"],
        f"{size_unit} handed on": lambda trace, entry: entry["bytes_total"] / size,
    }
    for fleet in fleets:
        if all(fleet in trace.seconds for trace in every):  # a run that wrote nothing down has no times
            time, unit = time_unit_of(max(trace.seconds[fleet][-1] for trace in every))
            axes[f"simulated {unit} ({fleet} fleet)"] = partial(_time, fleet, time)
    last = max(trace.history[-1]["round"] for trace in every)
    rows = [
        [
            LinePlot(
                f"against {across}", across, f"test {metric}",
                [_line(label, runs, metric, at) for label, runs in traces.items()],
                log_x=across.startswith(("serial", "simulated") if len(fleets) > 1 else "serial"),
                paper=[point for point in paper.get(metric, ()) if across == "rounds" and point[1] <= last],
            )
            for across, at in axes.items()
        ]
        for metric in ([score] if score else []) + ["loss"]
    ]  # fmt: skip
    caption = (
        f"Test figures against {len(axes)} costs: {of}; lines are means over seeds, bands reach from the lowest to the highest "
        f"seed."
    )
    return Picture(name, caption, rows)


def _time(fleet: str, unit: float, trace: Trace, entry: Any) -> float:
    seconds: float = trace.seconds[fleet][entry["round"] - 1]
    return seconds / unit


def _line(label: str, runs: list[Trace], metric: str, at: Any) -> Curve:
    columns = list(zip(*(evaluations(trace.history) for trace in runs), strict=False))
    x = [added(at(trace, entry) for trace, (entry, _) in zip(runs, column, strict=True)) / len(runs) for column in columns]
    y = [[figures[metric] for _, figures in column] for column in columns]
    means = [added(values) / len(values) for values in y]
    return Curve(label, x, means, *(([min(v) for v in y], [max(v) for v in y]) if len(runs) > 1 else ()))
