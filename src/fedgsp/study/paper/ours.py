"""`study ours`: the package's own methods against FedGSP, all tuned with the same budget, on fresh seeds.

Every method has the same three learning rates to choose from, on validation samples (seed 0). FedGSP and `fedgsp-capped`
stand here twice, with the paper's kappa and with a third of it: fewer bytes because fewer clients train is a saving that
FedGSP can have, too. And FedGSP stands here in the form that takes the fewest rounds of those in `study ablation`, since the
form of ours was chosen among as many. The seeds chose nothing. A share of the clients never trains; each figure is given for
test samples and for these clients. The same settings are then run on the same samples dealt with label skew, and with a
larger model, where nothing was tuned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.cost import FLEETS
from fedgsp.plan import Grouped, Log
from fedgsp.run.metrics import HOLDOUT, TEST, final
from fedgsp.study.findings import Findings
from fedgsp.study.noise import Estimate, differences, sentence
from fedgsp.study.paper.dealing import OWN, Dealing
from fedgsp.study.paper.rows import GRID
from fedgsp.study.paper.shares import Share, compared
from fedgsp.study.tables import Column, Table, bytes_, number, percent
from fedgsp.study.targets import Reached, as_fact, reached, window_of

if TYPE_CHECKING:
    from fedgsp.method import Method
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Arm, Trace

TITLE = "Methods of our own against tuned FedGSP"
FORMS: Mapping[str, Mapping[str, float]] = {"kappa=0.1": {"kappa": 0.1}, "alpha=1+kappa=0.2": {"alpha": 1, "kappa": 0.2}}
LESS, SLOWER = (f"@{form}" for form in FORMS)
OWN_ROWS = ("fedgsp-capped", f"fedgsp-capped{LESS}", "chains-then-adam", "long-chains-then-adam")
RIVALS = ("fedgsp", f"fedgsp{LESS}", f"fedgsp{SLOWER}")
"""What ours are held against: the paper's method, the same with as many bytes as ours may take, and in its best form."""
ENTRANTS = (*RIVALS, *OWN_ROWS)
EVALUATED_ON = {TEST: "test samples", HOLDOUT: "held-out clients"}
COSTS: Mapping[str, str] = {"rounds": "rounds", "serial_steps": "serial steps", "bytes": "bytes"}
BySeed = dict[int, "Trace"]


@dataclass(frozen=True)
class OwnRuns:
    """Data -> method -> seed -> run, and what tuning chose."""

    runs: dict[str, dict[str, BySeed]]
    chosen: dict[str, str]


def gather(runner: PaperRunner) -> OwnRuns:
    """All methods with one seed, then with the next: what is there when the time is over can be compared."""
    arm, settings, chosen = runner.preset.ours, dict[str, "Method"](), dict[str, str]()
    for name in runner.methods or ENTRANTS:
        best = runner.best_of(name, method_of(runner, name), GRID, arm)
        settings[name], chosen[name] = best.method, best.label
    places = {OWN: runner}
    if runner.preset.ours_skew:
        skewed = Dealing(runner.preset.ours_skew, runner.facts.clients)
        places[skewed.label] = runner.dealt(skewed)
    found: dict[str, dict[str, BySeed]] = {}
    for words, here in places.items():
        found[words] = {name: {} for name in settings}
        for seed in runner.seeds(arm):
            for name, method in settings.items():
                config = here.config(replace(method, name=f"{name} tuned"), arm, seed, holdout=held_out(runner))
                found[words][name][seed] = here.trace(f"{name} tuned", config)
    for words, large in larger(runner).items():
        mine = found[_large(words, large)] = {name: dict[int, "Trace"]() for name in settings if large.has(name)}
        for seed in runner.seeds(large):
            for name, by_seed in mine.items():
                config = places[words].config(
                    replace(settings[name], name=f"{name} tuned"), large, seed, holdout=held_out(runner)
                )
                by_seed[seed] = places[words].trace(large.named(f"{name} tuned"), config)
    return OwnRuns(found, chosen)


def larger(runner: PaperRunner) -> dict[str, Arm]:
    """Data -> its series with a larger model, where the preset has one."""
    preset = runner.preset
    wanted = {OWN: preset.ours_large}
    if preset.ours_skew:
        wanted[Dealing(preset.ours_skew, runner.facts.clients).label] = preset.ours_large_skew
    return {words: arm for words, arm in wanted.items() if arm is not None}


def _large(words: str, arm: Arm) -> str:
    return f"{words}, {arm.model}"


def method_of(runner: PaperRunner, name: str) -> Method:
    """A row's method before it is tuned: with the preset's batches, in the form that its name says."""
    base, _, form = name.partition("@")
    method = runner.method(base)
    if not form:
        return method
    if form not in FORMS:
        raise InputError(f"unknown form '{form}' of {base}: {did_you_mean(form, FORMS)}")
    planner, told = method.planner, FORMS[form]
    if not isinstance(planner, Grouped) or not isinstance(planner.growth, Log):
        raise InputError(f"'{name}': only methods with FedGSP's growth have other forms.")
    growth = replace(planner.growth, alpha=told.get("alpha", planner.growth.alpha))
    return replace(method, planner=replace(planner, growth=growth, kappa=told["kappa"]))


def held_out(runner: PaperRunner) -> int:
    """How many clients never train."""
    return max(1, round(runner.preset.holdout * runner.facts.clients))


def show(runner: PaperRunner, found: OwnRuns) -> Findings:
    """What each took to every target, the final figures, and which differences are larger than the noise."""
    preset, arm = runner.preset, runner.preset.ours
    seeds = list(runner.seeds(arm))
    facts: dict[str, Any] = {
        "model": arm.model, "rounds": arm.rounds, "seeds": len(seeds), "chosen": found.chosen, "tuning": runner.sweeps(),
        "large_seeds": max((len(runner.seeds(large)) for large in larger(runner).values()), default=0),
        "reached": {}, "final": {}, "verdicts": {},
    }  # fmt: skip
    notes, rows, ends, pairs = [], [], [], []
    for data, by_method in found.runs.items():
        is_large = data in {_large(words, large) for words, large in larger(runner).items()}
        targets = preset.ours_targets if data == OWN else preset.ours_large_targets if is_large else preset.ours_skew_targets
        for part, words in EVALUATED_ON.items():
            place = f"{data}, {words}"
            taken = {
                target: {name: {s: reached(t, target, part) for s, t in runs.items()} for name, runs in by_method.items()}
                for target in targets
            }
            facts["reached"][place] = {
                str(target): {name: as_fact(list(by_seed.values())) for name, by_seed in by_name.items()}
                for target, by_name in taken.items()
            }
            for target, by_name in taken.items():
                rows += [(place, target, name, *_cells(list(by_seed.values()))) for name, by_seed in by_name.items()]
            goal = _goal(taken)
            shares = _shares(taken[goal])
            facts["verdicts"][place] = {"target": goal, "pairs": [share.as_fact() for share in shares]}
            pairs += [(place, goal, *share.cells()) for share in shares]
            final_ = {
                name: {s: final(t.history, "accuracy", part) for s, t in runs.items() if not t.diverged}
                for name, runs in by_method.items()
            }
            facts["final"][place] = {name: list(by_seed.values()) for name, by_seed in final_.items()}
            ends += [(place, name, Estimate.of(list(v.values())) if v else None, f"{len(v)} of {len(by_method[name])}",
                      found.chosen[name].replace(",", ", ")) for name, v in final_.items()]  # fmt: skip
            notes += (
                [f"Final accuracy, {place}: {sentence(differences(final_, 'fedgsp'), 'accuracy')}"]
                if "fedgsp" in final_
                else []
            )
    return Findings("ours", TITLE, _tables(runner, found, rows, ends, pairs), [], facts, notes)


def _goal(taken: Mapping[float, Mapping[str, Mapping[int, Reached | None]]]) -> float:
    """The target by which methods are compared: the highest that every run reached; the lowest, if there is none."""
    whole = [target for target, by in taken.items() if all(one for by_seed in by.values() for one in by_seed.values())]
    return max(whole, default=min(taken))


def _shares(taken: Mapping[str, Mapping[int, Reached | None]]) -> list[Share]:
    """Each of ours against each rival, all costs, corrected together."""
    costs = {
        name: {seed: None if one is None else {what: float(getattr(one, what)) for what in COSTS} for seed, one in by.items()}
        for name, by in taken.items()
    }
    return compared(costs, [name for name in OWN_ROWS if name in taken], [name for name in RIVALS if name in taken])


def _tables(runner: PaperRunner, found: OwnRuns, rows: Sequence[Any], ends: Sequence[Any], pairs: Sequence[Any]) -> list[Table]:
    arm, preset, seeds = runner.preset.ours, runner.preset, list(runner.seeds(runner.preset.ours))
    against = Table(
        "ours-pairs", f"Ours against FedGSP until the target, per cent more or less ({len(seeds)} seed(s), first {seeds[0]})",
        (Column("data"), Column("target %", percent), Column("ours"), Column("against"), Column("seeds that both reached it"),
         *(Column(words) for words in COSTS.values()), Column("verdict")), pairs,
        "The target is the highest of those below that every run reached. The mean ratio (geometric) "
        "with its 95 % interval, paired over seeds; * is larger than the noise, 5 % over all pairs "
        "and costs of a data set by Holm's correction. It holds where serial steps and bytes are fewer by more than noise, and "
        "the interval of rounds, uncorrected, does not lie above zero.", kept=False,
    )  # fmt: skip
    until = Table(
        "ours", f"Until a target is first reached ({arm.model}, {len(seeds)} seed(s), first {seeds[0]})",
        (Column("data"), Column("target %", percent), Column("method"), Column("seeds that got there"),
         Column("rounds", number(1)), Column("serial steps", number()), Column("bytes", bytes_),
         *(Column(f"s on {fleet}", number(1)) for fleet in FLEETS)), rows,
        f"Means ± 95 % interval over the seeds that got there; not comparable where their number differs. {held_out(runner)} "
        f"clients never train; they are evaluated on all they have.",
    )  # fmt: skip
    window = window_of(runs.values() for by_method in found.runs.values() for runs in by_method.values())
    end = Table(
        "ours-final", f"After {arm.rounds} rounds",
        (Column("data"), Column("method"), Column("accuracy %", percent), Column("seeds"), Column("chosen")), ends,
        f"Final figures: {window}. Every method: the best of three learning rates on validation samples of the data's own "
        f"clients ({preset.tune_rounds} rounds, seed 0; held-out clients not left out there). The form of ours (the cap, how "
        f"long the start is) came out of some hundred earlier validation runs with seed 0, which rivals did not have, and out "
        f"of those in `study ablation`, where FedGSP has as many forms."
        + (f" On {preset.ours_skew} nothing was tuned." if preset.ours_skew else " Cut for time: data with label skew.")
        + _of_large(larger(runner), arm.model),
        kept=False,
    )  # fmt: skip
    return [against, until, end]


def _of_large(series: Mapping[str, Arm], model: str) -> str:
    if not series:
        return " Cut for time: a larger model."
    said = ""
    for words, large in series.items():
        cut = [name for name in ENTRANTS if not large.has(name)]
        said += f" With {large.model}, {words}: {large.rounds} rounds, {large.seeds} seed(s)"
        said += f"; cut for time: {', '.join(cut)}." if cut else "."
    return f"{said} The learning rates are those that were chosen with {model}."


def _cells(found: Sequence[Reached | None]) -> tuple[Any, ...]:
    there = [one for one in found if one is not None]
    count = f"{len(there)} of {len(found)}"
    if not there:
        return (count, *(None for _ in (*COSTS, *FLEETS)))
    costs = [Estimate.of([float(getattr(one, what)) for one in there]) for what in COSTS]
    return (count, *costs, *(fmean(one.seconds[fleet] for one in there) for fleet in FLEETS))
