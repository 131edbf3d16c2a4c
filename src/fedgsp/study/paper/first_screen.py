"""The first screen of the results: when to use FedGSP, when something else, and what our own methods are worth.

Every sentence is made from the findings of a study; where a study has not been run its sentence is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from fedgsp.cost import FLEETS
from fedgsp.study.paper.long_words import long_words
from fedgsp.study.paper.shares import HOLDS, TOO_FEW

Facts = Mapping[str, Any]
BEST_FORM, BEST_OURS = "fedgsp@alpha=1+kappa=0.2", "long-chains-then-adam"
OURS = {
    "fedgsp-capped": "FedGSP's chains, steps of up to twice the mean update, averaged models",
    "chains-then-adam": "two rounds of short chains, then FedAdam begun afresh, averaged models",
    "long-chains-then-adam": "the same after two rounds of two chains of a tenth of the clients each",
}


def first_screen(found: Mapping[str, Any]) -> list[str]:
    """Lines of Markdown.

    Args:
        found: Study -> its findings, as `read_findings` gives them.
    """
    parts = [("fleets", _fleets), ("ours", _ours), ("skew", _skew), ("few-clients", _few), ("advice", _advice)]
    lines = [line for name, say in parts[:1] if name in found for line in say(found[name]["facts"])]
    lines += long_words(found)
    lines += [line for name, say in parts[1:] if name in found for line in say(found[name]["facts"])]
    return ["## Which method?", "", *lines] if lines else []


def _means(facts: Facts) -> dict[str, dict[str, float]]:
    """Method -> rounds, bytes and seconds by fleet, of those that every seed got to the target with."""
    found = {}
    for name, several in facts.get("reached", {}).items():
        if several and all(several):
            told = {what: fmean(one[what] for one in several) for what in ("rounds", "bytes")}
            found[name] = told | {fleet: fmean(one["seconds"][fleet] for one in several) for fleet in FLEETS}
    return found


def _fleets(facts: Facts) -> list[str]:
    means = _means(facts)
    if not {"fedavg", "fedgsp"} <= means.keys():
        return []
    avg, gsp = means["fedavg"], means["fedgsp"]
    goal = f"{100 * facts['target']:.0f} %"
    soon, slow = _times(gsp, avg, below=True), _times(gsp, avg, below=False)
    lines = [
        f"- **FedGSP** where rounds or bytes are what costs: {goal} in {gsp['rounds']:.0f} rounds and "
        f"{gsp['bytes'] / 1e6:.0f} MB, tuned FedAvg in {avg['rounds']:.0f} and {avg['bytes'] / 1e6:.0f} MB"
        + (f". In time: {soon}" if soon else "") + f" ({facts['model']}, {facts['seeds']} seeds).",
    ]  # fmt: skip
    if slow:
        lines.append(f"- **Something else** where a chain's clients wait for each other: {slow}. Who is soonest and cheapest:")
    lines += ["", f"| fleet | soonest to {goal} | s | FedGSP, s | FedAvg, s | least traffic | on the front |",
              "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    cheap = min(means, key=lambda name: means[name]["bytes"])
    for fleet in FLEETS:
        first = min(means, key=lambda name: means[name][fleet])
        lines.append(
            f"| {fleet} | {first} | {means[first][fleet]:.1f} | {gsp[fleet]:.1f} | {avg[fleet]:.1f} | "
            f"{cheap}, {means[cheap]['bytes'] / 1e6:.0f} MB | {', '.join(facts['front'][fleet])} |"
        )
    every = facts.get("every", {})
    if every.get("front"):
        fronts = "; ".join(f"{fleet}: {', '.join(names)}" for fleet, names in every["front"].items())
        lines += ["", f"These are the paper's rivals, FedGSP and ours. Of all methods with one model, at the lower target of "
                  f"{100 * every['target']:.0f} %, the fronts are: {fronts} ([fleets](fleets/README.md))."]  # fmt: skip
    return [*lines, "", "![Seconds and traffic to the target on each fleet: lower left is best](fleets/fleets.png)", ""]


def _times(gsp: Mapping[str, float], avg: Mapping[str, float], *, below: bool) -> str:
    return ", ".join(
        f"{gsp[fleet]:.1f} s against {avg[fleet]:.1f} on {fleet}" for fleet in FLEETS if (gsp[fleet] < avg[fleet]) == below
    )


def _ours(facts: Facts) -> list[str]:
    lines = ["- **Ours**: " + "; ".join(f"`{name}` ({what})" for name, what in OURS.items()) + "."]
    rows = [
        f"| {place} | {100 * told['target']:.0f} % | {pair['ours']} | {_signed(pair, 'rounds')} | "
        f"{_signed(pair, 'serial_steps')} | {_signed(pair, 'bytes')} |"
        for place, told in facts.get("verdicts", {}).items() for pair in told["pairs"] if pair["against"] == "fedgsp"
    ]  # fmt: skip
    if rows:
        large = f" (with the larger model {facts['large_seeds']})" if facts.get("large_seeds") else ""
        lines += ["", f"Against FedGSP tuned by the same budget, {facts['seeds']} seeds{large}; * is more than noise:", "",
                  "| evaluated on | to | ours | rounds | serial steps | bytes |", "| --- | --- | --- | --- | --- | --- |",
                  *rows, ""]  # fmt: skip
    pairs = [pair for told in facts.get("verdicts", {}).values() for pair in told["pairs"] if pair["verdict"] != TOO_FEW]
    by_name: dict[str, list[bool]] = {}
    for pair in pairs:
        if pair["against"] == "fedgsp":
            by_name.setdefault(pair["ours"], []).append(pair["verdict"] == HOLDS)
    if by_name:
        counts = ", ".join(f"{name} {sum(held)} of {len(held)}" for name, held in sorted(by_name.items(), key=_most_first))
        held = sum(pair["verdict"] == HOLDS for pair in pairs)
        lines.append(
            f"- No more rounds than FedGSP tuned by the same budget, and fewer serial steps and fewer bytes by more than noise "
            f"(*): {counts}. Of all {len(pairs)} comparisons, those with FedGSP in two other forms among them, it holds in "
            f"{held} ([ours](ours/README.md)). What each piece brings, and other forms: [ablation](ablation/README.md)."
        )
        lines += _against_best_form(facts)
    return lines


def _against_best_form(facts: Facts) -> list[str]:
    """Ours against FedGSP in the form that takes the fewest rounds, where most was measured."""
    place, told = next(iter(facts["verdicts"].items()))
    pairs = [pair for pair in told["pairs"] if pair["against"] == BEST_FORM and pair["ours"] == BEST_OURS]
    return [
        f"- Against FedGSP in another form, {BEST_FORM.partition('@')[2]} ([ablation](ablation/README.md)), "
        f"{pair['ours']} takes {_signed(pair, 'rounds')} rounds, {_signed(pair, 'serial_steps')} serial steps and "
        f"{_signed(pair, 'bytes')} bytes ({place}, to {100 * told['target']:.0f} %)."
        for pair in pairs
    ]


def _most_first(counted: tuple[str, list[bool]]) -> tuple[int, str]:
    return -sum(counted[1]), counted[0]


def _signed(pair: Facts, what: str) -> str:
    return f"{100 * pair['share'][what]:+.0f} %{'*' if pair['clear'][what] else ''}"


def _skew(facts: Facts) -> list[str]:
    leads = facts.get("leads", {})
    words = {"round": "rounds", "serial_steps_total": "serial steps", "bytes_total": "bytes"}
    said = []
    for key, name in words.items():
        counts: dict[str, int] = {}
        for lead in leads.get(key, {}).values():
            counts[lead] = counts.get(lead, 0) + 1
        if counts:
            top = sorted(counts, key=lambda one: -counts[one])[:3]
            said.append(f"At equal {name}: {', '.join(f'{one} {counts[one]}' for one in top)}")
    count = len(next(iter(leads.values()), {}))
    return [f"- **Label skew** ([skew](skew/README.md)), how often each is the highest in {count} dealings. {'. '.join(said)}."]


def _few(facts: Facts) -> list[str]:
    said = []
    for count, chosen in facts.get("chosen", {}).items():
        figures = facts["figures"][count]
        names = [name for name in dict.fromkeys((chosen, "fedavg", *OURS)) if name in figures]
        told = ", ".join(f"{name} {100 * figures[name]['rounds']:.1f} %" for name in names)
        said.append(f"{count} clients: {told}")
    return [f"- **Few clients** ([few-clients](few-clients/README.md), validation samples). {'. '.join(said)}."] if said else []


def _advice(facts: Facts) -> list[str]:
    counts, cells = facts["counts"], facts["cells"]
    good = counts["within 15 %"]
    return [
        f"- **`fedgsp advise`** with a pilot would have been within 15 % of the soonest in {good} of {cells} cells of data and "
        f"fleet, and not sure in {counts['not sure, and said so']} of the others ([advice](advice/README.md))."
    ]
