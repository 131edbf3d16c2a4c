"""`study adaptive`: FedAdam and FedYogi as printed and repaired: a plain mean in round 1, fresh moments, averaged models.

Every variant has the learning rates that tuning chose for the printed algorithm, so that one thing differs at a time. The
second moment v, which the first and largest update was thought to spoil, is logged round by round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fedgsp.run import lifecycle
from fedgsp.run.metrics import final
from fedgsp.server import Adam, Averaged, ServerRule, WarmStart
from fedgsp.server.adaptive import FIRST, SECOND
from fedgsp.study.findings import Findings
from fedgsp.study.noise import Estimate, differences, sentence
from fedgsp.study.tables import Column, Table, bytes_, number, percent
from fedgsp.study.targets import as_fact, mean_costs, reached, scaled, window_of

if TYPE_CHECKING:
    from fedgsp.study.paper.runner import PaperRunner
    from fedgsp.study.records import Trace

TITLE = "FedAdam and FedYogi, printed and repaired"
LESS = 0.7
"""beta1 of the variants that forget the first update sooner."""
PRINTED, WARM = "as printed", "warm: a plain mean in round 1, fresh moments"
KEPT = "a plain mean in round 1, moments kept"
VARIANTS = (PRINTED, WARM, KEPT, "warm, averaged models", f"beta1 {LESS}, warm, averaged models")
METHODS: Mapping[str, Sequence[str]] = {"fedadam": VARIANTS, "fedyogi": (PRINTED, WARM)}
LOGGED = (1, 2, 3, 5)
"""Rounds after which the moments are looked at."""


@dataclass(frozen=True)
class AdaptiveRuns:
    """(method, variant) -> its runs, a seed each; FedAvg's for the target; the moments of FedAdam, printed and warm."""

    runs: dict[str, list[Trace]]
    fedavg: list[Trace]
    moments: dict[str, Any]


def variant(rule: ServerRule, name: str) -> ServerRule:
    """The printed rule with what a variant's name says.

    Example:
        >>> variant(Adam(), "beta1 0.7, warm").server.beta1
        0.7
    """
    assert isinstance(rule, Adam)
    made: ServerRule = replace(rule, beta1=LESS) if "beta1" in name else rule
    if name == KEPT:
        made = WarmStart(made, fresh=False)
    elif "warm" in name:
        made = WarmStart(made)
    return Averaged(made) if "averaged" in name else made


def gather(runner: PaperRunner) -> AdaptiveRuns:
    """All variants with every seed."""
    arm, table = runner.preset.adaptive, runner.preset.table
    fedavg = runner.traces("fedavg tuned", runner.tuned("fedavg", table).method, arm)
    found = AdaptiveRuns({}, fedavg, {})
    for name, variants in METHODS.items():
        best = runner.tuned(name, table).method
        for one in variants:
            label = f"{name} tuned" if one == PRINTED else f"{name}: {one}"
            found.runs[f"{name}: {one}"] = runner.traces(label, replace(best, server=variant(best.server, one)), arm)
    best = runner.tuned("fedadam", table).method
    for one in (PRINTED, WARM, KEPT):
        config = runner.config(replace(best, server=variant(best.server, one)), replace(arm, rounds=max(LOGGED)), 0)
        key = {"variant": one, "config": config.as_dict()["method"], "model": arm.model}
        found.moments[one] = runner.computed("second moments", key, partial(_moments, runner, config))
    return found


def _moments(runner: PaperRunner, config: Any) -> dict[str, list[float]]:
    """The mean of v and the root mean square of m after some rounds, over all trained numbers."""
    found: dict[str, list[float]] = {"v": [], "m": []}
    for rounds in LOGGED:
        cut = replace(config, run=replace(config.run, rounds=rounds, workers=0, eval_every=rounds))
        slots = lifecycle.start(runner.builder.build(cut), None, ()).state.slots
        count = sum(t.numel() for t in slots[SECOND].values())
        found["v"].append(float(sum(t.sum() for t in slots[SECOND].values())) / count)
        found["m"].append((float(sum(t.square().sum() for t in slots[FIRST].values())) / count) ** 0.5)
    return found


def show(runner: PaperRunner, found: AdaptiveRuns) -> Findings:
    """What each took to FedAvg's end and has at its own, and whether it is more than noise; the moments."""
    arm = runner.preset.adaptive
    seeds, target = list(runner.seeds(arm)), scaled(found.fedavg, runner.preset.target)
    facts: dict[str, Any] = {"model": arm.model, "rounds": arm.rounds, "seeds": len(seeds), "target": target, "reached": {},
                             "moments": found.moments, "final": {}}  # fmt: skip
    ends = {
        name: {seed: final(t.history, "accuracy") for seed, t in zip(seeds, runs, strict=True) if not t.diverged}
        for name, runs in found.runs.items()
    }
    rows, notes = [], []
    for name, runs in found.runs.items():
        taken = [None if target is None else reached(trace, target) for trace in runs]
        facts["reached"][name], facts["final"][name] = as_fact(taken), list(ends[name].values())
        rows.append((name, Estimate.of(list(ends[name].values())) if ends[name] else "diverged", *mean_costs(taken)))
    for method, variants in METHODS.items():
        mine = {one: ends[f"{method}: {one}"] for one in variants}
        notes.append(
            f"{method}, final accuracy against the printed algorithm: {sentence(differences(mine, PRINTED), 'accuracy')}"
        )
    goal = "the target" if target is None else f"{100 * target:.0f} %"
    table = Table(
        "adaptive", f"After {arm.rounds} rounds, and until {goal} is first reached ({arm.model}, {len(seeds)} seed(s))",
        (Column("variant"), Column("accuracy %", percent), Column("seeds that got there"), Column("rounds", number(1)),
         Column("serial steps", number()), Column("bytes", bytes_)), rows,
        f"Accuracy: {window_of(found.runs.values())}, test samples, ± 95 % interval over seeds. The target is the whole per "
        f"cent that tuned FedAvg has at its end; costs are means over the seeds that got there. All variants have the learning "
        f"rates that tuning chose for the printed algorithm; averaged models have decay {Averaged().decay:g}.",
        kept=False,
    )  # fmt: skip
    return Findings("adaptive", TITLE, [table, _logged(found.moments)], [], facts, notes)


def _logged(moments: Mapping[str, Any]) -> Table:
    rows = [
        (one, *(f"{value:.2e}" for value in told.get(what, ())))
        for what in ("v", "m") for one, told in ((f"{what}, {name}", told) for name, told in moments.items())
    ]  # fmt: skip
    return Table(
        "moments", "FedAdam's moments: mean of v, root mean square of m",
        (Column("after round"), *(Column(str(at)) for at in LOGGED)), rows,
        "Seed 0, over all trained numbers; v starts at tau^2 = 1e-06, m at 0. If the first update spoiled v, the printed "
        "algorithm's v would stay above the warm one's for long.", kept=False,
    )  # fmt: skip
