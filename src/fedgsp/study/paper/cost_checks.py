"""Checks of the claims about rounds, time and traffic to a target: the facts of `study cost-to-target`."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

from fedgsp.run.metrics import TEST
from fedgsp.study.noise import Estimate
from fedgsp.study.paper.verdicts import (
    BY_CONSTRUCTION,
    CLOSE,
    DIRECTION,
    FAILS,
    HOLDS,
    UNCLEAR,
    ClaimCheck,
    Facts,
    Verdict,
    of_share,
    with_seeds,
)
from fedgsp.study.tables import bytes_

PAPER_ROUNDS = (34, 470)
"""FedGSP's and FedAvg's rounds to 80 % in the paper."""


def rounds_to_target(facts: Facts) -> list[Verdict]:
    """Rounds to the target, and to the paper's own 80 %."""
    found = []
    for label, told in facts["target"].items():
        costs, scope = told["methods"], f"{label.partition(', ')[0]}, {told['rounds']} rounds, {told['seeds']} seed(s)"
        to_80 = {name: [one and one["rounds"] for one in several] for name, several in told["to_80"].items()}
        if all(to_80["fedgsp"]):
            when, others = fmean(to_80["fedgsp"]), [r for r in to_80["fedavg"] if r]
            theirs = f"FedAvg in round {fmean(others):.0f}" if others else f"FedAvg not within {told['rounds']}"
            shown = f"to 80 %: FedGSP in round {when:.0f} (the paper: {PAPER_ROUNDS[0]}), {theirs}"
            same = HOLDS if abs(when - PAPER_ROUNDS[0]) <= CLOSE * PAPER_ROUNDS[0] else DIRECTION
            found.append(Verdict(scope, shown, with_seeds(same, told["seeds"])))
        if not told["target"] or any(costs.get(name) is None for name in ("fedavg", "fedgsp")):
            found.append(Verdict(scope, "not every seed reached the target", UNCLEAR))
            continue
        gsp, avg = costs["fedgsp"]["rounds"], costs["fedavg"]["rounds"]
        shown = (
            f"to {100 * told['target']:.0f} %: FedGSP {gsp:.0f}, FedAvg {avg:.0f} rounds, {100 * (1 - gsp / avg):.0f} % fewer"
        )
        verdict = of_share(1 - PAPER_ROUNDS[0] / PAPER_ROUNDS[1], 1 - gsp / avg)
        found.append(Verdict(scope, shown, with_seeds(verdict, told["seeds"])))
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
            costs, scope = told["methods"], f"{model}, to {100 * (told['target'] or 0):.0f} %, {told['seeds']} seed(s)"
            if any(costs.get(name) is None for name in ("fedavg", "fedgsp")):
                found.append(Verdict(scope, "not every seed reached the target", UNCLEAR))
                continue
            pairs = zip(costs["fedgsp"]["by_seed"], costs["fedavg"]["by_seed"], strict=True)
            less = Estimate.of([1 - what(ours) / what(theirs) for ours, theirs in pairs])
            half = "" if less.half is None else f" (± {100 * less.half:.0f})"
            sure = less.half is None or abs(less.mean) > less.half
            said = verdict(less.mean) if sure else UNCLEAR
            found.append(Verdict(scope, f"{100 * less.mean:.0f} % less{half}", with_seeds(said, told["seeds"])))
        return found

    return check


def majority(facts: Facts) -> list[Verdict]:
    """The share of communication."""
    found = []
    for model, told in facts["target"].items():
        for name, cost in told["methods"].items():
            if cost is not None:
                share = cost["communication"] / (cost["communication"] + cost["computing"])
                found.append(Verdict(f"{model}, {name}", f"{100 * share:.1f} % of the time is T_comm", BY_CONSTRUCTION))
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
        saved_ = {
            what: Estimate.of([1 - one[what] / theirs[what] for one in row["reached"] if one is not None])
            for what in ("rounds", "serial_steps", "bytes")
        }
        behind = [what.replace("_", " ") for what, less in saved_.items() if less.mean <= 0]
        noisy = [
            what.replace("_", " ") for what, less in saved_.items() if less.half is not None and abs(less.mean) <= less.half
        ]
        verdict = "less of all three" if not behind else f"not less in {' and '.join(behind)}"
        verdict = UNCLEAR if missed else f"{UNCLEAR} ({' and '.join(noisy)})" if noisy else verdict
        found.append(Verdict(scope, shown, with_seeds(verdict, len(row["reached"]))))
    return found
