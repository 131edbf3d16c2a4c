"""The committed results are what their stored runs say, and the README says what the results do."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fedgsp.run.metrics import final
from fedgsp.study.paper.report import derive
from fedgsp.study.paper.rows import OURS
from fedgsp.study.store import MANIFEST, ROWS, UnitStore

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def findings(study: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / study / f"{study}.json").read_text())
    return found


@cache
def store() -> UnitStore:
    return UnitStore(RESULTS)


def finals(study: str, method: str, model: str, metric: str) -> list[float]:
    """The final figure of every stored run of a method, in the order of seeds."""
    units = {}
    for unit, told in findings(study)["units"].items():
        uses = {told.get("method"): told.get("rounds"), **told.get("also", {})}
        if method in uses and told["model"] == model:
            units[told["seed"]] = (unit, uses[method])
    return [final(store().trace(unit, rounds).history, metric) for _, (unit, rounds) in sorted(units.items())]


def quoted() -> Iterator[tuple[str, str, str, str, float]]:
    """(study, method, model, metric, the figure that the study has of it)."""
    for label, told in findings("curves")["facts"].items():
        ending = f", {told['rounds']} rounds" if "," in label else ""
        for name, figures in told["methods"].items():
            for metric in ("accuracy", "loss"):
                yield "curves", f"{name}{ending}", told["model"], metric, fmean(figures[metric])
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
    long = facts["long"]
    for name, values in long["long_by_seed"].items():
        yield "table", f"{name} tuned, {long['rounds']} rounds", long["model"], "accuracy", fmean(values)


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
    text = " ".join((ROOT / "README.md").read_text().split())
    ends = {row["method"].lower(): f"{100 * float(row['accuracy %']):.1f} %" for row in rows}
    assert f"FedGSP ends at {ends['fedgsp']}, FedAvg at {ends['fedavg']} and NaiveGSP at {ends['naivegsp']}," in text
    facts = findings("curves")["facts"]
    longest = {name: fmean(one["accuracy"]) for name, one in facts["leaf_cnn, 250 rounds"]["methods"].items()}
    assert f"after 250 rounds FedGSP has {100 * longest['FedGSP']:.1f} %, FedAvg {100 * longest['FedAvg']:.1f} %" in text
    assert "the paper's, after 500, have 85.4 and 80.1 %" in text
    small = {name: fmean(one["accuracy"]) for name, one in facts["small_cnn, 500 rounds"]["methods"].items()}
    assert "with a small network and 500 rounds NaiveGSP falls behind both" in text
    assert small["NaiveGSP"] < min(small["FedAvg"], small["FedGSP"])


def test_the_readme_quotes_the_costs_and_the_gap() -> None:
    told = findings("cost-to-target")["facts"]["target"]["leaf_cnn"]
    gsp, avg = (told["methods"][name] for name in ("fedgsp", "fedavg"))
    text = " ".join((ROOT / "README.md").read_text().split())
    steps, traffic = (100 * (1 - gsp[what] / avg[what]) for what in ("serial_steps", "bytes"))
    assert (
        f"FedGSP has {100 * told['target']:.0f} % with {traffic:.0f} % less traffic and {steps:.0f} % less waiting than FedAvg."
        in text
    )
    gap = findings("table")["facts"]["gaps_tuned"]["accuracy"]
    assert f"FedGSP is {100 * gap:.1f} points above its rivals' mean" in text


def test_the_readme_quotes_what_ours_is_worth() -> None:
    told = findings("ours")["facts"]["verdicts"]["own clients, test samples"]
    (pair,) = (p for p in told["pairs"] if (p["ours"], p["against"]) == ("long-chains-then-adam", "fedgsp"))
    assert (told["target"], pair["verdict"]) == (0.8, "holds")
    steps, size = (round(-100 * pair["share"][what]) for what in ("serial_steps", "bytes"))
    text = " ".join((ROOT / "README.md").read_text().split())
    assert "has 80 % of the test samples in no more rounds than tuned FedGSP" in text
    assert f"It takes {steps} % fewer serial steps and {size} % fewer bytes" in text


@pytest.fixture(scope="module")
def derived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`fedgsp study report` into another folder, with its pictures where a test looks at them."""
    folder = tmp_path_factory.mktemp("derived")
    drawn = any(item.name == test_every_picture_can_be_drawn_again.__name__ for item in request.session.items)
    derive(RESULTS, folder, adjusted=lambda sets: lambda config: config, draw=drawn)
    return folder


def test_every_page_follows_from_the_stored_runs(derived: Path) -> None:
    """The same files, the same bytes. Nothing is trained, and no data is read.

    Pictures are compared by the digest of what they show, which stands in STUDY.json.
    """
    kept = {file.relative_to(RESULTS): file for file in RESULTS.rglob("*") if file.is_file() and not is_other(file)}
    drawn = [file for file in derived.rglob("*") if file.suffix in (".png", ".svg")]
    made = {file.relative_to(derived): file for file in derived.rglob("*") if file.is_file() and file not in drawn}
    assert sorted(made) == sorted(kept)
    for name, file in kept.items():
        assert made[name].read_text() == file.read_text(), f"results/{name} is stale: run fedgsp study report --out results"


def test_the_docs_quote_the_rivals() -> None:
    text, page = (file.read_text() for file in (ROOT / "docs" / "methods.md", RESULTS / "rivals" / "README.md"))
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) > 45
    assert [row for row in rows if row not in text] == []


def test_the_docs_quote_what_2_of_20_sites_can_do() -> None:
    text, page = (file.read_text() for file in (ROOT / "docs" / "robustness.md", RESULTS / "robustness" / "README.md"))
    rows = page.split("sites attack, ")[1].split("\n\n")[1].splitlines()
    assert len(rows) == 8, "a heading, nobody and five attackers"
    assert [row for row in rows if row not in text] == []


def test_2_of_20_sites_cost_fedavg_less_than_3_points_with_the_recommended_rule() -> None:
    facts = findings("robustness")["facts"]
    lost = {name: value for name, value in facts["lost"].items() if name.startswith("fedavg, ")}
    assert len(lost) == 6
    assert max(lost.values()) < facts["within"] == 0.03


def is_other(file: Path) -> bool:
    """Whether it is a picture, or what the pages are made of."""
    return (
        file.suffix in (".png", ".svg", ".toml") or file.name in (ROWS, MANIFEST) or "units" in file.relative_to(RESULTS).parts
    )


@pytest.mark.slow
def test_every_picture_can_be_drawn_again(derived: Path) -> None:
    """The same bytes wherever the pinned matplotlib is."""
    pinned = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("matplotlib=="))
    pictures = [file for file in RESULTS.rglob("*") if file.suffix in (".png", ".svg")]
    assert len(pictures) > 8
    for file in pictures:
        again = derived / file.relative_to(RESULTS)
        assert again.exists()
        if version("matplotlib") == pinned.partition("==")[2]:
            assert again.read_bytes() == file.read_bytes(), file.name


def test_no_best_value_of_the_table_is_at_an_edge_of_its_grid() -> None:
    tuning = findings("table")["facts"]["tuning"]
    assert len(tuning) >= 11
    assert [name for name, told in tuning.items() if told["advice"]] == []


def test_the_first_screen_answers_which_method() -> None:
    page = (RESULTS / "README.md").read_text()
    screen = page[: page.index("## The paper's numbers and ours")]
    for words in ("**FedGSP** where", "**Something else** where", "**Ours**", "fleets/fleets.png"):
        assert words in screen, words
    front = findings("fleets")["facts"]["front"]
    assert {name for names in front.values() for name in names} <= {*OURS}, "or say otherwise"


def test_advice_is_good_or_says_that_it_is_not_sure() -> None:
    """In four of five cells the choice is within 15 % of the soonest in hindsight, or there is a doubt."""
    facts = findings("advice")["facts"]
    assert facts["cells"] >= 12
    assert facts["counts"]["worse, and sure"] <= facts["cells"] / 5


def test_all_of_it_is_a_few_files() -> None:
    files = [file for file in RESULTS.rglob("*") if file.is_file() and "units" not in file.relative_to(RESULTS).parts]
    assert len(files) < 60
    units = store().units.values()
    assert len(units) > 570
    assert sum(unit["rounds"] for unit in units if "config" in unit) > 18_084
    assert all({"config", "kernel", "commit", "data", "versions", "status"} <= set(unit) for unit in units if "config" in unit)
