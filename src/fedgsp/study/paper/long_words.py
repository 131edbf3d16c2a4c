"""What the longest runs say, in sentences for the first screen: does the paper's ordering hold after as many rounds?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from fedgsp.study.paper.cost_to_target import WORDS as NAMES
from fedgsp.study.paper.rows import PAPER, PAPER_END

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

    Of one that was cut from a series, its longest other runs with that model say where it was.
    """
    said = []
    for label, told in curves.items():
        ends = {words: fmean(told["methods"][words]["accuracy"]) for words in NAMES.values() if words in told["methods"]}
        if not told["longer"] or not ends:
            continue
        when = costs.get(label, {}).get("to_80", {})
        rounds = "; ".join(
            f"{words} in {_rounds(when[name])} (the paper: {PAPER[name][2]})" for name, words in NAMES.items() if name in when
        )
        others = [one for one in curves.values() if one["model"] == told["model"]]
        said.append(
            f"**After {told['rounds']} rounds** with the paper's learning rate ({told['model']}, {told['seeds']} seed(s), "
            f"[curves](curves/README.md)): {f'rounds to 80 %: {rounds}. ' if rounds else ''}"
            f"{_ends(ends, told['cut'], others)}.{_order(told['methods'])}"
        )
    return said


def _ends(ends: Mapping[str, float], cut: Sequence[str], others: Sequence[Facts]) -> str:
    papers = {words: 100 * PAPER[name][0] for name, words in NAMES.items()}
    if len(ends) == len(NAMES):
        avg, gsp = (100 * ends[words] for words in NAMES.values())
        theirs = papers["FedGSP"] - papers["FedAvg"]
        return f"FedGSP ends at {gsp:.1f} %, FedAvg at {avg:.1f} %: {gsp - avg:+.1f} points (the paper: {theirs:+.1f})"
    said = [f"{n} ends at {100 * end:.1f} % (the paper after {PAPER_END}: {papers[n]:.1f} %)" for n, end in ends.items()]
    missing = [words for words in NAMES.values() if words not in ends]
    said += [_elsewhere(words, others) if words in cut else f"{words} diverged" for words in missing]
    return "; ".join(said)


def _elsewhere(words: str, others: Sequence[Facts]) -> str:
    """Where a method that was cut from a series was in its longest other runs."""
    known = [one for one in others if words in one["methods"]]
    if not known:
        return f"{words} was cut for time"
    longest = max(known, key=lambda one: one["rounds"])
    end = 100 * fmean(longest["methods"][words]["accuracy"])
    return f"{words}, cut for time, has {end:.1f} % after {longest['rounds']} rounds"


def _order(methods: Facts) -> str:
    """All methods of a series, the most accurate first, where it has more than FedAvg and FedGSP."""
    ends = {name: fmean(one["accuracy"]) for name, one in methods.items()}
    if len(ends) <= len(NAMES):
        return ""
    shown = "; ".join(f"{name} {100 * ends[name]:.1f} %" for name in sorted(ends, key=lambda name: -ends[name]))
    return f" All in order: {shown}. In the paper FedGSP is first and NaiveGSP+ICG second, before NaiveGSP and FedAvg."


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
