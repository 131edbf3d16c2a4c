"""`study curves`: accuracy and loss against rounds, serial SGD steps, traffic and simulated time (Figures 3b and 3c).

NaiveGSP+ICG is shown with the order in its groups fixed and shuffled each round: the paper blames its rising loss on learning
the order, but its authors' code shuffles (docs/methods-reference.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.report.study_figures import brief
from fedgsp.run.metrics import best, evaluations, final, final_evaluations
from fedgsp.study.curve_picture import FLEET, curves_picture
from fedgsp.study.findings import Findings
from fedgsp.study.noise import Estimate
from fedgsp.study.paper.rows import FIXED, PAPER, PAPER_END, PAPER_TARGET, SHUFFLED
from fedgsp.study.tables import Column, Table, bytes_, number, percent
from fedgsp.study.targets import window_of

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Arm, Trace

TITLE = "FedAvg, NaiveGSP, NaiveGSP+ICG and FedGSP over the rounds"


TIMED = ("phone-4g", "hospital-fibre")
"""The fleets whose seconds the pictures show: where waiting for each other costs most, and least."""


def methods(runner: PaperRunner) -> dict[str, Method]:
    """The ablation of the paper, by the names it uses."""
    icg = runner.method("naive-gsp-icg")
    return {
        "FedAvg": runner.method("fedavg"),
        "NaiveGSP": runner.method("naive-gsp"),
        FIXED: replace(icg, planner=replace(icg.planner, order="fixed")),  # type: ignore[type-var]
        SHUFFLED: icg,
        "FedGSP": runner.method("fedgsp"),
    }


def gather(runner: PaperRunner) -> dict[Arm, dict[str, list[Trace]]]:
    """A run of every method and seed, for each series of the preset."""
    ours = methods(runner)
    return {
        arm: {name: runner.traces(arm.named(name), method, arm) for name, method in ours.items() if arm.has(name)}
        for arm in runner.preset.curves
    }


def show(runner: PaperRunner, gathered: dict[Arm, dict[str, list[Trace]]]) -> Findings:
    """Curves and where they end."""
    tables, pictures, facts = [], [], {}
    for arm, traces in gathered.items():
        whole = {name: [t for t in runs if not t.diverged] for name, runs in traces.items()}
        kept = {name: runs for name, runs in whole.items() if runs}
        tables.append(_table(arm, traces, _cut(runner, arm)))
        if len(kept) > 1:  # a curve alone compares nothing
            of = f"{arm.label}, {len(runner.seeds(arm))} seed(s)"
            pictures.append(curves_picture(_file(arm), kept, of, fleets=TIMED, paper=_papers(kept)))
        facts[arm.label] = {
            "model": arm.model, "rounds": arm.rounds, "seeds": len(runner.seeds(arm)), "longer": bool(arm.only),
            "cut": _cut(runner, arm), "methods": {name: _facts(runs) for name, runs in kept.items()},
        }  # fmt: skip
    return Findings("curves", TITLE, tables, pictures, facts)


def _papers(names: Iterable[str]) -> dict[str, list[tuple[str, float, float]]]:
    """The paper's figures of the methods: 80 % in its round, and accuracy and loss at the end."""
    found: dict[str, list[tuple[str, float, float]]] = {"accuracy": [], "loss": []}
    for name in names:
        if (told := PAPER.get(name.lower())) is not None:
            accuracy, loss, rounds = told
            found["accuracy"] += [(name, PAPER_END, accuracy)] + ([] if rounds is None else [(name, rounds, PAPER_TARGET)])
            found["loss"].append((name, PAPER_END, loss))
    return found


def loss_rise(trace: Trace) -> tuple[float, float, int]:
    """(the loss at the end, the smallest on the way, its round): the rise is the paper's sign of overfitting.

    Both are means of as many evaluations in a row, so that noise alone makes no rise.
    """
    return (final(trace.history, "loss"), *min(_smoothed(trace)))


def _smoothed(trace: Trace) -> list[tuple[float, int]]:
    """(the mean loss of as many evaluations in a row as the final figure has, the last of their rounds)."""
    known = evaluations(trace.history)
    window = len(final_evaluations(trace.history))
    return [
        (fmean(f["loss"] for _, f in known[at - window : at]), known[at - 1][0]["round"])
        for at in range(window, len(known) + 1)
    ]


def rises_where_others_are_least(runs: Sequence[Trace]) -> list[float]:
    """For each seed the loss at its end less that at the round in which the other seeds have their least; none for one seed.

    An end less its own least is never negative, whatever the noise. Here the round is chosen by others, so it may be.
    """
    if len(runs) < 2:
        return []
    found = []
    for at, trace in enumerate(runs):
        least = fmean(loss_rise(other)[2] for i, other in enumerate(runs) if i != at)
        mean, _ = min(_smoothed(trace), key=lambda pair: abs(pair[1] - least))
        found.append(final(trace.history, "loss") - mean)
    return found


def _facts(runs: list[Trace]) -> dict[str, Any]:
    rises = [loss_rise(trace) for trace in runs]
    return {
        "accuracy": [final(trace.history, "accuracy") for trace in runs],
        "loss": [end for end, _, _ in rises],
        "least_loss": [least for _, least, _ in rises],
        "least_loss_round": [at for _, _, at in rises],
        "rise_by_others": rises_where_others_are_least(runs),
        "serial_steps": [trace.history[-1]["serial_steps_total"] for trace in runs],
        "bytes": [trace.history[-1]["bytes_total"] for trace in runs],
    }


def _best(trace: Trace) -> float:
    top = best(trace.history, "accuracy")
    assert top is not None  # whoever has a table was evaluated
    return float(top[1]["accuracy"])


def _cut(runner: PaperRunner, arm: Arm) -> list[str]:
    return [name for name in methods(runner) if not arm.has(name)]


def _file(arm: Arm) -> str:
    return f"curves-{arm.model}-{arm.rounds}" if arm.only else f"curves-{arm.model}"


def _table(arm: Arm, traces: dict[str, list[Trace]], cut: Sequence[str]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, runs in traces.items():
        if any(trace.diverged for trace in runs):
            rows.append((name, *[None] * 8))
            continue
        rises = [loss_rise(trace) for trace in runs]
        rows.append(
            (
                name,
                Estimate.of([final(trace.history, "accuracy") for trace in runs]),
                Estimate.of([_best(trace) for trace in runs]),
                Estimate.of([end for end, _, _ in rises]),
                Estimate.of([end - least for end, least, _ in rises]),
                ", ".join(str(at) for _, _, at in rises),
                Estimate.of([trace.history[-1]["serial_steps_total"] for trace in runs]),
                Estimate.of([trace.history[-1]["bytes_total"] for trace in runs]),
                Estimate.of([trace.seconds[FLEET][-1] for trace in runs]),
            )
        )
    return Table(
        _file(arm), f"After {arm.rounds} rounds, {arm.model}",
        (Column("method"), Column("accuracy %", percent), Column("best %", percent), Column("loss", number(3)),
         Column("loss above its least by", number(3)), Column("least in round"), Column("serial steps", number()),
         Column("traffic", bytes_), Column("simulated s", brief)), rows,
        f"Accuracy and loss: {window_of(traces.values())}, on test samples, as LEAF weighs clients; best: the best single "
        f"round; ± is a 95 % interval over seeds (Student's t). Simulated time: on the paper's fleet, by what really happened."
        + (f" Cut for time: {'; '.join(cut)}." if cut else ""), kept=not arm.only,
    )  # fmt: skip
