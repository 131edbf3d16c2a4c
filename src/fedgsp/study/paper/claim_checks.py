"""Checks: from the facts of one study to what they say of a claim of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from fedgsp.cost import PAPER
from fedgsp.models import resolve
from fedgsp.run.metrics import TEST
from fedgsp.study.paper.table import RIVALS
from fedgsp.study.paper.verdicts import (
    DIRECTION,
    FAILS,
    HOLDS,
    UNCLEAR,
    Facts,
    Verdict,
    mean_percent,
    of_share,
    of_size,
    paired,
    points,
    whether,
)  # fmt: skip
from fedgsp.study.tables import bytes_

ClaimCheck = Callable[[Facts], Sequence[Verdict]]
FIXED, SHUFFLED = "NaiveGSP+ICG, fixed order", "NaiveGSP+ICG, shuffled"
RISE = 0.02
"""A loss that ends this much (a fiftieth) above its least, both smoothed, has risen."""
ONE_SEED = " (one seed, so noise is not ruled out)"
SETTINGS = (("paper", "one learning rate"), ("tuned", "tuned"))


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


def each_model(check: Callable[[dict[str, Any]], tuple[str, str]]) -> ClaimCheck:
    """For the curves: model by model, on the facts of its methods."""

    def all_models(facts: Facts) -> list[Verdict]:
        found = []
        for model, told in facts.items():
            methods = told["methods"]
            lacking = [name for name in ("FedAvg", "NaiveGSP", FIXED, SHUFFLED, "FedGSP") if name not in methods]
            shown, verdict = (f"{lacking[0]} diverged", UNCLEAR) if lacking else check(methods)
            if told["seeds"] == 1 and verdict != UNCLEAR:
                verdict += ONE_SEED
            found.append(Verdict(f"{model}, {told['rounds']} rounds, {told['seeds']} seed(s)", shown, verdict))
        return found

    return all_models


def gap(first: str, second: str, paper: float) -> ClaimCheck:
    """The accuracy of one method minus that of another."""

    def check(methods: dict[str, Any]) -> tuple[str, str]:
        gap = paired(methods[first]["accuracy"], methods[second]["accuracy"])
        return points(gap), of_size(paper, gap.mean, gap.half)

    return each_model(check)


def similar(methods: dict[str, Any]) -> tuple[str, str]:
    """NaiveGSP ends within a point of FedAvg."""
    gap = paired(methods["NaiveGSP"]["accuracy"], methods["FedAvg"]["accuracy"])
    unclear = abs(gap.mean) > 0.01 and gap.half is not None and abs(gap.mean) <= gap.half
    return f"NaiveGSP {points(gap)} against FedAvg at the end", UNCLEAR if unclear else whether(abs(gap.mean) <= 0.01)


def _rise(method: dict[str, Any]) -> float:
    return fmean(end - least for end, least in zip(method["loss"], method["least_loss"], strict=True))


def loss_rises(methods: dict[str, Any]) -> tuple[str, str]:
    """The loss of NaiveGSP+ICG ends above its least."""
    shown, risen = [], []
    for name in (FIXED, SHUFFLED):
        rise = _rise(methods[name])
        shown.append(f"{name.split(', ')[1]}: {rise:+.3f} above its least of round {methods[name]['least_loss_round'][0]}")
        risen.append(rise > RISE * fmean(methods[name]["least_loss"]))
    return "; ".join(shown), HOLDS if all(risen) else FAILS if not any(risen) else "holds for one order only"


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
    shown = f"FedGSP {mean_percent(methods['FedGSP']['accuracy'])}, its loss {rise:+.3f} above its least; highest: {best}"
    return shown, whether(best == "FedGSP" and rise <= RISE * least)


def log_is_best(facts: Facts) -> list[Verdict]:
    """Which function has the smallest loss."""
    told = "; ".join(f"{n} {f['loss']:.3f} (alpha {f['alpha']:g}, beta {f['beta']})" for n, f in facts["functions"].items())
    return [Verdict(f"{facts['model']}, {facts['rounds']} rounds", told, whether(facts["best"] == "Log"))]


def moderate(facts: Facts) -> list[Verdict]:
    """Whether the smallest loss is inside the grid."""
    found = []
    for name, f in facts["functions"].items():
        if any(len({row[at] for row in f["grid"]}) < 3 for at in (0, 1)):
            found.append(Verdict(name, "the grid has no inside", UNCLEAR))
            continue
        inside = f["alpha_inside"] and f["beta_inside"]
        shown = f"least at alpha {f['alpha']:g}, beta {f['beta']}: {'inside' if inside else 'at an edge of'} the grid"
        found.append(Verdict(f"{name}, {facts['model']}, {facts['rounds']} rounds", shown, whether(inside)))
    return found


def _scope(facts: Facts) -> str:
    return f"{facts['model']}, {facts['rounds']} rounds, {facts['seeds']} seed(s)"


def kappa_accuracy(facts: Facts) -> list[Verdict]:
    """How far accuracies are apart."""
    shown = ", ".join(f"{k}: {100 * v:.1f} %" for k, v in facts["accuracy"].items())
    return [Verdict(_scope(facts), f"{shown}. {facts['said']}", whether(facts["accuracy_spread"] <= 0.02))]


def kappa_computing(facts: Facts) -> list[Verdict]:
    """How far T_comp is apart."""
    as_run = facts["real_comp"].values()
    apart = 100 * (max(as_run) - min(as_run))
    shown = f"T_comp differs by {100 * facts['comp_spread']:.1f} %; the longest chains' computing, as run, by {apart:.0f} %"
    return [Verdict(_scope(facts), shown, whether(facts["comp_spread"] <= 0.02))]


def kappa_communication(facts: Facts) -> list[Verdict]:
    """Whether T_comm, and bytes as run, are proportional."""
    shown = "T_comm " + ", ".join(f"{k}: {v:.3f}" for k, v in facts["comm"].items())
    shown += "; bytes as run " + ", ".join(f"{k}: {v:.3f}" for k, v in facts["real_comm"].items())
    largest = max(map(float, facts["comm"]))
    close = all(abs(v - float(k) / largest) <= 0.1 * float(k) / largest for k, v in facts["real_comm"].items())
    return [Verdict(_scope(facts), shown, HOLDS if close else "holds by the formula; floors make it uneven as run")]


def table_gap(key: str, paper: float, show: Callable[[float], str]) -> ClaimCheck:
    """One of the average gaps."""

    def check(facts: Facts) -> list[Verdict]:
        found = []
        for setting, words in SETTINGS:
            gaps, scope = facts.get(f"gaps_{setting}"), f"{_scope(facts)}, {words}"
            if gaps is not None and gaps[key] is not None:
                same = of_share if key == "fewer_rounds" else of_size
                found.append(Verdict(scope, show(gaps[key]), same(paper, gaps[key])))
            else:
                found.append(Verdict(scope, "no figure: a target was not reached, or a method diverged", UNCLEAR))
        return found

    return check


def outperforms(facts: Facts) -> list[Verdict]:
    """Who is ahead of FedGSP."""
    found = []
    for setting, words in SETTINGS:
        ours = facts[setting].get("fedgsp")
        rivals = {name: facts[setting][name] for name in ("fedavg", *RIVALS) if facts[setting].get(name)}
        if not ours or not rivals:
            continue
        ahead = [name for name, figures in rivals.items() if figures[0] >= ours[0]]
        shown = f"FedGSP {100 * ours[0]:.1f} %; ahead of it: {', '.join(ahead) or 'nobody'}"
        found.append(Verdict(f"{_scope(facts)}, {words}", shown, whether(not ahead)))
    return found


def rounds_to_target(facts: Facts) -> list[Verdict]:
    """Rounds to the target."""
    found = []
    for model, told in facts["target"].items():
        costs = told["methods"]
        if not told["target"] or any(costs.get(name) is None for name in ("fedavg", "fedgsp")):
            found.append(Verdict(f"{model}, {told['rounds']} rounds", "not every seed reached the target", UNCLEAR))
            continue
        gsp, avg = costs["fedgsp"]["rounds"], costs["fedavg"]["rounds"]
        shown = f"to {100 * told['target']:.0f} %: FedGSP {gsp:.0f}, FedAvg {avg:.0f} rounds"
        found.append(Verdict(f"{model}, {told['rounds']} rounds", shown, of_share(1 - 34 / 470, 1 - gsp / avg)))
    return found


def at_least(share: float) -> Callable[[float], str]:
    """A saving of so much or more."""
    return lambda ours: HOLDS if ours >= share else DIRECTION if ours > 0 else FAILS


def about(share: float) -> Callable[[float], str]:
    """A saving of so much."""
    return lambda ours: of_share(share, ours)


def saved(verdict: Callable[[float], str], what: Callable[[dict[str, Any]], float]) -> ClaimCheck:
    """How much less a cost to the target is."""

    def check(facts: Facts) -> list[Verdict]:
        found = []
        for model, told in facts["target"].items():
            costs, scope = told["methods"], f"{model}, to {100 * (told['target'] or 0):.0f} %"
            if any(costs.get(name) is None for name in ("fedavg", "fedgsp")):
                found.append(Verdict(scope, "not every seed reached the target", UNCLEAR))
                continue
            less = 1 - what(costs["fedgsp"]) / what(costs["fedavg"])
            found.append(Verdict(scope, f"{100 * less:.0f} % less", verdict(less)))
        return found

    return check


def majority(facts: Facts) -> list[Verdict]:
    """The share of communication."""
    found = []
    for model, told in facts["target"].items():
        for name, cost in told["methods"].items():
            if cost is not None:
                share = cost["communication"] / (cost["communication"] + cost["computing"])
                found.append(Verdict(f"{model}, {name}", f"{100 * share:.1f} % of the time is T_comm", whether(share > 0.5)))
    return found


def to_fedavgs_end(facts: Facts) -> list[Verdict]:
    """What FedAvg's accuracy at its end costs FedGSP."""
    found = []
    for row in facts["fedavg_end"]:
        where = "test samples" if row["evaluated_on"] == TEST else "held-out clients"
        scope = f"FedAvg {row['fedavg']}, FedGSP {row['fedgsp']}, {where}"
        if not row["end"] or row["ours"]["rounds"] is None:
            found.append(Verdict(scope, "FedGSP did not get there", FAILS))
            continue
        ours, theirs = row["ours"], row["theirs"]
        shown = (
            f"{ours['rounds']:.0f} rounds against {theirs['rounds']:.0f}, {ours['serial_steps']:,.0f} serial steps against "
            f"{theirs['serial_steps']:,.0f}, {bytes_(ours['bytes'])} against {bytes_(theirs['bytes'])}"
        )
        missed = sum(one is None for one in row["reached"])
        shown += f" ({missed} seed(s) did not get there)" if missed else ""
        less = {what: ours[what] < theirs[what] for what in ("rounds", "serial_steps", "bytes")}
        behind = [what.replace("_", " ") for what, fewer in less.items() if not fewer]
        verdict = UNCLEAR if missed else "less of all three" if not behind else f"not less in {' and '.join(behind)}"
        found.append(Verdict(scope, shown, verdict))
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
