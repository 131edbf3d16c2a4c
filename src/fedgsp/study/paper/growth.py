"""`study growth`: the test loss over alpha and beta for Linear, Log and Exp (Figure 4; "moderate alpha * beta").

The paper does not print its grids. Here Log's rates are given, and Linear and Exp get the rates with which there are as many
groups in the last round: the three functions then start and end alike and differ only in the way between. Nothing is chosen
from these maps, which show test loss as the paper's do.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedgsp.plan import Exp, Linear, Log
from fedgsp.report.study_figures import HeatMap, Picture
from fedgsp.run.metrics import final
from fedgsp.study.findings import Findings
from fedgsp.study.noise import Estimate
from fedgsp.study.paper.equal_steps import equal_steps
from fedgsp.study.records import Trace
from fedgsp.study.tables import Column, Table, number, percent
from fedgsp.study.targets import window_of

if TYPE_CHECKING:
    from fedgsp.plan.growth import Growth
    from fedgsp.study.paper.runner import PaperRunner

TITLE = "Growth functions: test loss over alpha and beta"
FUNCTIONS = {"Linear": Linear, "Log": Log, "Exp": Exp}

Cells = dict[tuple[str, float, int], list[Trace]]


def rates(function: str, log_alphas: tuple[float, ...], rounds: int) -> tuple[float, ...]:
    """Alphas with which a function grows by as much until the last round as Log does with these; two digits."""
    factors = [alpha * math.log(rounds) + 1 for alpha in log_alphas]
    if function == "Log":
        return log_alphas
    if function == "Linear":
        return tuple(_rounded((factor - 1) / (rounds - 1)) for factor in factors)
    return tuple(_rounded(factor ** (1 / (rounds - 1)) - 1) for factor in factors)


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")


def gather(runner: PaperRunner) -> Cells:
    """A run for every function, alpha, beta and seed."""
    arm, preset = runner.preset.growth, runner.preset
    fedgsp = runner.method("fedgsp")
    found: Cells = {}
    for name, function in FUNCTIONS.items():
        for alpha in rates(name, preset.log_alphas, arm.rounds):
            for beta in preset.betas:
                growth: Growth = function(alpha, beta)
                method = replace(fedgsp, planner=replace(fedgsp.planner, growth=growth))  # type: ignore[type-var]
                found[name, alpha, beta] = runner.traces(f"fedgsp {name}({alpha:g},{beta})", method, arm)
    return found


def show(runner: PaperRunner, gathered: Cells) -> Findings:
    """Three heat maps on one scale, and where each is smallest."""
    arm, clients = runner.preset.growth, runner.facts.clients
    losses = {key: _mean(runs, "loss") for key, runs in gathered.items()}
    known = [value for value in losses.values() if value is not None]
    panels, rows = [], []
    facts: dict[str, Any] = {
        "model": arm.model,
        "rounds": arm.rounds,
        "seeds": len(runner.seeds(arm)),
        "functions": {},
    }
    for name, function in FUNCTIONS.items():
        alphas, betas = rates(name, runner.preset.log_alphas, arm.rounds), runner.preset.betas
        values = [[losses[name, alpha, beta] for alpha in alphas] for beta in betas]
        panels.append(
            HeatMap(name, "alpha", "beta", [f"{a:g}" for a in alphas], [str(b) for b in betas], values,
                 min(known, default=0.0), max(known, default=1.0))
        )  # fmt: skip
        least = min((loss, alpha, beta) for (n, alpha, beta), loss in losses.items() if n == name and loss is not None)
        inside = least[1] not in (alphas[0], alphas[-1]), least[2] not in (betas[0], betas[-1])
        facts["functions"][name] = {
            "loss": least[0], "alpha": least[1], "beta": least[2], "alpha_inside": inside[0], "beta_inside": inside[1],
            "grid": [[a, b, losses[name, a, b]] for a in alphas for b in betas],
        }  # fmt: skip
        for alpha in alphas:
            for beta in betas:
                runs = gathered[name, alpha, beta]
                rows.append(
                    (name, alpha, beta, alpha * beta, function(alpha, beta).groups(arm.rounds, clients), *_figures(runs))
                )  # fmt: skip
    best = min(facts["functions"], key=lambda name: facts["functions"][name]["loss"])
    facts["best"] = best
    spread = max(known) - min(known) if known else 0.0
    facts["spread"] = spread
    table = Table(
        "growth", f"After {arm.rounds} rounds, {arm.model}",
        (Column("f"), Column("alpha", "{:g}".format), Column("beta"), Column("alpha * beta", "{:.3g}".format),
         Column("groups at the end"), Column("loss", number(3)), Column("accuracy %", percent),
         Column("serial steps", number())),
        rows,
        f"Final figures ({window_of(gathered.values())}) on test samples. "
        + " ".join(
            f"{name}: least {f['loss']:.3f} with alpha {f['alpha']:g}, beta {f['beta']}."
            for name, f in facts["functions"].items()
        )
        + f" From the best to the worst cell of all maps the loss differs by {spread:.3f}.",
    )  # fmt: skip
    caption = (
        f"Test loss after {arm.rounds} rounds ({arm.model}, {len(runner.seeds(arm))} seed(s)) for the three growth functions, "
        f"one colour scale, dark is small; a frame marks the smallest of each map."
    )
    steps = equal_steps("growth", {f"{name}({alpha:g}, {beta})": runs for (name, alpha, beta), runs in gathered.items()})
    return Findings("growth", TITLE, [table, steps], [Picture("growth", caption, [panels])], facts)


def _mean(runs: list[Trace], metric: str) -> float | None:
    if any(trace.diverged for trace in runs):
        return None
    return Estimate.of([final(trace.history, metric) for trace in runs]).mean


def _figures(runs: list[Trace]) -> tuple[Any, Any, Any]:
    if any(trace.diverged for trace in runs):
        return None, None, None
    return (
        Estimate.of([final(trace.history, "loss") for trace in runs]),
        Estimate.of([final(trace.history, "accuracy") for trace in runs]),
        Estimate.of([trace.history[-1]["serial_steps_total"] for trace in runs]),
    )
