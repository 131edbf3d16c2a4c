"""Checks: from the facts of one study to what they say of a claim of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from fedgsp.cost import PAPER
from fedgsp.models import resolve
from fedgsp.study.noise import Estimate
from fedgsp.study.paper.rows import CURVES, FIXED, RIVALS, SHUFFLED
from fedgsp.study.paper.verdicts import (
    BY_CONSTRUCTION,
    FAILS,
    HOLDS,
    UNCLEAR,
    ClaimCheck,
    Facts,
    Verdict,
    against_rest,
    mean_percent,
    of_share,
    of_size,
    paired,
    points,
    whether,
    with_seeds,
)  # fmt: skip

ROBUST = 0.02
"""Accuracies within two points of each other are alike."""
RISE = 0.02
"""A loss that ends this much (a fiftieth) above its least, both smoothed, has risen."""
ARRIVED = 6
"""The paper's mean of rounds is over the six rivals that reached its target: over fewer it is another figure."""
SETTINGS = (("paper", "one learning rate"), ("tuned", "tuned"), ("long", "tuned"))
"""Setting -> words: two of the table, and its longer runs."""


def cpd(key: str, paper: float) -> ClaimCheck:
    """CPD: by how much ICG's median is below another's, for every reading and number of groups."""

    def check(facts: Facts) -> list[Verdict]:
        verdicts = []
        for setting, found in facts["cpd"].items():
            reading, groups = setting.split()
            scope = f"reading '{reading}', {groups} groups"
            verdicts.append(Verdict(scope, f"{100 * found[key]:.0f} %", of_share(paper, found[key])))
        return verdicts

    return check


def icg_time(facts: Facts) -> list[Verdict]:
    """ICG's time."""
    icg = facts["icg"]
    scope = f"K = {icg['clients']}, M = {icg['groups']}, tau = {icg['tau']}"
    shown = f"{icg['seconds']:.4f} s of CPU (worst {icg['worst']:.4f} s)"
    full_size = icg["clients"] >= 364 and icg["groups"] >= 52
    return [Verdict(scope, shown, whether(icg["worst"] <= 0.1) if full_size else "not measured at the paper's size")]


def each_model(check: Callable[[dict[str, Any]], tuple[str, str]], needs: Sequence[str] = CURVES) -> ClaimCheck:
    """For the curves: series by series, on the facts of its methods; not where one that it `needs` was cut."""

    def all_models(facts: Facts) -> list[Verdict]:
        found = []
        for label, told in facts.items():
            methods, model = told["methods"], label.partition(", ")[0]
            if set(needs) & set(told.get("cut", ())):
                continue
            lacking = [name for name in needs if name not in methods]
            shown, verdict = (f"{lacking[0]} diverged", UNCLEAR) if lacking else check(methods)
            scope = f"{model}, {told['rounds']} rounds, {told['seeds']} seed(s)"
            found.append(Verdict(scope, shown, with_seeds(verdict, told["seeds"])))
        return found

    return all_models


def gap(first: str, second: str, paper: float) -> ClaimCheck:
    """The accuracy of one method minus that of another."""

    def check(methods: dict[str, Any]) -> tuple[str, str]:
        gap = paired(methods[first]["accuracy"], methods[second]["accuracy"])
        return points(gap), of_size(paper, gap.mean, gap.half)

    return each_model(check, (first, second))


def similar(methods: dict[str, Any]) -> tuple[str, str]:
    """NaiveGSP ends within a point of FedAvg."""
    gap = paired(methods["NaiveGSP"]["accuracy"], methods["FedAvg"]["accuracy"])
    unclear = abs(gap.mean) > 0.01 and gap.half is not None and abs(gap.mean) <= gap.half
    return f"NaiveGSP {points(gap)} against FedAvg at the end", UNCLEAR if unclear else whether(abs(gap.mean) <= 0.01)


def _rise(method: dict[str, Any]) -> float:
    return fmean(end - least for end, least in zip(method["loss"], method["least_loss"], strict=True))


def loss_rises(methods: dict[str, Any]) -> tuple[str, str]:
    """The loss of NaiveGSP+ICG ends above its least: above that of a round that other seeds chose, by more than the noise.

    Above its own least it is by construction, so that alone is no finding.
    """
    shown, verdicts = [], []
    for name in (FIXED, SHUFFLED):
        rise, others = _rise(methods[name]), methods[name]["rise_by_others"]
        one = f"{name.split(', ')[1]}: {rise:+.3f} above its least of round {methods[name]['least_loss_round'][0]}"
        if not others:
            shown.append(f"{one} (never below it, by construction)")
            verdicts.append(UNCLEAR)
            continue
        gap = Estimate.of(others)
        shown.append(f"{one}, {gap.mean:+.3f} ± {gap.half:.3f} above the round in which other seeds have theirs")
        above = gap.half is not None and gap.mean > gap.half
        large = gap.mean > RISE * fmean(methods[name]["least_loss"])
        verdicts.append(HOLDS if above and large else UNCLEAR if gap.mean > 0 else FAILS)
    return "; ".join(shown), verdicts[0] if len(set(verdicts)) == 1 else f"fixed order {verdicts[0]}, shuffled {verdicts[1]}"


def order(methods: dict[str, Any]) -> tuple[str, str]:
    """A fixed order has a higher loss than a shuffled one."""
    gap = paired(methods[FIXED]["loss"], methods[SHUFFLED]["loss"])
    half = "" if gap.half is None else f" ± {gap.half:.3f}"
    unclear = gap.half is not None and abs(gap.mean) <= gap.half
    return f"loss with the order fixed minus shuffled: {gap.mean:+.3f}{half}", UNCLEAR if unclear else whether(gap.mean > 0)


def overcomes(methods: dict[str, Any]) -> tuple[str, str]:
    """FedGSP is the most accurate and its loss does not rise."""
    rise, least = _rise(methods["FedGSP"]), fmean(methods["FedGSP"]["least_loss"])
    best = max(methods, key=lambda name: fmean(methods[name]["accuracy"]))
    said, verdict = against_rest("FedGSP", {name: told["accuracy"] for name, told in methods.items()})
    shown = (
        f"FedGSP {mean_percent(methods['FedGSP']['accuracy'])}, its loss {rise:+.3f} above its least; highest: {best}; {said}"
    )
    return shown, FAILS if rise > RISE * least else verdict


def log_is_best(facts: Facts) -> list[Verdict]:
    """Which function has the smallest loss."""
    told = "; ".join(f"{n} {f['loss']:.3f} (alpha {f['alpha']:g}, beta {f['beta']})" for n, f in facts["functions"].items())
    return [Verdict(_scope(facts), told, with_seeds(whether(facts["best"] == "Log"), facts["seeds"]))]


def moderate(facts: Facts) -> list[Verdict]:
    """Whether the smallest loss is inside the grid."""
    found = []
    for name, f in facts["functions"].items():
        if any(len({row[at] for row in f["grid"]}) < 3 for at in (0, 1)):
            found.append(Verdict(name, "the grid has no inside", UNCLEAR))
            continue
        inside = f["alpha_inside"] and f["beta_inside"]
        shown = f"least at alpha {f['alpha']:g}, beta {f['beta']}: {'inside' if inside else 'at an edge of'} the grid"
        found.append(Verdict(f"{name}, {_scope(facts)}", shown, with_seeds(whether(inside), facts["seeds"])))
    return found


def _scope(facts: Facts) -> str:
    return f"{facts['model']}, {facts['rounds']} rounds, {facts['seeds']} seed(s)"


def kappa_accuracy(facts: Facts) -> list[Verdict]:
    """How far accuracies are apart: robust only if the largest difference is within two points with all its noise."""
    shown = ", ".join(f"{k}: {100 * v:.1f} %" for k, v in facts["accuracy"].items())
    widest, half = facts["widest"]
    if half is None:
        return [Verdict(_scope(facts), shown, with_seeds(whether(widest <= ROBUST), 1))]
    verdict = HOLDS if widest + half <= ROBUST else FAILS if widest - half > ROBUST else UNCLEAR
    shown = f"{shown}; the largest difference is {100 * widest:.1f} ± {100 * half:.1f} points"
    return [Verdict(_scope(facts), f"{shown}. {facts['said']}", verdict)]


def kappa_computing(facts: Facts) -> list[Verdict]:
    """How far T_comp is apart."""
    as_run = facts["real_comp"].values()
    apart = 100 * (max(as_run) - min(as_run))
    shown = f"T_comp differs by {100 * facts['comp_spread']:.1f} %; the longest chains' computing, as run, by {apart:.0f} %"
    as_measured = whether(apart <= 2)
    return [Verdict(_scope(facts), shown, f"by the formula {BY_CONSTRUCTION}; as run it {as_measured}")]


def kappa_communication(facts: Facts) -> list[Verdict]:
    """Whether T_comm, and bytes as run, are proportional."""
    shown = "T_comm " + ", ".join(f"{k}: {v:.3f}" for k, v in facts["comm"].items())
    shown += "; bytes as run " + ", ".join(f"{k}: {v:.3f}" for k, v in facts["real_comm"].items())
    largest = max(map(float, facts["comm"]))
    close = all(abs(v - float(k) / largest) <= 0.1 * float(k) / largest for k, v in facts["real_comm"].items())
    return [Verdict(_scope(facts), shown, BY_CONSTRUCTION + ("" if close else "; floors make it uneven as run"))]


def table_gap(key: str, paper: float, show: Callable[[float], str]) -> ClaimCheck:
    """One of the average gaps."""

    def check(facts: Facts) -> list[Verdict]:
        found = []
        for setting, words in SETTINGS:
            told = facts.get("long") if setting == "long" else facts
            if told is None:
                continue
            gaps, scope = told.get(f"gaps_{setting}"), f"{_scope(told)}, {words}"
            if gaps is not None and key in gaps.get("cut", ()):
                continue
            if gaps is not None and gaps[key] is not None and key == "fewer_rounds":
                arrived, shown = (
                    gaps["arrived"],
                    f"{show(gaps[key])} against the {gaps['arrived']} of {len(RIVALS)} that arrived",
                )
                few = "; a mean over the quickest rivals only" if arrived < ARRIVED else ""
                verdict = UNCLEAR if few else with_seeds(of_share(paper, gaps[key]), told["seeds"])
                found.append(Verdict(scope, shown + few, verdict))
            elif gaps is not None and gaps[key] is not None:
                half = gaps["halves"][key]
                shown = show(gaps[key]) + ("" if half is None else f" (± {show(half).lstrip('+')})")
                found.append(Verdict(scope, shown, with_seeds(of_size(paper, gaps[key], half), told["seeds"])))
            else:
                found.append(Verdict(scope, "no figure: a target was not reached, or a method diverged", UNCLEAR))
        return found

    return check


def outperforms(facts: Facts) -> list[Verdict]:
    """Who is ahead of FedGSP."""
    found = []
    for setting, words in SETTINGS:
        told = facts.get("long") if setting == "long" else facts
        if told is None:
            continue
        by_seed = told[f"{setting}_by_seed"]
        whole = {name: by_seed[name] for name in ("fedgsp", "fedavg", *RIVALS) if len(by_seed.get(name, ())) == told["seeds"]}
        if "fedgsp" not in whole or len(whole) < 2:
            continue
        said, verdict = against_rest("fedgsp", whole)
        best = max((name for name in whole if name != "fedgsp"), key=lambda name: fmean(whole[name]))
        shown = f"FedGSP {mean_percent(whole['fedgsp'])}, the best of the others {best} {mean_percent(whole[best])}; {said}"
        cut = [name for name in ("fedavg", *RIVALS) if name not in by_seed]
        shown += f"; cut for time: {' / '.join(cut)}" if cut and setting == "long" else ""
        found.append(Verdict(f"{_scope(told)}, {words}", shown, verdict))
    return found


def parameters(facts: Facts) -> list[Verdict]:
    """LEAF's CNN as it is built here."""
    count = sum(p.numel() for p in resolve("leaf_cnn", (28, 28), 62).build().parameters())
    shown = f"{count:,} parameters = {count / 2**20:.2f} * 2^20, {4 * count / 2**20:.1f} MiB"
    return [Verdict("leaf_cnn", shown, of_size(PAPER.flops_per_aggregation, count))]


def flops(facts: Facts) -> list[Verdict]:
    """Forward and backward of one sample, counted by torch on a 28 x 28 picture."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = resolve("leaf_cnn", (28, 28), 62).build().eval()
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 28, 28))
    count = 3.0 * counter.get_total_flops()
    return [Verdict("leaf_cnn, three forward passes", f"{count / 1e6:.0f} M", of_size(PAPER.flops_per_sample, count))]
