"""`study cost-to-target`: time and traffic until a target is reached (Figure 6; "93 % less time and traffic").

And the question behind it: in how many rounds, serial SGD steps and bytes does FedGSP reach the accuracy that FedAvg has after
its last round, with the paper's learning rate and with each method's own, on test samples and on clients that never train?
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.cost import FLEETS, paper_costs
from fedgsp.methods import named
from fedgsp.plan import Grouped
from fedgsp.report.study_figures import BarChart, Picture
from fedgsp.run.metrics import HOLDOUT, TEST, final
from fedgsp.study.findings import Findings
from fedgsp.study.paper.rows import PAPER, PAPER_CLIENTS, PAPER_KAPPA, PAPER_TARGET
from fedgsp.study.records import Arm, Trace
from fedgsp.study.tables import Column, Table, bytes_, bytes_unit, number, percent, time_unit_of
from fedgsp.study.targets import Reached, as_fact, mean_or_none, reached, scaled, window_of

if TYPE_CHECKING:
    from fedgsp.study.paper.runner import PaperRunner

TITLE = "Time and traffic to the accuracy of FedAvg"
WORDS = {"fedavg": "FedAvg", "fedgsp": "FedGSP"}
"""The methods, and what the curves call them."""
METHODS = tuple(WORDS)
ONE_LR, TUNED = "one lr", "tuned"
PARTS = {"T_comm": "communication", "T_comp": "computing"}
EVALUATED_ON = {TEST: "test samples", HOLDOUT: "held-out clients"}


@dataclass(frozen=True)
class CostRuns:
    """setting -> method -> runs; `whole` are runs of all clients with the paper's values, by model."""

    held: dict[str, dict[str, list[Trace]]]
    whole: dict[Arm, dict[str, list[Trace]]]
    chosen: dict[str, str]


def gather(runner: PaperRunner) -> CostRuns:
    """FedAvg and FedGSP, the paper's values and tuned, with clients held out; and the curves' runs, which have none."""
    arm, found = runner.preset.cost, CostRuns({ONE_LR: {}, TUNED: {}}, {}, {})
    held_out = _held_out(runner)
    for name in METHODS:
        best = runner.tuned(name, arm, wider=True)
        found.chosen[name] = best.label
        found.held[ONE_LR][name] = runner.traces(f"{name} with {held_out} held out", runner.method(name), arm, holdout=held_out)
        found.held[TUNED][name] = runner.traces(f"{name} tuned with {held_out} held out", best.method, arm, holdout=held_out)
    for curve in runner.preset.curves:
        if all(curve.has(words) for words in WORDS.values()):  # FedAvg's end is the target
            found.whole[curve] = {name: runner.traces(curve.named(name), runner.method(name), curve) for name in METHODS}
    return found


def _held_out(runner: PaperRunner) -> int:
    return max(1, round(runner.preset.holdout * runner.facts.clients))


def show(runner: PaperRunner, gathered: CostRuns) -> Findings:
    """Bars of time and traffic to the target, and what FedAvg's last accuracy costs FedGSP."""
    facts: dict[str, Any] = {"target": {}, "fedavg_end": [], "tuning": runner.sweeps()}
    bars, bar_rows = [], []
    for arm, runs in gathered.whole.items():
        target = scaled(runs["fedavg"], runner.preset.target)
        facts["target"][arm.label] = {
            "model": arm.model, "target": target, "rounds": arm.rounds, "seeds": len(runner.seeds(arm)), "methods": {},
            "to_80": {name: as_fact([reached(trace, PAPER_TARGET) for trace in traces]) for name, traces in runs.items()},
        }  # fmt: skip
        if target is None:
            continue
        costs = {name: _cost(runner, name, traces, target) for name, traces in runs.items()}
        facts["target"][arm.label]["methods"] = costs
        bar_rows += [(arm.label, target, name, *_bar_cells(cost)) for name, cost in costs.items()]
        whole = {name: cost for name, cost in costs.items() if cost is not None}
        if whole:
            bars.append(_panels(arm, target, whole))
    target_table = Table(
        "cost-to-target", f"Until the target is first reached, all clients training, learning rate {runner.preset.lr:g}",
        (Column("model"), Column("target %", percent), Column("method"), Column("rounds", number(1)),
         Column("T_comp s", number(2)), Column("T_comm s", number()), Column("D_comm", bytes_),
         Column("serial steps", number()), Column("bytes, as run", bytes_),
         *(Column(f"s on {fleet}", number(1)) for fleet in FLEETS)), bar_rows,
        "T_comp, T_comm, D_comm: the paper's formulas with its constants, for the rounds it took here. As run, and seconds on "
        "fleets: what really happened, hop by hop. Means over seeds; - where a seed did not get there.",
    )  # fmt: skip
    end_rows = []
    for avg_setting in (ONE_LR, TUNED):
        for gsp_setting in (ONE_LR, TUNED):
            for part, words in EVALUATED_ON.items():
                pairs = list(zip(gathered.held[avg_setting]["fedavg"], gathered.held[gsp_setting]["fedgsp"], strict=True))
                one = _to_fedavgs_end(pairs, part)
                facts["fedavg_end"].append({"fedavg": avg_setting, "fedgsp": gsp_setting, "evaluated_on": part, **one["facts"]})
                end_rows.append((avg_setting, gsp_setting, words, *one["cells"]))
    arm = runner.preset.cost
    end_table = Table(
        "fedavg-end", f"FedGSP until it has what FedAvg has after its {arm.rounds} rounds ({arm.model})",
        (Column("FedAvg with"), Column("FedGSP with"), Column("evaluated on"), Column("FedAvg's end %", percent),
         Column("seeds that got there"), Column("rounds", number(1)), Column("serial steps", number()),
         Column("bytes", bytes_), Column("FedAvg's serial steps", number()), Column("FedAvg's bytes", bytes_),
         Column("rounds fewer %", percent), Column("serial steps fewer %", percent), Column("bytes fewer %", percent)),
        end_rows,
        f"FedAvg's end is its final accuracy ({window_of(runs['fedavg'] for runs in gathered.held.values())}), seed by seed; "
        f"FedGSP's rounds are those until it first has it, the mean over the seeds that got there. {_held_out(runner)} clients "
        f"never train; they are evaluated on all they have. One lr: {runner.preset.lr:g}. Tuned on validation samples: FedAvg "
        f"{gathered.chosen['fedavg']}, FedGSP {gathered.chosen['fedgsp']}.", kept=False,
    )  # fmt: skip
    caption = (
        "Simulated time (the paper's T_comp and T_comm) and traffic (D_comm) until the target is reached; in the first row for "
        "the rounds that the paper prints."
    )
    pictures = [Picture("cost-to-target", caption, [_papers(), *bars])] if bars else []
    return Findings("cost-to-target", TITLE, [target_table, end_table], pictures, facts)


def _cost(runner: PaperRunner, name: str, traces: list[Trace], target: float) -> dict[str, Any] | None:
    """What reaching the target took, by the paper's formulas and as run; None if a seed did not get there."""
    found = [reached(trace, target) for trace in traces]
    rounds = mean_or_none(found, "rounds")
    planner = runner.method(name).planner
    if rounds is None or not isinstance(planner, Grouped):
        return None
    formulas = [
        paper_costs(planner.growth, runner.facts.clients, one.rounds, planner.kappa) for one in found if one is not None
    ]
    return {
        "rounds": rounds,
        "computing": fmean(f.computing for f in formulas),
        "communication": fmean(f.communication for f in formulas),
        "traffic": fmean(f.traffic for f in formulas),
        "serial_steps": mean_or_none(found, "serial_steps"),
        "bytes": mean_or_none(found, "bytes"),
        "by_seed": [
            {
                "rounds": one.rounds,
                "computing": f.computing,
                "communication": f.communication,
                "bytes": one.bytes,
                "serial_steps": one.serial_steps,
                "seconds": one.seconds,
            }
            for one, f in zip((one for one in found if one is not None), formulas, strict=True)
        ],
        "seconds": {fleet: fmean(one.seconds[fleet] for one in found if one is not None) for fleet in FLEETS},
    }


def _bar_cells(cost: dict[str, Any] | None) -> tuple[Any, ...]:
    if cost is None:
        return (None,) * (6 + len(FLEETS))
    names = ("rounds", "computing", "communication", "traffic", "serial_steps", "bytes")
    return (*(cost[name] for name in names), *cost["seconds"].values())


def _papers() -> list[BarChart]:
    """Figure 6: the paper's formulas for the rounds that it prints."""
    costs = {}
    for name in METHODS:
        planner, rounds = named(name).planner, PAPER[name][2]
        assert isinstance(planner, Grouped)
        assert rounds is not None
        found = paper_costs(planner.growth, PAPER_CLIENTS, rounds, PAPER_KAPPA)
        costs[name] = {what: getattr(found, what) for what in ("computing", "communication", "traffic")}
    return _by_formula(f"the paper, to {100 * PAPER_TARGET:.0f} %", costs)


def _panels(arm: Arm, target: float, costs: dict[str, dict[str, Any]]) -> list[BarChart]:
    goal, steps = f"{arm.label}, to {100 * target:.0f} %", [cost["serial_steps"] for cost in costs.values()]
    return [*_by_formula(goal, costs), BarChart(f"serial steps: {goal}", "", "steps", list(costs), [("", steps)])]


def _by_formula(goal: str, costs: dict[str, dict[str, Any]]) -> list[BarChart]:
    time, time_unit = time_unit_of(max(cost["communication"] for cost in costs.values()))
    size, size_unit = bytes_unit(max(cost["traffic"] for cost in costs.values()))
    parts = [(short, [cost[what] / time for cost in costs.values()]) for short, what in PARTS.items()]
    traffic = [cost["traffic"] / size for cost in costs.values()]
    return [
        BarChart(f"time by formula: {goal}", "", time_unit, list(costs), parts),
        BarChart(f"traffic by formula: {goal}", "", size_unit, list(costs), [("", traffic)]),
    ]


def _to_fedavgs_end(pairs: list[tuple[Trace, Trace]], part: str) -> dict[str, Any]:
    """Seed by seed: FedAvg's accuracy at its end, and when FedGSP first has it."""
    whole = [(avg, gsp) for avg, gsp in pairs if not avg.diverged]
    if not whole:
        return {"cells": (None,) * 10, "facts": {"end": None, "reached": []}}
    ends = [final(avg.history, "accuracy", part) for avg, _ in whole]
    found = [reached(gsp, end, part) for (_, gsp), end in zip(whole, ends, strict=True)]
    there: list[Reached] = [one for one in found if one is not None]
    last = [avg.history[-1] for avg, _ in whole]
    theirs = {"rounds": fmean(e["round"] for e in last), "serial_steps": fmean(e["serial_steps_total"] for e in last),
              "bytes": fmean(e["bytes_total"] for e in last)}  # fmt: skip
    ours = {what: fmean(getattr(one, what) for one in there) if there else None for what in theirs}
    fewer = [None if value is None else 1 - value / theirs[what] for what, value in ours.items()]
    return {
        "cells": (
            fmean(ends),
            f"{len(there)} of {len(found)}",
            *ours.values(),
            theirs["serial_steps"],
            theirs["bytes"],
            *fewer,
        ),
        "facts": {"end": ends, "reached": as_fact(found), "theirs": theirs, "ours": ours},
    }
