"""The committed results are what their stored runs say, and the README says what the results do."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedgsp.run.files import read_lines
from fedgsp.run.metrics import final

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def findings(study: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / study / f"{study}.json").read_text())
    return found


def finals(study: str, method: str, model: str, metric: str) -> list[float]:
    """The final figure of every stored run of a method, in the order of seeds."""
    units = {
        unit["seed"]: (RESULTS / "units" / folder / "journal.jsonl", unit["rounds"])
        for folder, unit in findings(study)["units"].items()
        if unit.get("method") == method and unit["model"] == model
    }
    return [final(list(read_lines(file))[:rounds], metric) for _, (file, rounds) in sorted(units.items())]


def quoted() -> Iterator[tuple[str, str, str, str, float]]:
    """(study, method, model, metric, the figure that the study has of it)."""
    for model, told in findings("curves")["facts"].items():
        for name, figures in told["methods"].items():
            for metric in ("accuracy", "loss"):
                yield "curves", name, model, metric, fmean(figures[metric])
    facts = findings("kappa")["facts"]
    for kappa, accuracy in facts["accuracy"].items():
        yield "kappa", f"fedgsp kappa={kappa}", facts["model"], "accuracy", accuracy
    facts = findings("growth")["facts"]
    for function, told in facts["functions"].items():
        for alpha, beta, loss in told["grid"]:
            yield "growth", f"fedgsp {function}({alpha:g},{beta})", facts["model"], "loss", loss
    facts = findings("table")["facts"]
    for setting, ending in (("paper", ""), ("tuned", " tuned")):
        for name, figures in facts[setting].items():
            yield "table", f"{name}{ending}", facts["model"], "accuracy", figures[0]
            yield "table", f"{name}{ending}", facts["model"], "loss", figures[1]


@pytest.mark.parametrize("study", ["curves", "kappa", "growth", "table"])
def test_a_study_has_the_final_figures_of_its_stored_runs(study: str) -> None:
    figures = [row for row in quoted() if row[0] == study]
    assert len(figures) > 4
    for _, method, model, metric, figure in figures:
        assert fmean(finals(study, method, model, metric)) == pytest.approx(figure, abs=1e-12), (method, metric)


def test_studies_that_share_runs_say_the_same_of_them() -> None:
    kappa, table = findings("kappa")["facts"]["accuracy"]["0.3"], findings("table")["facts"]["paper"]["fedgsp"][0]
    assert kappa == pytest.approx(table, abs=1e-12)


def test_the_readme_quotes_the_curves() -> None:
    with (RESULTS / "curves" / "curves-leaf_cnn.csv").open() as file:
        rows = list(csv.DictReader(file))
    text = (ROOT / "README.md").read_text()
    for row in rows:
        accuracy, best, loss = 100 * float(row["accuracy %"]), 100 * float(row["best %"]), float(row["loss"])
        steps, traffic = float(row["serial steps"]), float(row["traffic"]) / 1e9
        line = f"| {row['method']} | {accuracy:.1f} | {best:.1f} | {loss:.3f} | {steps:,.0f} | {traffic:.0f} |"
        assert line in text


def test_the_readme_quotes_the_costs_and_the_gap() -> None:
    told = findings("cost-to-target")["facts"]["target"]["leaf_cnn"]
    gsp, avg = (told["methods"][name] for name in ("fedgsp", "fedavg"))
    text = " ".join((ROOT / "README.md").read_text().split())
    steps, traffic = (100 * (1 - gsp[what] / avg[what]) for what in ("serial_steps", "bytes"))
    assert (
        f"FedGSP has {100 * told['target']:.0f} % after {gsp['rounds']:.0f} rounds and {gsp['serial_steps']:,.0f} serial "
        f"steps, FedAvg after {avg['rounds']:.0f} rounds and {avg['serial_steps']:,.0f}: {traffic:.0f} % less "
        f"traffic, {steps:.0f} % less waiting."
    ) in text
    gap = findings("table")["facts"]["gaps_tuned"]["accuracy"]
    assert f"FedGSP is {100 * gap:.1f} points above its rivals' mean" in text
