"""`study ours`: the package's own methods against FedGSP and FedAdam, each with its best known settings, on fresh seeds.

FedGSP and FedAdam take the best of their grids on validation samples, as in `study table`. Ours take their presets, which were
chosen on validation samples of femnist-368 with seed 0. The seeds here chose nothing. A share of the clients never trains;
each figure is given for test samples and for these clients. Differences are paired over seeds; those in final accuracy are
corrected (Holm).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.cost import FLEETS
from fedgsp.method import Method
from fedgsp.methods import named
from fedgsp.run.metrics import HOLDOUT, TEST, final
from fedgsp.study.findings import Findings
from fedgsp.study.noise import Estimate, differences, sentence
from fedgsp.study.tables import Column, Table, bytes_, number, percent
from fedgsp.study.targets import Reached, as_fact, reached, window_of

if TYPE_CHECKING:
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.units import Trace

TITLE = "Methods of our own against tuned FedGSP"
OURS = ("fedgsp-capped", "chains-then-adam")
RIVALS = ("fedgsp", "fedadam")
EVALUATED_ON = {TEST: "test samples", HOLDOUT: "held-out clients"}
FEW = 3
"""With fewer seeds an interval says little: whole numbers of rounds may agree by chance."""
COSTS: Mapping[str, str] = {"rounds": "rounds", "serial_steps": "serial steps", "bytes": "bytes"}


@dataclass(frozen=True)
class OwnRuns:
    """The runs of every method by seed, and what tuning chose for the rivals."""

    runs: dict[str, dict[int, Trace]]
    chosen: dict[str, str]


def gather(runner: PaperRunner) -> OwnRuns:
    """All methods with one seed, then with the next: what is there when the time is over can be compared."""
    arm, settings, chosen = runner.preset.ours, dict[str, Method](), dict[str, str]()
    for name in runner.methods or (*RIVALS, *OURS):
        if name in OURS:
            method = named(name)
            settings[name], chosen[name] = replace(method, local=_batches(runner, method)), "its preset"
        else:
            best = runner.tuned(name, arm)
            settings[name], chosen[name] = best.method, best.label
    found: dict[str, dict[int, Trace]] = {name: {} for name in settings}
    for seed in runner.seeds(arm):
        for name, method in settings.items():
            label = name if name in OURS else f"{name} tuned"
            config = runner.config(replace(method, name=label), arm, seed, holdout=held_out(runner))
            found[name][seed] = runner.trace(label, config)
    return OwnRuns(found, chosen)


def held_out(runner: PaperRunner) -> int:
    """How many clients never train."""
    return max(1, round(runner.preset.holdout * runner.facts.clients))


def _batches(runner: PaperRunner, method: Method) -> Any:
    return replace(method.local, batch_size=runner.preset.batch_size)


def show(runner: PaperRunner, found: OwnRuns) -> Findings:
    """What each took to every target, the final figures, and which differences are larger than the noise."""
    arm, targets = runner.preset.ours, runner.preset.ours_targets
    seeds = list(runner.seeds(arm))
    facts: dict[str, Any] = {
        "model": arm.model, "rounds": arm.rounds, "seeds": len(seeds), "chosen": found.chosen, "tuning": runner.sweeps(),
        "reached": {}, "final": {},
    }  # fmt: skip
    notes, rows, ends = [], [], []
    for part, words in EVALUATED_ON.items():
        taken = {
            target: {
                name: {seed: reached(trace, target, part) for seed, trace in runs.items()} for name, runs in found.runs.items()
            }
            for target in targets
        }
        facts["reached"][part] = {
            str(target): {name: as_fact(list(by_seed.values())) for name, by_seed in by_name.items()}
            for target, by_name in taken.items()
        }
        for target, by_name in taken.items():
            rows += [(words, target, name, *_cells(list(by_seed.values()))) for name, by_seed in by_name.items()]
        final_ = {
            name: {seed: final(trace.history, "accuracy", part) for seed, trace in runs.items() if not trace.diverged}
            for name, runs in found.runs.items()
        }
        facts["final"][part] = {name: list(by_seed.values()) for name, by_seed in final_.items()}
        ends += [(words, name, Estimate.of(list(v.values())) if v else None, f"{len(v)} of {len(seeds)}", found.chosen[name])
                 for name, v in final_.items()]  # fmt: skip
        notes += [f"Final accuracy, {words}: {sentence(differences(final_, 'fedgsp'), 'accuracy')}"]
        notes += _against(taken[targets[0]], targets[0], words)
    table = Table(
        "ours", f"Until a target is first reached ({arm.model}, {len(seeds)} seed(s), first {seeds[0]})",
        (Column("evaluated on"), Column("target %", percent), Column("method"), Column("seeds that got there"),
         Column("rounds", number(1)), Column("serial steps", number()), Column("bytes", bytes_),
         *(Column(f"s on {fleet}", number(1)) for fleet in FLEETS)), rows,
        f"Means ± 95 % interval over the seeds that got there; not comparable where their number differs. {held_out(runner)} "
        f"clients never train; they are evaluated on all they have.",
    )  # fmt: skip
    end = Table(
        "ours-final", f"After {arm.rounds} rounds",
        (Column("evaluated on"), Column("method"), Column("accuracy %", percent), Column("seeds"), Column("settings")), ends,
        f"Final figures: {window_of(runs.values() for runs in found.runs.values())}. Rivals: the best of the method's grid on "
        f"validation samples ({runner.preset.tune_rounds} rounds, seed 0). Ours: presets that were chosen on validation "
        f"samples, seed 0, with some hundred runs; that is a larger budget than a rival's grid has.",
    )  # fmt: skip
    return Findings("ours", TITLE, [table, end], [], facts, notes)


def _cells(found: Sequence[Reached | None]) -> tuple[Any, ...]:
    there = [one for one in found if one is not None]
    count = f"{len(there)} of {len(found)}"
    if not there:
        return (count, *(None for _ in (*COSTS, *FLEETS)))
    costs = [Estimate.of([float(getattr(one, what)) for one in there]) for what in COSTS]
    return (count, *costs, *(fmean(one.seconds[fleet] for one in there) for fleet in FLEETS))


def _against(taken: Mapping[str, Mapping[int, Reached | None]], target: float, words: str) -> list[str]:
    """Ours against FedGSP in each cost, seeds that both reached; shares, so that one sentence can have them all."""
    if "fedgsp" not in taken:
        return []
    lines = []
    for name in (name for name in taken if name in OURS):
        both = [(taken[name][seed], taken["fedgsp"][seed]) for seed in taken[name]]
        pairs = [(mine, theirs) for mine, theirs in both if mine is not None and theirs is not None]
        if not pairs:
            lines.append(f"To {100 * target:.0f} %, {words}: no seed with which both {name} and FedGSP got there.")
            continue
        said = []
        for what, heading in COSTS.items():
            share = Estimate.of([getattr(mine, what) / getattr(theirs, what) - 1 for mine, theirs in pairs])
            half = "" if share.half is None else f" ± {100 * share.half:.0f}"
            sure = share.half is not None and abs(share.mean) > share.half
            noise = " (too few seeds to tell)" if len(pairs) < FEW else "" if sure else " (within the noise)"
            said.append(f"{heading} {100 * share.mean:+.0f}{half} %{noise}")
        lines.append(f"To {100 * target:.0f} %, {words}, {name} against FedGSP, {len(pairs)} seed(s): {', '.join(said)}.")
    return lines
