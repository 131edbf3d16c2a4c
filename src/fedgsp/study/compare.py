"""`fedgsp compare`: methods side by side on the user's own data, run here or finished before.

One table: how good, for whom (the worst decile of clients), and what it took to reach a target; the curves; and a sentence
that says which differences are larger than the noise. Methods that do not yield one model for everybody (several, or none at
all) have a table of their own: their figures answer another question.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError
from fedgsp.methods import named
from fedgsp.report.study_figures import brief
from fedgsp.run.metrics import evaluations, final, last
from fedgsp.study.curve_picture import curves_picture
from fedgsp.study.findings import Findings
from fedgsp.study.history import worst_decile
from fedgsp.study.noise import Estimate, differences, sentence
from fedgsp.study.records import Trace
from fedgsp.study.tables import Column, Table, bytes_, number, percent
from fedgsp.study.targets import mean_or_none, reached, window_of

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.study.finished import FinishedRun
    from fedgsp.study.records import Arm
    from fedgsp.study.study_runner import StudyRunner

TITLE = "Methods compared"


@dataclass(frozen=True)
class Entrant:
    """A method in one setting: a run for each of its seeds, whether it yields one model, several or none, and its score.

    `score` is the task's metric that is better when it is higher. None: accuracy where there is one, else the loss.
    """

    name: str
    traces: dict[int, Trace]
    yields: str = "one"
    score: str | None = None

    @property
    def diverged(self) -> bool:
        """Whether a seed ran away."""
        return any(trace.diverged for trace in self.traces.values())


@dataclass(frozen=True)
class CompareOptions:
    """How to compare.

    Args:
        fleet: The fleet that time is estimated for.
        target: Rounds, steps, traffic and time are those until this is reached. None: what the weakest method has at its end.
    """

    fleet: str = "paper"
    target: float | None = None


def run_methods(
    runner: StudyRunner, names: Sequence[str | tuple[str, Method]], arm: Arm, *, lr: float | None = None, holdout: int = 0
) -> list[Entrant]:
    """Run every method with every seed of the series.

    Args:
        runner: Runs them.
        names: Names of methods, or methods under names of one's own.
        arm: Model, rounds and seeds.
        lr: Learning rate of every method. None: each method's own.
        holdout: How many clients never train.

    Returns:
        The runs, method by method.

    Raises:
        InputError: A name is unknown, or named twice.
    """
    pairs = [(one, named(one)) if isinstance(one, str) else one for one in names]  # refuses an unknown name first
    labels = [label for label, _ in pairs]
    doubled = [label for at, label in enumerate(labels) if label in labels[:at]]
    if doubled:
        raise InputError(f"the method '{doubled[0]}' is named twice.")
    methods = {label: _with_rate(method, lr) for label, method in pairs}
    found = []
    for name, method in methods.items():
        traces = runner.traces(name, method, arm, holdout=holdout)
        found.append(Entrant(name, dict(zip(runner.seeds(arm), traces, strict=True)), method.yields, runner.score))
    return found


def _with_rate(method: Method, lr: float | None) -> Method:
    return method if lr is None else replace(method, local=replace(method.local, lr=lr))


def from_runs(runs: Sequence[FinishedRun]) -> tuple[list[Entrant], list[str]]:
    """Put runs together that differ in nothing but their seed.

    Args:
        runs: Finished runs on the same data.

    Returns:
        (the runs by setting, notes for the page).

    Raises:
        InputError: Two runs have the same configuration and seed.
    """
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(json.dumps(_setting(run), sort_keys=True), []).append(run)
    rounds = min(len(run.history) for run in runs)
    longer = any(len(run.history) > rounds for run in runs)
    notes = [f"The runs have different numbers of rounds: the first {rounds} of each are compared."] if longer else []
    entrants = []
    for group, label in zip(groups.values(), _labels([group[0] for group in groups.values()]), strict=True):
        traces: dict[int, Trace] = {}
        for run in group:
            if run.config.run.seed in traces:
                raise InputError(f"{run.directory} repeats another of the runs: the same configuration with the same seed.")
            traces[run.config.run.seed] = cut_to(run.trace(), rounds)
        entrants.append(Entrant(label, traces, str(group[0].facts["yields"]), group[0].score))
    return entrants, notes


def _setting(run: FinishedRun) -> dict[str, Any]:
    """All that a group of runs has in common."""
    table = run.config.as_dict()
    decides = {key: value for key, value in table["run"].items() if key not in ("seed", "rounds", "workers")}
    return {
        "run": decides,
        "model": table["model"],
        "method": run.method,
        "data": {k: v for k, v in table["data"].items() if k != "source"},
    }


def _labels(runs: Sequence[FinishedRun]) -> list[str]:
    """Method names; where two are the same, with the entries that tell them apart."""
    flat = [_flat(_setting(run)) for run in runs]
    labels = []
    for run, mine in zip(runs, flat, strict=True):
        alike = [other for r, other in zip(runs, flat, strict=True) if r.name == run.name]
        odd = [key for key in mine if any(other.get(key) != mine[key] for other in alike)]
        said = ", ".join(f"{key.rsplit('.', 1)[-1]}={mine[key]}" for key in odd)
        labels.append(f"{run.name} ({said})" if said else run.name)
    return labels


def _flat(table: dict[str, Any], at: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{at}{key}.") if isinstance(value, dict) else {f"{at}{key}": value}
    return found


def cut_to(trace: Trace, rounds: int) -> Trace:
    """The first rounds of a run."""
    seconds, computing = ({f: line[:rounds] for f, line in lines.items()} for lines in (trace.seconds, trace.computing))
    return replace(trace, history=trace.history[:rounds], seconds=seconds, computing=computing)


def compared(entrants: Sequence[Entrant], options: CompareOptions, notes: Sequence[str] = ()) -> Findings:
    """Make the tables, the picture and the sentence on the noise.

    Args:
        entrants: The runs of every method.
        options: Fleet and target.
        notes: What to say above the tables.

    Raises:
        InputError: No run has an evaluation, or every method diverged.
    """
    metric = _metric(entrants)
    single = [entrant for entrant in entrants if entrant.yields == "one"]
    others = [entrant for entrant in entrants if entrant.yields != "one"]
    whole = [entrant for entrant in single if not entrant.diverged]
    if not whole and not others:
        raise InputError("every method diverged; try a smaller learning rate.")
    target = options.target if options.target is not None else _weakest(whole, metric)
    tables, said = [], [*notes]
    window = window_of(entrant.traces.values() for entrant in entrants)
    facts: dict[str, Any] = {"metric": metric, "final": window, "target": target, "fleet": options.fleet}
    if single:
        tables.append(_table(single, metric, target, options.fleet))
        by_seed = {e.name: {s: final(t.history, metric) for s, t in e.traces.items()} for e in whole}
        gaps = differences(by_seed)
        said.append(sentence(gaps, metric) if len(single) > 1 else "One method alone has nothing to be compared with.")
        facts["methods"] = by_seed
        facts["differences"] = [
            {"first": g.first, "second": g.second, "mean": g.estimate.mean, "half": g.estimate.half, "clear": g.clear}
            for g in gaps
        ]
    if others:
        tables.append(_other_table(others, metric, options.fleet))
    drawn = {e.name: list(e.traces.values()) for e in (*whole, *(o for o in others if _evaluated(o) and not o.diverged))}
    score = None if metric == "loss" else metric
    pictures = [curves_picture("compare", drawn, "each method over its seeds", score, (options.fleet,))] if drawn else []
    return Findings("compare", TITLE, tables, pictures, facts, said)


def _metric(entrants: Sequence[Entrant]) -> str:
    """The score of the runs' task, accuracy, or the loss; other metrics may be better large or small: they are not compared."""
    for entrant in entrants:
        for trace in entrant.traces.values():
            for _, figures in evaluations(trace.history):
                known = [name for name in (entrant.score, "accuracy") if name is not None and name in figures]
                return known[0] if known else "loss"
    raise InputError("no run has an evaluation, so nothing can be compared; the data needs test samples.")


def _evaluated(entrant: Entrant) -> bool:
    return all(evaluations(trace.history) for trace in entrant.traces.values())


def _weakest(entrants: Sequence[Entrant], metric: str) -> float | None:
    """What the weakest method has at its end, rounded so that it has reached it itself (a whole per cent, a hundredth)."""
    ends = [Estimate.of([final(trace.history, metric) for trace in e.traces.values()]).mean for e in entrants]
    if not ends:
        return None
    return math.ceil(100 * max(ends)) / 100 if metric == "loss" else math.floor(100 * min(ends)) / 100


def _shown(metric: str) -> tuple[Callable[[float], str], str]:
    """(how a value of a metric is written, its unit): only an accuracy is known to be a share."""
    return (percent, " %") if metric == "accuracy" else (number(4), "")


def _table(entrants: Sequence[Entrant], metric: str, target: float | None, fleet: str) -> Table:
    form, unit = _shown(metric)
    rows: list[tuple[Any, ...]] = []
    for entrant in entrants:
        runs = list(entrant.traces.values())
        if entrant.diverged:
            rows.append((entrant.name, "diverged", *[None] * 7, len(runs)))
            continue
        taken = [None if target is None else reached(trace, target, metric=metric) for trace in runs]
        time = [None if one is None else one.seconds.get(fleet) for one in taken]
        rows.append(
            (
                entrant.name, Estimate.of([final(t.history, metric) for t in runs]),
                Estimate.of([end[1][metric] for t in runs if (end := last(t.history, metric)) is not None]),
                Estimate.of([worst_decile(t.history, metric) for t in runs]),
                *([] if metric == "loss" else [Estimate.of([final(t.history, "loss") for t in runs])]),
                *(mean_or_none(taken, what) for what in ("rounds", "serial_steps", "bytes")),
                None if any(t is None for t in time) else sum(t for t in time if t is not None) / len(time), len(runs),
            )
        )  # fmt: skip
    goal = "-" if target is None else f"{100 * target:.4g} %" if unit else f"{target:g}"
    columns = [
        Column("method"), Column(f"{metric}{unit}", form), Column(f"last round{unit}", form),
        Column(f"worst-decile client{unit}", form),
        *([] if metric == "loss" else [Column("loss", number(3))]), Column(f"rounds to {goal}", number(1)),
        Column("serial steps", number()), Column("traffic", bytes_), Column(f"time on '{fleet}' s", brief), Column("seeds"),
    ]  # fmt: skip
    rows = [row if len(row) == len(columns) else (*row[: len(columns) - 1], row[-1]) for row in rows]
    return Table(
        "compare", f"After {_rounds(entrants)} rounds",
        columns, rows,
        f"Final figures ({window_of(e.traces.values() for e in entrants)}), the last round's beside them, on test samples, as "
        f"LEAF weighs clients; ± is a 95 % interval over seeds (Student's t). Worst decile: nine clients in ten do better. "
        f"Rounds, steps, traffic and time are those until {goal} is first reached, the mean over seeds; - where one did not "
        f"get there.",
    )  # fmt: skip


def _other_table(entrants: Sequence[Entrant], metric: str, fleet: str) -> Table:
    form, unit = _shown(metric)
    rows: list[tuple[Any, ...]] = []
    for entrant in entrants:
        runs = list(entrant.traces.values())
        if entrant.diverged:
            rows.append((entrant.name, entrant.yields, "diverged", None, None, None, len(runs)))
            continue
        rows.append(
            (
                entrant.name, entrant.yields,
                Estimate.of([final(t.history, metric) for t in runs]) if _evaluated(entrant) else None,
                *(Estimate.of([t.history[-1][key] for t in runs]) for key in ("serial_steps_total", "bytes_total")),
                Estimate.of([t.seconds[fleet][-1] for t in runs]) if all(t.seconds for t in runs) else None, len(runs),
            )
        )  # fmt: skip
    return Table(
        "compare-others", "Methods that do not yield one model for everybody",
        (Column("method"), Column("yields"), Column(f"{metric}{unit}", form),
         Column("serial steps", number()), Column("traffic", bytes_), Column(f"time on '{fleet}' s", brief), Column("seeds")),
        rows,
        f"After {_rounds(entrants)} rounds ({window_of(e.traces.values() for e in entrants)}); each client is evaluated on the "
        f"model that is meant for it.",
    )  # fmt: skip


def _rounds(entrants: Sequence[Entrant]) -> int:
    return max((len(trace.history) for entrant in entrants for trace in entrant.traces.values()), default=0)
