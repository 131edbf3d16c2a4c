"""`study rivals`: every method of the package at equal rounds, at equal serial steps and at equal traffic.

At the paper's learning rate and tuned on validation samples. The budgets are those of the thriftiest method with one global
model, so that every such method reaches them: what a method needs is a question to `curves` and `cost-to-target`. Methods that
yield several models, none, or personalised ones are about something else and stand in tables of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.method import EVALUATED_ON
from fedgsp.methods import METHODS, named
from fedgsp.run.metrics import final
from fedgsp.study.findings import Findings
from fedgsp.study.history import cut
from fedgsp.study.noise import Estimate, differences, sentence
from fedgsp.study.paper.rows import OURS
from fedgsp.study.paper.table import TunedRuns, gathered
from fedgsp.study.tables import Column, Table, bytes_, number, percent
from fedgsp.study.targets import window_of

if TYPE_CHECKING:
    from fedgsp.core.state import Yields
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Trace

TITLE = "Every method at equal rounds, serial steps and traffic"
COMBINED = ("fedgsp+momentum", "fedgsp+yogi", "fedgsp+prox")
"""Rows beside those of the table of methods: FedGSP's chains with the parts of others."""
OTHERS = tuple(name for name in METHODS if name not in OURS)
"""Ours have a study of their own."""
BUDGETS = ("round", "serial_steps_total", "bytes_total")


def gather(runner: PaperRunner) -> TunedRuns:
    """Tune every method on validation samples, then run both settings."""
    return gathered(runner, runner.preset.rivals, runner.methods or (*OTHERS, *COMBINED))


def show(runner: PaperRunner, found: TunedRuns) -> Findings:
    """A table for each kind of method."""
    arm = runner.preset.rivals
    kinds = {name: named(name).yields for name in found.paper}
    of_one = [name for name, kind in kinds.items() if kind == "one"] or list(kinds)
    budgets = [float(arm.rounds), *(_least(found, of_one, key, arm.rounds) for key in BUDGETS[1:])]
    tables = [_table(found, kind, names, budgets) for kind, names in _by_kind(kinds)]
    facts: dict[str, Any] = {
        "model": arm.model, "rounds": arm.rounds, "seeds": len(runner.seeds(arm)),
        "budgets": dict(zip(BUDGETS, budgets, strict=True)), "chosen": found.chosen,
        "tuning": runner.sweeps(),
    }  # fmt: skip
    notes = [
        f"Test accuracy in per cent as LEAF weighs it, {arm.model}: the final figure of the rounds within the budget "
        f"(after {arm.rounds} rounds: {window_of(found.paper.values())}), "
        f"± 95 % interval over {len(runner.seeds(arm))} seed(s). Left of each pair: the paper's learning rate "
        f"({runner.preset.lr:g}), kappa {runner.preset.kappa_default:g} for clients or groups that are sampled from all, else "
        f"the method's defaults; right: the best of its grid on validation samples ({runner.preset.tune_rounds} rounds, "
        f"seed 0). The budgets of serial steps and of traffic are what the thriftiest method with one global model takes in "
        f"{arm.rounds} rounds; - where a method's first round alone takes more, or all its rounds less."
    ]
    for setting, words, traces in (("paper", "one learning rate for all", found.paper), ("tuned", "tuned", found.tuned)):
        pairs = list(zip(BUDGETS, budgets, strict=True))
        facts[setting] = {name: [_facts(runs, *pair) for pair in pairs] for name, runs in traces.items()}
        ends = {
            name: {seed: final(trace.history, "accuracy") for seed, trace in enumerate(runs) if not trace.diverged}
            for name, runs in traces.items()
        }
        whole = len(runner.seeds(arm))  # a method that diverged has no pair for some seed, and would cost all others theirs
        comparable = {name: ends[name] for name in of_one if len(ends.get(name, ())) == whole}
        said = sentence(differences(comparable, "fedgsp"), "accuracy") if "fedgsp" in comparable else ""
        notes += [f"After {arm.rounds} rounds, {words}, FedGSP against each: {said}"] if said else []
    return Findings("rivals", TITLE, tables, [], facts, notes)


def _by_kind(kinds: Mapping[str, Yields]) -> Iterable[tuple[Yields, list[str]]]:
    for kind in EVALUATED_ON:
        names = [name for name, its in kinds.items() if its == kind]
        if names:
            yield kind, names


def _table(found: TunedRuns, kind: Yields, names: Sequence[str], budgets: Sequence[float]) -> Table:
    rounds, steps, traffic = budgets
    columns = [Column("method")]
    for head in (f"{rounds:.0f} rounds", f"{steps:,.0f} serial steps", bytes_(traffic)):
        columns += [Column(head, percent), Column(f"{head}, tuned", percent)]
    columns += [Column("chosen"), Column("serial steps a round", number()), Column("handed on a round", bytes_)]
    rows = []
    for name in names:
        pair = (found.paper[name], found.tuned[name])
        cells = [_cell(runs, key, budget) for key, budget in zip(BUDGETS, budgets, strict=True) for runs in pair]
        whole = [trace.history[: int(rounds)] for runs in pair for trace in runs if not trace.diverged]
        cost = [fmean(entry[key] for entry in whole[0]) if whole else None for key in ("serial_steps", "bytes")]
        rows.append((name, *cells, found.chosen[name].replace(",", ", "), *cost))
    title = EVALUATED_ON[kind][0].upper() + EVALUATED_ON[kind][1:]
    apart = "" if kind == "one" else " (not comparable with the other tables)"
    return Table(f"rivals-{kind}", title + apart, columns, rows, kept=kind == "one")


def _cell(runs: Sequence[Trace], key: str, budget: float) -> Estimate | str | None:
    """Accuracy within a budget, if every seed has such."""
    if any(trace.diverged for trace in runs):
        return "diverged"
    found = [cut(trace.history, key, budget) for trace in runs]
    fits = all(reached for _, reached in found) and all(trace.history[0][key] <= budget for trace in runs)
    return Estimate.of([value for value, _ in found]) if fits else None


def _facts(runs: Sequence[Trace], key: str, budget: float) -> float | None:
    cell = _cell(runs, key, budget)
    return cell.mean if isinstance(cell, Estimate) else None


def _least(found: TunedRuns, names: Sequence[str], key: str, rounds: int) -> float:
    """What the thriftiest run of these takes in so many rounds; 0 if none came so far."""
    journals = [t.history for name in names for runs in (found.paper[name], found.tuned[name]) for t in runs if not t.diverged]
    return min((float(history[rounds - 1][key]) for history in journals), default=0.0)
