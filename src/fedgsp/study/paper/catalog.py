"""The studies by name: each asks a runner for its units (`gather`) and shows what came of them (`show`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError, did_you_mean
from fedgsp.study.findings import Findings
from fedgsp.study.paper import (
    ablation,
    adaptive,
    advice,
    cost_to_target,
    cpd,
    curves,
    few_clients,
    fleets,
    growth,
    kappa,
    ours,
    rivals,
    robustness,
    robustness_tables,
    skew,
    table,
)

if TYPE_CHECKING:
    from fedgsp.study.paper.runner import PaperRunner

PICTURES = ("png",)
"""One file a figure: results are committed."""


@dataclass(frozen=True)
class Study:
    """A question that runs answer.

    Args:
        title: The heading of its page.
        gather: Asks a runner for its runs.
        show: Makes tables, figures and facts of them.
        of_paper: Whether the paper asks it, too.
    """

    title: str
    gather: Callable[[PaperRunner], Any]
    show: Callable[[PaperRunner, Any], Findings]
    of_paper: bool = True


STUDIES: Mapping[str, Study] = {
    "cpd": Study(cpd.TITLE, cpd.gather, cpd.show),
    "curves": Study(curves.TITLE, curves.gather, curves.show),
    "growth": Study(growth.TITLE, growth.gather, growth.show),
    "kappa": Study(kappa.TITLE, kappa.gather, kappa.show),
    "table": Study(table.TITLE, table.gather, table.show),
    "cost-to-target": Study(cost_to_target.TITLE, cost_to_target.gather, cost_to_target.show),
    "rivals": Study(rivals.TITLE, rivals.gather, rivals.show, of_paper=False),
    "fleets": Study(fleets.TITLE, fleets.gather, fleets.show, of_paper=False),
    "ours": Study(ours.TITLE, ours.gather, ours.show, of_paper=False),
    "skew": Study(skew.TITLE, skew.gather, skew.show, of_paper=False),
    "advice": Study(advice.TITLE, advice.gather, advice.show, of_paper=False),
    "few-clients": Study(few_clients.TITLE, few_clients.gather, few_clients.show, of_paper=False),
    "adaptive": Study(adaptive.TITLE, adaptive.gather, adaptive.show, of_paper=False),
    "ablation": Study(ablation.TITLE, ablation.gather, ablation.show, of_paper=False),
    "robustness": Study(robustness.TITLE, robustness.gather, robustness_tables.show, of_paper=False),
}


def studies_named(names: Sequence[str]) -> list[str]:
    """Studies by name, each once; "all" are those of the paper."""
    for name in names:
        if name not in (*STUDIES, "all"):
            raise InputError(f"unknown study '{name}': {did_you_mean(name, [*STUDIES, 'all', 'report'])}")
    every = [name for name, study in STUDIES.items() if study.of_paper]
    return list(dict.fromkeys(one for name in names for one in (every if name == "all" else [name])))
