"""`study kappa`: FedGSP with other shares of its groups sampled (Figure 5): accuracy, and normalised T_comp and T_comm.

Times are normalised by the largest, as the paper's are: by its formulas at equal rounds, and by what really happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedgsp.cost import paper_costs
from fedgsp.plan import Grouped
from fedgsp.report.study_figures import BarChart, Picture
from fedgsp.run.metrics import final
from fedgsp.study.findings import Findings
from fedgsp.study.noise import Estimate, differences, sentence
from fedgsp.study.paper.equal_steps import equal_steps
from fedgsp.study.tables import Column, Table, bytes_, number, percent
from fedgsp.study.targets import window_of

if TYPE_CHECKING:
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Trace

TITLE = "FedGSP over the group sampling rate kappa"
FLEET = "paper"


def gather(runner: PaperRunner) -> dict[float, list[Trace]]:
    """A run for every kappa and seed."""
    arm, fedgsp = runner.preset.kappa, runner.method("fedgsp")
    return {
        kappa: runner.traces(f"fedgsp kappa={kappa:g}", replace(fedgsp, planner=replace(fedgsp.planner, kappa=kappa)), arm)  # type: ignore[type-var]
        for kappa in runner.preset.kappas
    }


def show(runner: PaperRunner, gathered: dict[float, list[Trace]]) -> Findings:
    """Bars of accuracy and of the two normalised times."""
    arm, planner = runner.preset.kappa, runner.method("fedgsp").planner
    assert isinstance(planner, Grouped)
    whole = {kappa: runs for kappa, runs in gathered.items() if not any(trace.diverged for trace in runs)}
    formulas = {kappa: paper_costs(planner.growth, runner.facts.clients, arm.rounds, kappa) for kappa in gathered}
    comp, comm = (
        _normalised({k: c.computing for k, c in formulas.items()}),
        _normalised({k: c.communication for k, c in formulas.items()}),
    )
    real_comp = _normalised({k: _mean(runs, lambda t: t.computing[FLEET][-1]) for k, runs in whole.items()})
    real_comm = _normalised({k: _mean(runs, lambda t: t.history[-1]["bytes_total"]) for k, runs in whole.items()})
    accuracy = {k: Estimate.of([final(t.history, "accuracy") for t in runs]) for k, runs in whole.items()}
    rows: list[tuple[Any, ...]] = [
        (
            k, accuracy.get(k), Estimate.of([final(t.history, "loss") for t in whole[k]]) if k in whole else None,
            comp[k], comm[k], real_comp.get(k), real_comm.get(k),
            _mean(whole[k], lambda t: t.history[-1]["bytes_total"]) if k in whole else None,
        )
        for k in gathered
    ]  # fmt: skip
    by_seed = {f"kappa {k:g}": {s: final(t.history, "accuracy") for s, t in enumerate(runs)} for k, runs in whole.items()}
    said = sentence(differences(by_seed), "accuracy")
    table = Table(
        "kappa", f"After {arm.rounds} rounds, {arm.model}",
        (Column("kappa", "{:g}".format), Column("accuracy %", percent), Column("loss", number(3)), Column("T_comp", number(4)),
         Column("T_comm", number(3)), Column("computing, as run", number(3)), Column("traffic, as run", number(3)),
         Column("traffic", bytes_)), rows,
        f"Accuracy and loss: {window_of(gathered.values())}. T_comp and T_comm: the paper's formulas over {arm.rounds} rounds, "
        f"divided by the largest. As run: the computing of each round's longest chain, and the bytes really handed on, divided "
        f"by the largest. {said}",
    )  # fmt: skip
    labels = [f"{k:g}" for k in gathered]
    errors = [accuracy[k].half or 0.0 for k in whole]
    bars = [
        BarChart(
            "accuracy",
            "kappa",
            "test accuracy",
            [f"{k:g}" for k in whole],
            [("", [a.mean for a in accuracy.values()])],
            errors,
            "fedgsp",
        ),
        BarChart("T_comp, normalised", "kappa", "of the largest", labels, [("", [comp[k] for k in gathered])], method="fedgsp"),
        BarChart("T_comm, normalised", "kappa", "of the largest", labels, [("", [comm[k] for k in gathered])], method="fedgsp"),
    ]
    values = [a.mean for a in accuracy.values()]
    facts = {
        "model": arm.model, "rounds": arm.rounds, "seeds": len(runner.seeds(arm)), "said": said,
        "accuracy": {f"{k:g}": a.mean for k, a in accuracy.items()}, "accuracy_spread": max(values) - min(values),
        "widest": _widest(by_seed),
        "comp_spread": max(comp.values()) - min(comp.values()), "comm": {f"{k:g}": v for k, v in comm.items()},
        "real_comp": {f"{k:g}": v for k, v in real_comp.items()}, "real_comm": {f"{k:g}": v for k, v in real_comm.items()},
    }  # fmt: skip
    caption = (
        f"FedGSP after {arm.rounds} rounds ({arm.model}) over kappa: accuracy (mean, 95 % interval over seeds), and the "
        f"paper's T_comp and T_comm divided by their largest."
    )
    steps = equal_steps("kappa", {f"kappa {k:g}": runs for k, runs in gathered.items()})
    return Findings("kappa", TITLE, [table, steps], [Picture("kappa", caption, [bars])], facts)


def _widest(by_seed: Mapping[str, Mapping[int, float]]) -> list[float | None]:
    """The largest difference between two kappas, paired over seeds, and the half-width of its 95 % interval."""
    gaps = [gap.estimate for gap in differences(by_seed)]
    most = max(gaps, key=lambda gap: abs(gap.mean), default=None)
    return [0.0, None] if most is None else [abs(most.mean), most.half]


def _normalised(values: dict[float, float]) -> dict[float, float]:
    largest = max(values.values(), default=1.0)
    return {key: value / largest for key, value in values.items()}


def _mean(runs: list[Trace], figure: Any) -> float:
    return Estimate.of([float(figure(trace)) for trace in runs]).mean
