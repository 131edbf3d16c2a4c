"""`study skew`: {random, ICG, Balanced} x {static, STP, ours}, FedAvg and FedAdam over label skew and the number of clients.

The same samples are dealt to 40, 100 and 368 clients in five ways. Methods keep the settings that tuning chose on validation
samples of the data as it is: nothing is tuned anew for a dealing. Each figure is given at equal rounds, at equal serial steps
and at equal bytes; the budgets of a dealing are what its thriftiest method takes in all its rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.methods import named
from fedgsp.plan import ICG, Balanced, Constant, Fixed, Grouped, Log, Random, Switch
from fedgsp.report.study_figures import HeatMap, Picture
from fedgsp.run.metrics import final
from fedgsp.study.findings import Findings
from fedgsp.study.history import cut
from fedgsp.study.noise import Estimate
from fedgsp.study.paper.dealing import Dealing
from fedgsp.study.paper.presets import Preset
from fedgsp.study.tables import Column, Table, percent
from fedgsp.study.targets import window_of

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.plan import Grouper, Planner
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Trace

TITLE = "Methods over label skew and the number of clients"
GROUPERS: Mapping[str, Grouper] = {"random": Random(), "ICG": ICG(), "Balanced": Balanced()}
SINGLE = ("fedavg", "fedadam", "chains-then-adam", "long-chains-then-adam")
STATIC, STP, OURS = "static", "STP", "capped"
KINDS = (STATIC, STP, OURS)
EVERYWHERE = (*SINGLE, "ICG static", "random STP", "ICG STP", "Balanced STP", "ICG capped")
"""What is run with every number of clients; the other combinations only where the preset says so."""
BUDGETS = {"round": "rounds", "serial_steps_total": "serial steps", "bytes_total": "bytes"}


@dataclass(frozen=True)
class SkewRuns:
    """Dealing -> method -> its runs, a seed each, and the settings that the methods have everywhere."""

    runs: dict[Dealing, dict[str, list[Trace]]]
    facts: dict[Dealing, dict[str, Any]]
    settings: dict[str, str]


def rows() -> tuple[str, ...]:
    """The names of all rows, in the order of the tables."""
    return (*SINGLE, *(f"{grouper} {kind}" for kind in KINDS for grouper in GROUPERS))


def gather(runner: PaperRunner) -> SkewRuns:
    """Dealing by dealing, so that what is there when the time is over can be compared."""
    preset = runner.preset
    wanted = [name for name in rows() if not runner.methods or name in runner.methods]
    methods, settings = _methods(runner, wanted)
    found = SkewRuns({}, {}, settings)
    counts = [count for count in preset.skew_clients if count <= runner.facts.clients]
    for count in sorted(counts, key=lambda count: count not in preset.skew_whole):
        for skew in preset.skews:
            dealing = Dealing(skew, count)
            here = runner.dealt(dealing)
            found.facts[dealing] = runner.dealing_facts(dealing)
            names = [name for name in methods if count in preset.skew_whole or name in EVERYWHERE]
            found.runs[dealing] = {name: here.traces(name, methods[name], preset.skew) for name in names}
    return found


def _methods(runner: PaperRunner, names: Sequence[str]) -> tuple[dict[str, Method], dict[str, str]]:
    """Every row's method with the settings that tuning chose for the method it is made of."""
    arm, preset = runner.preset.table, runner.preset
    chosen = {name: runner.tuned(name, arm) for name in ("fedavg", "fedadam", "naive-gsp-icg", "fedgsp")}
    found: dict[str, Method] = {}
    settings: dict[str, str] = {}
    for name in names:
        if name in chosen:
            found[name], settings[name] = chosen[name].method, chosen[name].label
        elif name in SINGLE:
            method = named(name)
            found[name] = replace(method, local=replace(method.local, batch_size=preset.batch_size))
            settings[name] = "its preset"
        else:
            grouper, kind = name.split()
            how, kappa = GROUPERS[grouper], preset.skew_kappa
            base = chosen["naive-gsp-icg" if kind == STATIC else "fedgsp"]
            planner = (
                Grouped(Constant(preset.beta), Fixed(how), kappa)
                if kind == STATIC
                else Grouped(Log(2, preset.beta), how, kappa)
            )
            capped = named("fedgsp-capped")
            local = replace(base.method.local, lr=capped.local.lr) if kind == OURS else base.method.local
            server = capped.server if kind == OURS else base.method.server
            found[name] = replace(base.method, planner=planner, local=local, server=server)
            settings[name] = "its preset" if kind == OURS else base.label
    return {
        name: replace(method, planner=_thrifty(method.planner, preset.skew_kappa)) for name, method in found.items()
    }, settings


def _thrifty(planner: Planner, kappa: float) -> Planner:
    """The same plan with another share of groups."""
    if isinstance(planner, Switch):
        return replace(planner, then=_thrifty(planner.then, kappa))
    assert isinstance(planner, Grouped)
    return replace(planner, kappa=kappa)


def show(runner: PaperRunner, found: SkewRuns) -> Findings:
    """A table for each budget, methods down and dealings across; a map of the accuracy at equal serial steps."""
    arm = runner.preset.skew
    dealings = sorted(found.runs, key=lambda one: (one.clients, runner.preset.skews.index(one.skew)))
    names = [name for name in rows() if any(name in found.runs[dealing] for dealing in dealings)]
    budgets = {dealing: {key: _least(found.runs[dealing], key) for key in BUDGETS} for dealing in dealings}
    ends: dict[str, dict[str, dict[str, float | None]]] = {key: {} for key in BUDGETS}
    tables = []
    for key, words in BUDGETS.items():
        lines = []
        for name in names:
            cells = [_cell(found.runs[dealing].get(name), key, budgets[dealing][key]) for dealing in dealings]
            lines.append((name, *cells))
            ends[key][name] = {
                d.label: c.mean if isinstance(c, Estimate) else None for d, c in zip(dealings, cells, strict=True)
            }
        tables.append(_table(key, words, dealings, lines, budgets, arm.rounds))
    facts = {
        "model": arm.model, "rounds": arm.rounds, "seeds": len(runner.seeds(arm)), "settings": found.settings,
        "dealings": {dealing.label: found.facts[dealing] for dealing in dealings},
        "budgets": {dealing.label: budgets[dealing] for dealing in dealings}, "accuracy": ends,
        "leads": {key: _leads(ends[key]) for key in BUDGETS},
    }  # fmt: skip
    return Findings("skew", TITLE, tables, [_picture(ends["serial_steps_total"], dealings, arm.model)], facts,
                    _notes(runner, found, dealings, facts))  # fmt: skip


def _least(runs: Mapping[str, Sequence[Trace]], key: str) -> float:
    return min((float(t.history[-1][key]) for several in runs.values() for t in several if not t.diverged), default=0.0)


def _cell(runs: Sequence[Trace] | None, key: str, budget: float) -> Estimate | str | None:
    """The final accuracy within a budget; nothing where the first round alone takes more."""
    if runs is None:
        return None
    if any(trace.diverged for trace in runs):
        return "diverged"
    if any(trace.history[0][key] > budget for trace in runs):
        return None
    return Estimate.of([cut(trace.history, key, budget)[0] for trace in runs])


def _table(
    key: str, words: str, dealings: Sequence[Dealing], lines: Sequence[Sequence[Any]],
    budgets: Mapping[Dealing, Mapping[str, float]], rounds: int,
) -> Table:  # fmt: skip
    columns = [Column("method"), *(Column(dealing.label, percent) for dealing in dealings)]
    spans = {
        "round": f"{rounds} rounds",
        "serial_steps_total": "in the order of the columns " + ", ".join(f"{budgets[d][key]:,.0f}" for d in dealings),
        "bytes_total": "in the order of the columns " + ", ".join(f"{budgets[d][key] / 1e6:,.0f} MB" for d in dealings),
    }
    return Table(
        f"skew-{words.replace(' ', '-')}", f"Accuracy % at equal {words}", columns, lines,
        f"The budget: {spans[key]}. - : not run, or its first round alone takes more.", kept=key == "round",
    )  # fmt: skip


def _leads(ends: Mapping[str, Mapping[str, float | None]]) -> dict[str, str]:
    """Dealing -> the method with the highest accuracy there."""
    labels = dict.fromkeys(label for by_label in ends.values() for label in by_label)
    found = {}
    for label in labels:
        known = {name: value for name, by_label in ends.items() if (value := by_label.get(label)) is not None}
        if known:
            found[label] = max(known, key=lambda name: known[name])
    return found


def _picture(ends: Mapping[str, Mapping[str, float | None]], dealings: Sequence[Dealing], model: str) -> Picture:
    names = [name for name in EVERYWHERE if name in ends]
    panels = []
    known = [100 * v for name in names for v in ends[name].values() if v is not None] or [0.0, 100.0]
    for count in dict.fromkeys(dealing.clients for dealing in dealings):
        here = [dealing for dealing in dealings if dealing.clients == count]
        values = [[None if (v := ends[name].get(d.label)) is None else 100 * v for d in here] for name in reversed(names)]
        panels.append(
            HeatMap(f"{count} clients", "", "", [d.skew for d in here], names[::-1], values, min(known), max(known), most=True)
        )
    return Picture("skew", f"Test accuracy % at equal serial steps ({model}); light is high.", [[panel] for panel in panels])


def _notes(runner: PaperRunner, found: SkewRuns, dealings: Sequence[Dealing], facts: Mapping[str, Any]) -> list[str]:
    arm, preset = runner.preset.skew, runner.preset
    seeds = len(runner.seeds(arm))
    skewed = ", ".join(f"{d.label}: {found.facts[d]['label_skew']:.0f}" for d in dealings)
    window = window_of(runs for by_name in found.runs.values() for runs in by_name.values())
    noise = "one seed, so differences of a point or two are not to be told from noise" if seeds == 1 else f"{seeds} seeds"
    wins = {
        words: ", ".join(f"{name} {sum(lead == name for lead in leads.values())}" for name in dict.fromkeys(leads.values()))
        for key, words in BUDGETS.items() if (leads := facts["leads"][key])
    }  # fmt: skip
    cut_ = [count for count in preset.skew_clients if count not in preset.skew_whole]
    counts = ", ".join(str(count) for count in Preset.skew_clients if count not in preset.skew_clients)
    left = (
        f" Cut for time: with {', '.join(map(str, cut_))} clients only {len(EVERYWHERE)} of the {len(rows())} rows"
        + (f"; {counts} clients." if counts else ".")
        if cut_ and not runner.methods else ""
    )  # fmt: skip
    return [
        f"{arm.model}, {arm.rounds} rounds, final figures ({window}), {noise}. Columns: how the samples are dealt, and to how "
        f"many clients; {skewed} (label skew: 0 is what random shares have, 100 is one class a client). Settings were tuned on "
        f"validation samples of the data as it is and carried over; nothing was tuned for a dealing, the growth is the "
        f"paper's Log(2, {preset.beta}) whatever the number of clients, and kappa is {preset.skew_kappa:g}.{left}",
        "How often each has the highest accuracy: "
        + "; ".join(f"at equal {words}: {counts}" for words, counts in wins.items()) + ".",
        *_grouping(found, dealings),
    ]  # fmt: skip


def _grouping(found: SkewRuns, dealings: Sequence[Dealing]) -> list[str]:
    """What ICG and Balanced are worth over random groups in STP, by skew."""
    said = []
    for skew in dict.fromkeys(dealing.skew for dealing in dealings):
        here = [found.runs[d] for d in dealings if d.skew == skew]
        gains = []
        for grouper in ("ICG", "Balanced"):
            pairs = [
                final(a.history, "accuracy") - final(b.history, "accuracy")
                for runs in here if f"{grouper} {STP}" in runs and f"random {STP}" in runs
                for a, b in zip(runs[f"{grouper} {STP}"], runs[f"random {STP}"], strict=True)
                if not a.diverged and not b.diverged
            ]  # fmt: skip
            if pairs:
                gains.append(f"{grouper} {100 * fmean(pairs):+.1f}")
        if gains:
            said.append(f"{skew}: {', '.join(gains)}")
    return (
        [f"Points over random groups in STP after all rounds, mean over the numbers of clients: {'; '.join(said)}."]
        if said
        else []
    )
