"""`study few-clients`: how many groups FedGSP should form with 15, 40 or 100 clients, by figures on validation samples only.

The paper's Log(2, 10) counts groups: with 15 clients there is never a chain. It stands against the same growth in proportion to
the number of clients and against chains of a given length, each with ICG's leftovers sitting out and dealt, and against FedAvg
and ours. Test samples are not looked at: what a default should be is chosen here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.methods import named
from fedgsp.plan import ICG, Grouped, Log, OfLength, Proportional
from fedgsp.run.metrics import final
from fedgsp.study.findings import Findings
from fedgsp.study.history import cut
from fedgsp.study.noise import Estimate
from fedgsp.study.paper.dealing import Dealing
from fedgsp.study.paper.presets import Preset
from fedgsp.study.tables import Column, Table, number, percent
from fedgsp.study.targets import window_of

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.plan import Growth
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Trace

TITLE = "How many groups with few clients"
PAPER = "the paper's Log(2, 10)"
GROWTHS: Mapping[str, Growth] = {
    PAPER: Log(2, 10),
    "in proportion": Proportional(Log(2, 10)),
    "chains of 4": OfLength(4),
    "chains of 8, halved every 5 rounds": OfLength(8, halve_every=5),
}
DEALT = ", leftovers dealt"
OURS = ("chains-then-adam", "long-chains-then-adam")
OTHERS = ("fedavg", *OURS)
STEPS = "serial_steps_total"
CLOSE = 0.01
"""A point of validation accuracy: with one seed less is not told apart."""


@dataclass(frozen=True)
class FewRuns:
    """Dealing -> setting -> its runs; settings in which nobody is left over are not run twice."""

    runs: dict[Dealing, dict[str, list[Trace]]]
    left_out: dict[int, dict[str, float]]


def gather(runner: PaperRunner) -> FewRuns:
    """Dealing by dealing."""
    preset, found = runner.preset, FewRuns({}, {})
    methods = {name: runner.tuned(name, preset.table).method for name in ("fedavg", "fedgsp")}
    for name in OURS:
        ours = named(name)
        methods[name] = replace(ours, local=replace(ours.local, batch_size=preset.batch_size))
    for count in preset.few_clients:
        settings = {name: methods[name] for name in OTHERS} | _growths(methods["fedgsp"], count, preset.few.rounds)
        found.left_out[count] = {
            name: _share_left_out(method, count, preset.few.rounds) for name, method in settings.items() if name not in OTHERS
        }
        for skew in preset.few_skews:
            here = runner.dealt(dealing := Dealing(skew, count))
            found.runs[dealing] = {
                name: [
                    here.trace(f"tuning {name}", here.config(replace(method, name=name), preset.few, seed).on_validation())
                    for seed in here.seeds(preset.few)
                ]
                for name, method in settings.items()
            }
    return found


def _growths(base: Method, clients: int, rounds: int) -> dict[str, Method]:
    found: dict[str, Method] = {}
    for name, growth in GROWTHS.items():
        for ending, grouper in (("", ICG()), (DEALT, ICG(leftovers="deal"))):
            assert isinstance(base.planner, Grouped)
            method = replace(base, planner=replace(base.planner, growth=growth, grouper=grouper))
            if not ending or _share_left_out(found[name], clients, rounds):
                found[name + ending] = method
    return found


def _share_left_out(method: Method, clients: int, rounds: int) -> float:
    """The share of clients that are in no group, mean over the rounds."""
    return fmean(1 - method.planner.schedule(r, clients).grouped / clients for r in range(1, rounds + 1))


def show(runner: PaperRunner, found: FewRuns) -> Findings:
    """A table for each number of clients, and what is chosen by it."""
    arm = runner.preset.few
    facts: dict[str, Any] = {
        "model": arm.model,
        "rounds": arm.rounds,
        "seeds": len(runner.seeds(arm)),
        "chosen": {},
        "figures": {},
    }
    tables, notes = [], []
    for count in runner.preset.few_clients:
        here = {dealing.skew: by_name for dealing, by_name in found.runs.items() if dealing.clients == count}
        figures = _figures(here)
        tables.append(_table(count, here, figures, found.left_out[count]))
        chosen = choice(figures)
        facts["chosen"][str(count)], facts["figures"][str(count)] = chosen, figures
        notes.append(_sentence(count, chosen, figures))
    window = window_of(runs for by_name in found.runs.values() for runs in by_name.values())
    notes.append(
        f"By the final accuracy ({window}) on validation samples after {arm.rounds} rounds, {arm.model}, "
        f"{facts['seeds']} seed(s), mean over {', '.join(runner.preset.few_skews)}: a growth takes the place of the paper's "
        f"if it is ahead by more than {100 * CLOSE:.0f} point(s) at equal rounds and is not behind by as much at equal "
        f"serial steps. {_cut(runner)}With one seed that is no proof; learning rates are those that were tuned for 368 clients."
    )
    return Findings("few-clients", TITLE, tables, [], facts, notes)


def _cut(runner: PaperRunner) -> str:
    left = [f"{count} clients" for count in Preset.few_clients if count not in runner.preset.few_clients]
    left += [skew for skew in Preset.few_skews if skew not in runner.preset.few_skews]
    return f"Cut for time: {', '.join(left)}. " if left else ""


Figures = dict[str, dict[str, float]]


def _figures(by_skew: Mapping[str, Mapping[str, Sequence[Trace]]]) -> Figures:
    """Setting -> mean accuracy at equal rounds and at equal steps, and serial steps in all; without what diverged."""
    names = [n for n in next(iter(by_skew.values())) if not any(t.diverged for runs in by_skew.values() for t in runs[n])]
    budget = {
        skew: min((t.history[-1][STEPS] for name in names for t in runs[name]), default=0) for skew, runs in by_skew.items()
    }
    return {
        name: {
            "rounds": fmean(final(t.history, "accuracy") for runs in by_skew.values() for t in runs[name]),
            "steps": fmean(cut(t.history, STEPS, budget[skew])[0] for skew, runs in by_skew.items() for t in runs[name]),
            "serial_steps": fmean(t.history[-1][STEPS] for runs in by_skew.values() for t in runs[name]),
        }
        for name in names
    }


def choice(figures: Figures) -> str:
    """The growth that should be the default: the paper's, unless another is ahead and not behind at equal steps.

    Args:
        figures: Setting -> accuracy at equal rounds ("rounds") and at equal serial steps ("steps").

    Example:
        >>> even = {"rounds": 0.7, "steps": 0.7}
        >>> choice({PAPER: even, "chains of 4": {"rounds": 0.8, "steps": 0.7}, "in proportion": {"rounds": 0.9, "steps": 0.6}})
        'chains of 4'
        >>> choice({PAPER: even, "chains of 4": {"rounds": 0.705, "steps": 0.9}})
        "the paper's Log(2, 10)"
    """
    paper = figures[PAPER]
    better = {
        name: told["rounds"]
        for name, told in figures.items()
        if name not in OTHERS and told["rounds"] > paper["rounds"] + CLOSE and told["steps"] > paper["steps"] - CLOSE
    }
    return max(better, key=lambda name: better[name]) if better else PAPER


def _sentence(count: int, chosen: str, figures: Figures) -> str:
    told = figures[chosen]
    kept = "stays" if chosen == PAPER else f"would be {chosen}"
    others = ", ".join(
        f"{name} {100 * figures[name]['rounds']:.1f} ({100 * figures[name]['steps']:.1f})" for name in (PAPER, *OTHERS)
        if name in figures and name != chosen
    )  # fmt: skip
    top = max(figures, key=lambda name: figures[name]["rounds"])
    ahead = "" if top == chosen else f" The highest at equal rounds is {top}, {100 * figures[top]['rounds']:.1f} %."
    return (
        f"{count} clients: by these figures the default {kept}: {100 * told['rounds']:.1f} % at equal rounds and "
        f"{100 * told['steps']:.1f} % at equal serial steps; {others}.{ahead}"
    )


def _table(
    count: int, by_skew: Mapping[str, Mapping[str, Sequence[Trace]]], figures: Figures, left_out: Mapping[str, float]
) -> Table:
    lines = []
    for name in next(iter(by_skew.values())):
        ends = [_end(runs[name]) for runs in by_skew.values()]
        told = figures.get(name)
        lines.append((name, *ends, *(None if told is None else told[what] for what in ("rounds", "steps", "serial_steps")),
                      left_out.get(name)))  # fmt: skip
    return Table(
        f"few-clients-{count}", f"{count} clients, validation accuracy %",
        (Column("setting"), *(Column(skew, percent) for skew in by_skew), Column("mean", percent),
         Column("mean at equal serial steps", percent), Column("serial steps", number()),
         Column("clients in no group %", percent)), lines, kept=False,
    )  # fmt: skip


def _end(runs: Sequence[Trace]) -> Estimate | str:
    if any(trace.diverged for trace in runs):
        return "diverged"
    return Estimate.of([final(trace.history, "accuracy") for trace in runs])
