"""What the longest runs say, in sentences for the first screen: does the paper's ordering hold after as many rounds?"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from fedgsp.study.paper.cost_checks import PAPER_ROUNDS
from fedgsp.study.paper.cost_to_target import WORDS as NAMES
from fedgsp.study.paper.rows import PAPER

Facts = Mapping[str, Any]


def long_words(found: Mapping[str, Any]) -> list[str]:
    """Lines of Markdown.

    Args:
        found: Study -> its findings, as `read_findings` gives them.
    """
    facts = {name: found[name]["facts"] for name in ("curves", "cost-to-target", "table") if name in found}
    said = [
        *_one_rate(facts.get("curves", {}), facts.get("cost-to-target", {}).get("target", {})),
        *_tuned(facts.get("table", {}).get("long")),
    ]
    return [f"- {text}" for text in said]


def _one_rate(curves: Facts, costs: Facts) -> list[str]:
    """The longer series of the curves: FedAvg and FedGSP with the paper's learning rate.

    Where FedGSP was cut from one, its shorter run says when it had 80 %, and where it was then.
    """
    said = []
    for label, told in curves.items():
        if not told.get("cut") and "," not in label:
            continue
        ends = {name: fmean(told["methods"][name]["accuracy"]) for name in NAMES.values() if name in told["methods"]}
        when = costs.get(label, {}).get("to_80", {})
        if "FedAvg" not in ends or not {*NAMES} <= when.keys():
            continue
        rounds = "; ".join(
            f"{words} in {_rounds(when[name])} (the paper: {theirs})"
            for (name, words), theirs in zip(NAMES.items(), reversed(PAPER_ROUNDS), strict=True)
        )
        said.append(
            f"**After {told['rounds']} rounds** with the paper's learning rate ({told['model']}, {told['seeds']} seed(s), "
            f"[curves](curves/README.md)): rounds to 80 %: {rounds}. {_ends(ends, curves.get(told['model'], {}))}."
        )
    return said


def _ends(ends: Mapping[str, float], shorter: Facts) -> str:
    avg, papers = 100 * ends["FedAvg"], {name: 100 * PAPER[name][0] for name in NAMES}
    if "FedGSP" in ends:
        gap, theirs = 100 * ends["FedGSP"] - avg, papers["fedgsp"] - papers["fedavg"]
        return (
            f"FedGSP ends at {100 * ends['FedGSP']:.1f} %, FedAvg at {avg:.1f} %: {gap:+.1f} points (the paper: {theirs:+.1f})"
        )
    text = f"FedAvg ends at {avg:.1f} % (the paper after 500: {papers['fedavg']:.1f} %)"
    known = shorter.get("methods", {}).get("FedGSP")
    if known is None:
        return text + "; FedGSP was cut for time"
    return f"{text}; FedGSP, cut for time after {shorter['rounds']} rounds, has {100 * fmean(known['accuracy']):.1f} % there"


def _rounds(several: list[Any]) -> str:
    there = [one["rounds"] for one in several if one]
    return f"{fmean(there):.0f}" if there and len(there) == len(several) else "none"


def _tuned(long: Facts | None) -> list[str]:
    """The table's longer series: who ends where, and when each had 80 %."""
    if not long:
        return []
    ends = {name: fmean(values) for name, values in long["long_by_seed"].items() if values}
    order = sorted(ends, key=lambda name: -ends[name])
    shown = ", ".join(f"{name} {100 * ends[name]:.1f} % ({_rounds(long['reached'][name])})" for name in order)
    text = (
        f"**Tuned, after {long['rounds']} rounds** ({long['model']}, {long['seeds']} seed(s), [table](table/README.md)): "
        f"accuracy, and rounds to 80 %: {shown}."
    )
    papers = [name for name in order if name in PAPER]
    if len(papers) > 1:
        theirs = sorted(papers, key=lambda name: -PAPER[name][0])
        same = "is" if papers == theirs else "is not"
        text += f" The paper's order of these ({', '.join(theirs)}) {same} theirs here"
        text += "; FedGSP is first among them." if papers[0] == "fedgsp" else f"; first among them is {papers[0]}."
    return [text + (f" Cut for time: {', '.join(long['cut'])}." if long["cut"] else "")]
