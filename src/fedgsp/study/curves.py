"""`study curves`: accuracy and loss against rounds, serial SGD steps, traffic and simulated time (Figures 3b and 3c).

NaiveGSP+ICG is shown with the order in its groups fixed and shuffled each round: the paper blames its rising loss on learning
the order, but its authors' code shuffles (SPECS 0.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Any

from fedgsp.method import Method
from fedgsp.report.study_figures import Line, Lines, Picture, brief
from fedgsp.run.metrics import best, evaluations, final, final_evaluations
from fedgsp.study.findings import Findings
from fedgsp.study.lab import Lab
from fedgsp.study.noise import Estimate
from fedgsp.study.presets import Arm
from fedgsp.study.tables import Column, Table, bytes_, bytes_unit, number, percent, time_unit_of
from fedgsp.study.targets import judged_in
from fedgsp.study.units import Trace

TITLE = "FedAvg, NaiveGSP, NaiveGSP+ICG and FedGSP over the rounds"
FLEET = "paper"


def methods(lab: Lab) -> dict[str, Method]:
    """The ablation of the paper, by the names it uses."""
    icg = lab.method("naive-gsp-icg")
    return {
        "FedAvg": lab.method("fedavg"),
        "NaiveGSP": lab.method("naive-gsp"),
        "NaiveGSP+ICG, fixed order": replace(icg, planner=replace(icg.planner, order="fixed")),  # type: ignore[type-var]
        "NaiveGSP+ICG, shuffled": icg,
        "FedGSP": lab.method("fedgsp"),
    }


def gather(lab: Lab) -> dict[Arm, dict[str, list[Trace]]]:
    """A run of every method and seed, for each model of the preset."""
    return {
        arm: {name: lab.traces(name, method, arm) for name, method in methods(lab).items()} for arm in lab.preset.curves
    }  # fmt: skip


def show(lab: Lab, gathered: dict[Arm, dict[str, list[Trace]]]) -> Findings:
    """Curves and where they end."""
    tables, pictures, facts = [], [], {}
    for arm, traces in gathered.items():
        whole = {name: [t for t in runs if not t.diverged] for name, runs in traces.items()}
        kept = {name: runs for name, runs in whole.items() if runs}
        tables.append(_table(arm, traces))
        pictures.append(curves_picture(f"curves-{arm.model}", kept, f"{arm.model}, {len(lab.seeds(arm))} seed(s)"))
        facts[arm.model] = {"rounds": arm.rounds, "seeds": len(lab.seeds(arm)),
                            "methods": {name: _facts(runs) for name, runs in kept.items()}}  # fmt: skip
    return Findings("curves", TITLE, tables, pictures, facts)


def loss_rise(trace: Trace) -> tuple[float, float, int]:
    """(the loss at the end, the smallest on the way, its round): the rise is the paper's sign of overfitting.

    Both are means of as many evaluations in a row, so that noise alone makes no rise.
    """
    known = evaluations(trace.journal)
    window = len(final_evaluations(trace.journal))
    means = [
        (fmean(f["loss"] for _, f in known[at - window : at]), known[at - 1][0]["round"])
        for at in range(window, len(known) + 1)
    ]
    return (final(trace.journal, "loss"), *min(means))


def _facts(runs: list[Trace]) -> dict[str, Any]:
    rises = [loss_rise(trace) for trace in runs]
    return {
        "accuracy": [final(trace.journal, "accuracy") for trace in runs],
        "loss": [end for end, _, _ in rises],
        "least_loss": [least for _, least, _ in rises],
        "least_loss_round": [at for _, _, at in rises],
        "serial_steps": [trace.journal[-1]["serial_steps_total"] for trace in runs],
        "bytes": [trace.journal[-1]["bytes_total"] for trace in runs],
    }


def _best(trace: Trace) -> float:
    top = best(trace.journal, "accuracy")
    assert top is not None  # whoever has a table was evaluated
    return float(top[1]["accuracy"])


def _table(arm: Arm, traces: dict[str, list[Trace]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, runs in traces.items():
        if any(trace.diverged for trace in runs):
            rows.append((name, *[None] * 8))
            continue
        rises = [loss_rise(trace) for trace in runs]
        rows.append(
            (
                name,
                Estimate.of([final(trace.journal, "accuracy") for trace in runs]),
                Estimate.of([_best(trace) for trace in runs]),
                Estimate.of([end for end, _, _ in rises]),
                Estimate.of([end - least for end, least, _ in rises]),
                ", ".join(str(at) for _, _, at in rises),
                Estimate.of([trace.journal[-1]["serial_steps_total"] for trace in runs]),
                Estimate.of([trace.journal[-1]["bytes_total"] for trace in runs]),
                Estimate.of([trace.seconds[FLEET][-1] for trace in runs]),
            )
        )
    return Table(
        f"curves-{arm.model}", f"After {arm.rounds} rounds, {arm.model}",
        (Column("method"), Column("accuracy %", percent), Column("best %", percent), Column("loss", number(3)),
         Column("loss above its least by", number(3)), Column("least in round"), Column("serial steps", number()),
         Column("traffic", bytes_), Column("simulated s", brief)), rows,
        f"Accuracy and loss: {judged_in(traces.values())}, on test samples, as LEAF weighs clients; best: the best single "
        f"round; ± is a 95 % interval over seeds (Student's t). Simulated time: on the paper's fleet, by what really happened.",
    )  # fmt: skip


def curves_picture(
    name: str, traces: dict[str, list[Trace]], of: str, score: str | None = "accuracy", fleet: str = FLEET
) -> Picture:
    """Score and loss against the four costs; a band from the lowest to the highest seed."""
    every = [trace for runs in traces.values() for trace in runs]
    size, size_unit = bytes_unit(max(trace.journal[-1]["bytes_total"] for trace in every))
    time, time_unit = time_unit_of(max(trace.seconds[fleet][-1] for trace in every))
    axes: dict[str, Callable[[Trace, Any], float]] = {
        "rounds": lambda trace, entry: entry["round"],
        "serial SGD steps": lambda trace, entry: entry["serial_steps_total"],
        f"{size_unit} handed on": lambda trace, entry: entry["bytes_total"] / size,
        f"simulated {time_unit} ({fleet} fleet)": lambda trace, entry: trace.seconds[fleet][entry["round"] - 1] / time,
    }
    rows = [
        [
            Lines(
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


def _line(label: str, runs: list[Trace], metric: str, at: Any) -> Line:
    columns = list(zip(*(evaluations(trace.journal) for trace in runs), strict=False))
    x = [sum(at(trace, entry) for trace, (entry, _) in zip(runs, column, strict=True)) / len(runs) for column in columns]
    y = [[figures[metric] for _, figures in column] for column in columns]
    means = [sum(values) / len(values) for values in y]
    return Line(label, x, means, *(([min(v) for v in y], [max(v) for v in y]) if len(runs) > 1 else ()))
