"""`study cpd`: how unlike are clients, random groups, ICG's groups and balanced groups? (Figure 3a; "82 %", "41 %", "0.1 s")

The paper's boxes are CPD over all pairs of clients (FedAvg) or of groups. It does not say how many groups there were, so
several numbers are shown, beta first; and its formula has two readings (docs/methods-reference.md): "label", the literal one,
whose percentages do not depend on a bandwidth, and "point", whose bandwidth was fitted to the paper's two percentages.
"""

from __future__ import annotations

import time
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgsp.core.seeds import Seeds
from fedgsp.plan import ICG, Balanced, Grouper, Random, distributions, group_sums, pairwise_cpd
from fedgsp.report.study_figures import BoxPlot, Picture, brief
from fedgsp.study.findings import Findings
from fedgsp.study.tables import Column, Table, percent

if TYPE_CHECKING:
    from fedgsp.plan.divergence import CpdKind
    from fedgsp.study.paper.runner import PaperRunner

TITLE = "Class probability distance (CPD) between clients and between groups"
READINGS: tuple[CpdKind, ...] = ("label", "point")
CLIENTS = "FedAvg (clients)"
GROUPERS: dict[str, Grouper] = {"NaiveGSP": Random(), "NaiveGSP+ICG": ICG(), "Balanced": Balanced()}
SEEDS = 5
"""Groupings are cheap: so many, unless told."""
MOST_KEPT = 500
"""Values kept for a box: evenly spaced quantiles, so that quartiles, extremes and shape are the same."""
PAPER_TIMING = (364, 52)
"""The paper's K and M for "ICG within 0.1 s"."""
REPEATS = 9


def gather(runner: PaperRunner) -> dict[str, Any]:
    """Distances for every number of groups and every seed, and how long ICG takes."""
    everyone, seeds = runner.facts.clients, runner.data_seeds(SEEDS)
    numbers = [m for m in runner.preset.group_counts if 2 <= m <= everyone // 2]
    key = {"groups": numbers, "seeds": list(seeds), "readings": list(READINGS), "version": 1}
    distances = runner.computed("cpd", key, lambda: _distances(runner.data.profiles().counts, numbers, seeds))
    clients = min(PAPER_TIMING[0], everyone)
    groups = min(PAPER_TIMING[1], max(2, clients // 7))
    timed = runner.computed(
        "icg-time", {"clients": clients, "groups": groups}, lambda: _time_icg(runner.data.profiles().counts[:clients], groups)
    )
    return {"distances": distances, "timed": timed}


def _distances(counts: Any, numbers: list[int], seeds: range) -> dict[str, Any]:
    """reading -> method -> groups -> {median, mean of each seed, quantiles of all pairs of all seeds}."""
    present = counts[counts.sum(axis=1) > 0]
    found: dict[str, Any] = {}
    for reading in READINGS:
        clients = pairwise_cpd(distributions(present), reading)
        found[reading] = {CLIENTS: {str(m): _summary([clients]) for m in numbers}}
        for name, grouper in GROUPERS.items():
            found[reading][name] = {
                str(m): _summary([_pairs(grouper, present, m, seed, reading) for seed in seeds]) for m in numbers
            }
    return found


def _pairs(grouper: Grouper, counts: Any, groups: int, seed: int, reading: CpdKind) -> Any:
    """CPD over pairs of the very groups that a run with this seed forms in its first round."""
    labels = grouper.assign(counts, groups, Seeds(seed).groups(1))
    return pairwise_cpd(distributions(group_sums(counts, labels, groups)), reading)


def _summary(values: list[Any]) -> dict[str, Any]:
    every = np.concatenate(values)
    kept = np.quantile(every, np.linspace(0, 1, min(MOST_KEPT, len(every))))
    return {
        "medians": [float(np.median(v)) for v in values],
        "means": [float(np.mean(v)) for v in values],
        "pairs": len(values[0]),
        "quantiles": [float(v) for v in kept],
    }


def _time_icg(counts: Any, groups: int) -> dict[str, Any]:
    """CPU seconds of one grouping with tau = 10, the median of some; the first call warms up."""
    took = []
    for repeat in range(REPEATS + 1):
        began = time.process_time()
        ICG(tau=10).assign(counts, groups, np.random.default_rng(repeat))
        took.append(time.process_time() - began)
    return {"clients": len(counts), "groups": groups, "tau": 10, "seconds": median(took[1:]), "worst": max(took[1:])}


def show(runner: PaperRunner, gathered: dict[str, Any]) -> Findings:
    """Boxes, the medians and their reductions."""
    distances, timed = gathered["distances"], gathered["timed"]
    rows, facts = [], {"icg": timed, "cpd": {}}
    numbers = list(distances["label"][CLIENTS])
    for reading in READINGS:
        for m in numbers:
            medians = {name: fmean(by_groups[m]["medians"]) for name, by_groups in distances[reading].items()}
            facts["cpd"][f"{reading} {m}"] = {
                "icg_vs_fedavg": 1 - medians["NaiveGSP+ICG"] / medians[CLIENTS],
                "icg_vs_naive": 1 - medians["NaiveGSP+ICG"] / medians["NaiveGSP"],
                "balanced_vs_icg": 1 - medians["Balanced"] / medians["NaiveGSP+ICG"],
            }
            for name, by_groups in distances[reading].items():
                against = [None if name == other else 1 - medians[name] / medians[other] for other in (CLIENTS, "NaiveGSP")]
                if name == CLIENTS:
                    against = [None, None]
                rows.append(
                    (reading, int(m), name, by_groups[m]["pairs"], medians[name], fmean(by_groups[m]["means"]), *against)
                )
    table = Table(
        "cpd", "CPD over pairs: mean over the groupings of each one's median and mean",
        (Column("reading"), Column("groups"), Column("method"), Column("pairs"), Column("median", brief), Column("mean", brief),
         Column("median below FedAvg's by %", percent), Column("below NaiveGSP's by %", percent)), rows,
        f"The paper: NaiveGSP+ICG 82 % below FedAvg and 41 % below NaiveGSP. ICG took {1000 * timed['seconds']:.1f} ms of CPU "
        f"(median of {REPEATS}, worst {1000 * timed['worst']:.1f} ms) for {timed['clients']} clients, {timed['groups']} "
        f"groups, tau 10; the paper says within 0.1 s for 364, 52, 10.",
    )  # fmt: skip
    panels = [
        [
            BoxPlot(
                f"reading '{reading}', {m} groups", "", "CPD over pairs",
                [(name, by_groups[m]["quantiles"]) for name, by_groups in distances[reading].items()],
            )
            for m in numbers
        ]
        for reading in READINGS
    ]  # fmt: skip
    caption = (
        "CPD over pairs of clients (FedAvg) and of groups, log scale; the orange line is the median, the green triangle the "
        "mean, whiskers are the extremes. Top: the literal reading; bottom: the reading calibrated to the paper's percentages."
    )
    return Findings("cpd", TITLE, [table], [Picture("cpd", caption, panels)], facts)
