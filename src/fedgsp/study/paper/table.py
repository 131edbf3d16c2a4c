"""`study table`: accuracy, loss and rounds to target of all methods, at the paper's learning rate and tuned (Table 1).

The average gaps are taken as the paper takes them: accuracy and loss against the mean of the seven rivals (FedAvg is not among
them), rounds against the mean of those rivals that reached the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.methods import METHODS
from fedgsp.report.study_figures import BarChart, Picture
from fedgsp.run.metrics import final
from fedgsp.study.findings import Findings
from fedgsp.study.noise import Estimate, differences, sentence
from fedgsp.study.paper.long_table import LongRuns, gather_long, long_facts, long_table, tuning_table
from fedgsp.study.paper.rows import PAPER, PAPER_END, PAPER_TARGET, RIVALS
from fedgsp.study.records import Trace
from fedgsp.study.tables import Column, Table, number, percent
from fedgsp.study.targets import mean_or_none, reached, scaled, window_of

if TYPE_CHECKING:
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Arm

TITLE = "FedGSP against FedAvg and the seven rivals"


@dataclass(frozen=True)
class TunedRuns:
    """Runs with the paper's values, runs with tuned ones, and what was chosen."""

    paper: dict[str, list[Trace]]
    tuned: dict[str, list[Trace]]
    chosen: dict[str, str]
    long: LongRuns | None = None


def gather(runner: PaperRunner) -> TunedRuns:
    """The paper's methods, or those that are asked for."""
    found = gathered(runner, runner.preset.table, runner.methods or ("fedavg", *RIVALS, "fedgsp"), wider=True)
    return replace(found, long=gather_long(runner))


def gathered(runner: PaperRunner, arm: Arm, names: Iterable[str], *, wider: bool = False) -> TunedRuns:
    """Tune every method on validation samples, then run both settings."""
    found = TunedRuns({}, {}, {})
    for name in names:
        best = runner.tuned(name, arm, wider=wider)
        found.chosen[name] = best.label
        found.paper[name] = runner.traces(name, runner.method(name), arm)
        found.tuned[name] = runner.traces(f"{name} tuned", best.method, arm)
    return found


def all_methods() -> tuple[str, ...]:
    """Every named method that yields one model, which is what the table's columns are about."""
    return tuple(name for name, row in METHODS.items() if row.make().yields == "one")


def show(runner: PaperRunner, found: TunedRuns) -> Findings:
    """Table 1, with the paper's numbers beside ours, and the average gaps."""
    arm = runner.preset.table
    target = scaled(found.paper.get("fedavg", []), runner.preset.target)
    rows = [
        (name, *_figures(found.paper[name], target), found.chosen[name].replace(",", ", "),
         *_figures(found.tuned[name], target), *PAPER.get(name, (None, None, None)))
        for name in found.paper
    ]  # fmt: skip
    goal = "the target" if target is None else f"{100 * target:.0f} %"
    table = Table(
        "table", f"After {arm.rounds} rounds, {arm.model}; rounds to {goal}",
        (Column("method"), Column("accuracy %", percent), Column("loss", number(3)), Column("rounds", number()),
         Column("chosen"), Column("tuned: accuracy %", percent), Column("tuned: loss", number(3)),
         Column("tuned: rounds", number()), Column("paper: accuracy %", percent), Column("paper: loss", number(3)),
         Column("paper: rounds to 80 %", number())), rows,
        f"First three figures: one learning rate for all, {runner.preset.lr:g} (the paper's is 0.01); tuned: the best of the "
        f"method's grid on validation samples (last table). Accuracy and loss: "
        f"{window_of(found.paper.values())}, ± 95 % interval over seeds; rounds: the mean over seeds, - where one did not get "
        f"there.",
    )  # fmt: skip
    facts: dict[str, Any] = {"model": arm.model, "rounds": arm.rounds, "target": target, "seeds": len(runner.seeds(arm)),
                             "tuning": runner.sweeps()}  # fmt: skip
    gap_rows, notes = [("the paper, 500 rounds", *_gaps(_paper_figures()).values())], []
    for setting, words, traces in (("paper", "one learning rate for all", found.paper), ("tuned", "tuned", found.tuned)):
        ours = {name: _means(runs, target) for name, runs in traces.items()}
        facts[setting] = {name: figures and list(figures) for name, figures in ours.items()}
        by_seed = {n: {s: final(t.history, "accuracy") for s, t in enumerate(r) if not t.diverged} for n, r in traces.items()}
        facts[f"{setting}_by_seed"] = {name: list(values.values()) for name, values in by_seed.items()}
        notes.append(f"{words.capitalize()}, FedGSP against each: {sentence(differences(by_seed, 'fedgsp'), 'accuracy')}")
        if "fedgsp" in ours and ours["fedgsp"] is not None and all(name in ours for name in (*RIVALS, "fedavg")):
            gaps = {**_gaps(ours), "halves": _halves(traces)}
            facts[f"gaps_{setting}"] = gaps
            gap_rows.append((f"here, {words}", *_gaps(ours).values()))
    gaps_table = Table(
        "gaps", "FedGSP against the average of the seven rivals, as the paper takes it",
        (Column("where"), Column("accuracy, points", lambda v: f"{100 * v:+.2f}"), Column("loss", "{:+.3f}".format),
         Column("rounds fewer, %", percent), Column("rivals that reached the target"),
         Column("accuracy against FedAvg, points", lambda v: f"{100 * v:+.2f}")), gap_rows, kept=False,
    )  # fmt: skip
    tables = [table, gaps_table, tuning_table(runner.tunings, runner.preset.tune_rounds, runner.preset.tune_beyond)]
    if found.long is not None:
        seeds = len(runner.seeds(found.long.arm))
        facts["long"] = {**long_facts(found.long, seeds), "gaps_long": _long_gaps(found.long)}
        tables.insert(1, long_table(found.long, seeds, PAPER))
    return Findings("table", TITLE, tables, [_picture(found, arm)], facts, notes)


Means = tuple[float, float, float | None] | None


def _figures(runs: Sequence[Trace], target: float | None) -> tuple[Any, Any, Any]:
    if any(trace.diverged for trace in runs):
        return "diverged", None, None
    taken = None if target is None else mean_or_none([reached(trace, target) for trace in runs], "rounds")
    return (
        Estimate.of([final(trace.history, "accuracy") for trace in runs]),
        Estimate.of([final(trace.history, "loss") for trace in runs]),
        taken,
    )


def _means(runs: Sequence[Trace], target: float | None) -> Means:
    accuracy, loss, rounds = _figures(runs, target)
    return None if isinstance(accuracy, str) else (accuracy.mean, loss.mean, rounds)


def _paper_figures() -> dict[str, Means]:
    return dict(PAPER)


def _gaps(figures: dict[str, Means]) -> dict[str, Any]:
    """Accuracy and loss to the mean of the rivals, rounds to the mean of those that reached the target, accuracy to FedAvg."""
    ours = figures["fedgsp"]
    assert ours is not None
    rivals = [found for name in RIVALS if (found := figures[name]) is not None]
    arrived = [rounds for _, _, rounds in rivals if rounds is not None]
    fewer = 1 - ours[2] / fmean(arrived) if arrived and ours[2] is not None else None
    fedavg = figures["fedavg"]
    return {
        "accuracy": ours[0] - fmean(a for a, _, _ in rivals) if rivals else None,
        "loss": ours[1] - fmean(loss for _, loss, _ in rivals) if rivals else None,
        "fewer_rounds": fewer,
        "arrived": len(arrived),
        "fedavg": ours[0] - fedavg[0] if fedavg is not None else None,
    }


def _long_gaps(long: LongRuns) -> dict[str, Any] | None:
    """The gaps of the longer series, but those that need a method that was cut; None if FedGSP or FedAvg diverged."""
    ours = {name: _means(runs, PAPER_TARGET) for name, runs in long.runs.items()}
    if not {"fedgsp", "fedavg"} <= ours.keys():
        return {"cut": ["accuracy", "loss", "fewer_rounds", "fedavg"]}
    if ours["fedgsp"] is None or ours["fedavg"] is None:
        return None
    whole = all(name in ours for name in RIVALS)
    gaps = _gaps(ours | {name: None for name in RIVALS if name not in ours})
    halves = _halves(long.runs) if whole else dict.fromkeys(("accuracy", "loss", "fedavg"))
    return {**gaps, "halves": halves, "cut": [] if whole else ["accuracy", "loss", "fewer_rounds"]}


def _halves(traces: Mapping[str, Sequence[Trace]]) -> dict[str, float | None]:
    """The half-widths of the gaps' 95 % intervals, paired over seeds; None where a run diverged or there is one seed."""
    named = {name: traces[name] for name in ("fedgsp", "fedavg", *RIVALS)}
    if any(trace.diverged for runs in named.values() for trace in runs):
        return dict.fromkeys(("accuracy", "loss", "fedavg"))
    ends = {
        metric: {name: [final(trace.history, metric) for trace in runs] for name, runs in named.items()}
        for metric in ("accuracy", "loss")
    }

    def half(metric: str, others: Sequence[str]) -> float | None:
        values = ends[metric]
        seeds = range(len(values["fedgsp"]))
        return Estimate.of([values["fedgsp"][s] - fmean(values[name][s] for name in others) for s in seeds]).half

    return {"accuracy": half("accuracy", RIVALS), "loss": half("loss", RIVALS), "fedavg": half("accuracy", ("fedavg",))}


def _picture(found: TunedRuns, arm: Arm) -> Picture:
    series = [("one learning rate for all", arm, found.paper), ("tuned", arm, found.tuned)]
    if found.long is not None:
        series.append(("tuned", found.long.arm, found.long.runs))
    panels = []
    for title, of, traces in series:
        whole = {name: runs for name, runs in traces.items() if not any(trace.diverged for trace in runs)}
        ends = [Estimate.of([final(trace.history, "accuracy") for trace in runs]) for runs in whole.values()]
        means, halves = [one.mean for one in ends], [one.half or 0.0 for one in ends]
        theirs = [PAPER[name][0] if name in PAPER else None for name in whole]
        words = f"{title}, {of.rounds} rounds, {of.model}"
        panels.append(BarChart(words, "", "test accuracy", list(whole), [("", means)], halves, paper=theirs))
    caption = f"Test accuracy, mean and 95 % interval over seeds; the paper's is of leaf_cnn after {PAPER_END} rounds."
    return Picture("table", caption, [[panel] for panel in panels], wide=1.7)
