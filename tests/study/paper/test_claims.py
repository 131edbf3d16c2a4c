"""The report: every claim of the paper is there, verdicts follow from the facts, missing studies are said to be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedgsp.core.errors import InputError
from fedgsp.study.paper import claim_checks, cost_checks
from fedgsp.study.paper.catalog import studies_named
from fedgsp.study.paper.claims import CLAIMS
from fedgsp.study.paper.report import write_report
from fedgsp.study.paper.rows import FIXED, SHUFFLED
from fedgsp.study.paper.verdicts import BY_CONSTRUCTION, DIRECTION, FAILS, HOLDS, UNCLEAR, against_rest, of_share, of_size


def leave(out: Path, study: str, facts: dict[str, Any]) -> None:
    (out / study).mkdir()
    record = {
        "schema": 2, "study": study, "preset": "laptop", "command": f"fedgsp study {study}", "seeds": [0, 1],
        "data": {"source": "npz:x", "fingerprint": "ab" * 32, "clients": 368, "samples": 42042},
        "versions": {"fedgsp": "0.1.0", "torch": "2"}, "facts": facts,
    }  # fmt: skip
    (out / study / f"{study}.json").write_text(json.dumps(record))


CPD = {
    "icg": {"clients": 364, "groups": 52, "tau": 10, "seconds": 0.01, "worst": 0.02},
    "cpd": {"label 10": {"icg_vs_fedavg": 0.997, "icg_vs_naive": 0.425, "balanced_vs_icg": 0.9}},
}


def test_every_number_of_the_abstract_and_section_4_is_listed() -> None:
    texts = " ".join(f"{claim.text} {claim.paper}" for claim in CLAIMS)
    for number in ("3.7", "90 %", "0.1 s", "6.3 million", "25.2", "96 M", "82 %", "41 %", "6 %", "85.4", "0.453", "5.3 %",
                   "34 rounds", "470", "0.123", "84 %", "93 %"):  # fmt: skip
        assert number in texts, number
    for words in ("loss of NaiveGSP+ICG rises", "alpha * beta should be moderate", "robust to kappa", "client order",
                  "negligible effect on T_comp", "proportional effect on T_comm", "outperforms all"):  # fmt: skip
        assert words in texts, words
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    assert {claim.study for claim in CLAIMS} == {*studies_named(["all"]), ""}


def test_sizes_and_shares() -> None:
    assert of_size(5.3, 5.0) == HOLDS
    assert of_size(5.3, 15.0) == of_size(5.3, 1.0) == DIRECTION
    assert of_size(5.3, -1.0) == of_size(-0.1, 0.1) == of_size(5.3, 0.0) == FAILS
    assert of_size(5.3, 5.0, half=6.0) == UNCLEAR
    assert (of_share(0.93, 0.92), of_share(0.82, 0.99), of_share(0.93, -0.1)) == (HOLDS, DIRECTION, FAILS)
    assert of_share(0.927, 0.88) == DIRECTION, "1.6 times the cost is left"
    assert of_share(0.41, 0.27) == DIRECTION, "14 points apart"
    assert of_share(0.93, 0.92, half=0.95) == UNCLEAR


def test_the_highest_is_only_who_is_above_by_more_than_the_noise() -> None:
    """Leads of 3 points with little noise are clear; one of 0.1 points is not; one seed says nothing."""
    ours, far, near = [0.80, 0.81, 0.82, 0.81], [0.77, 0.781, 0.79, 0.779], [0.81, 0.80, 0.829, 0.805]
    assert against_rest("us", {"us": ours, "far": far}) == ("below it: far", HOLDS)
    assert against_rest("us", {"us": ours, "far": far, "near": near}) == (
        "below it: far; not told apart from it: near",
        UNCLEAR,
    )
    assert against_rest("far", {"us": ours, "far": far}) == ("above it: us", FAILS)
    assert against_rest("us", {"us": ours[:1], "far": far[:1]})[1] == UNCLEAR


class TestChecks:
    def test_the_average_gap(self) -> None:
        few, none = {"halves": {"accuracy": 0.002}}, {"halves": {"accuracy": 0.05}}
        facts = {
            "model": "m", "rounds": 60, "seeds": 3, "gaps_paper": {"accuracy": 0.035, **few},
            "gaps_tuned": {"accuracy": -0.01, **few},
        }  # fmt: skip
        check = claim_checks.table_gap("accuracy", 0.0369, str)
        assert [v.verdict for v in check(facts)] == [HOLDS, FAILS]
        assert [v.verdict for v in check({**facts, "gaps_paper": {"accuracy": 0.035, **none}})] == [UNCLEAR, FAILS]

    def test_a_mean_of_rounds_says_how_many_arrived(self) -> None:
        facts = {
            "model": "m", "rounds": 60, "seeds": 3, "gaps_paper": {"fewer_rounds": 0.85, "arrived": 2},
            "gaps_tuned": {"fewer_rounds": 0.85, "arrived": 7},
        }  # fmt: skip
        two, seven = claim_checks.table_gap("fewer_rounds", 0.843, lambda value: f"{100 * value:.0f} %")(facts)
        assert (two.verdict, seven.verdict) == (UNCLEAR, HOLDS)
        assert two.ours == "85 % against the 2 of 7 that arrived; a mean over the quickest rivals only"
        assert seven.ours == "85 % against the 7 of 7 that arrived"

    def test_outperforming_all_looks_at_noise(self) -> None:
        lead = {"fedgsp": [0.83, 0.84, 0.83], "fedavg": [0.80, 0.81, 0.80], "fedadam": [0.835, 0.83, 0.832]}
        facts = {"model": "m", "rounds": 60, "seeds": 3, "paper_by_seed": lead, "tuned_by_seed": {**lead, "fedadam": [0.5]}}
        one, tuned = claim_checks.outperforms(facts)
        assert one.verdict == UNCLEAR
        assert one.ours.endswith("below it: fedavg; not told apart from it: fedadam")
        assert tuned.verdict == HOLDS, "a rival without a figure for every seed is not compared"

    def test_what_a_formula_says_is_no_finding(self) -> None:
        cost = {"communication": 99.0, "computing": 1.0}
        (found,) = cost_checks.majority({"target": {"m": {"methods": {"fedgsp": cost}}}})
        assert found.verdict == BY_CONSTRUCTION
        facts = {"model": "m", "rounds": 6, "seeds": 3, "comm": {"0.1": 0.1, "1": 1.0}, "real_comm": {"0.1": 0.1, "1": 1.0}}
        assert claim_checks.kappa_communication(facts)[0].verdict == BY_CONSTRUCTION

    def test_robust_means_within_two_points_with_all_noise(self) -> None:
        facts = {"model": "m", "rounds": 6, "seeds": 3, "said": "", "accuracy": {"0.1": 0.8}}
        verdicts = [
            claim_checks.kappa_accuracy({**facts, "widest": w})[0].verdict
            for w in ([0.008, 0.005], [0.008, 0.02], [0.05, 0.01])
        ]
        assert verdicts == [HOLDS, UNCLEAR, FAILS]

    def test_the_papers_eighty_per_cent_is_reported(self) -> None:
        told = {
            "target": None, "rounds": 100, "seeds": 1, "methods": {},
            "to_80": {"fedgsp": [{"rounds": 38}], "fedavg": [None]},
        }  # fmt: skip
        first, second = cost_checks.rounds_to_target({"target": {"leaf_cnn": told}})
        assert first.ours == "to 80 %: FedGSP in round 38 (the paper: 34), FedAvg not within 100"
        assert first.verdict.startswith("holds (one seed")
        assert second.verdict == UNCLEAR

    def test_a_saving_within_the_noise_is_none(self) -> None:
        def costs(*values: float) -> dict[str, Any]:
            return {"by_seed": [{"bytes": value} for value in values]}

        def verdict(ours: tuple[float, ...]) -> str:
            told = {"target": 0.7, "seeds": 3, "methods": {"fedgsp": costs(*ours), "fedavg": costs(100, 100, 100)}}
            return cost_checks.saved(cost_checks.about(0.9), lambda c: c["bytes"])({"target": {"m": told}})[0].verdict

        assert verdict((10, 11, 9)) == HOLDS
        assert verdict((50, 51, 49)) == DIRECTION
        assert verdict((50, 150, 90)) == UNCLEAR

    def test_rising_loss(self) -> None:
        risen = {"loss": [1.2, 1.2], "least_loss": [1.0, 1.0], "least_loss_round": [5, 6], "rise_by_others": [0.2, 0.21]}
        flat = {"loss": [1.0, 1.0], "least_loss": [1.0, 1.0], "least_loss_round": [9, 9], "rise_by_others": [-0.01, 0.0]}
        one = {"loss": [1.2], "least_loss": [1.0], "least_loss_round": [5], "rise_by_others": []}
        assert claim_checks.loss_rises({FIXED: risen, SHUFFLED: risen})[1] == HOLDS
        assert claim_checks.loss_rises({FIXED: risen, SHUFFLED: flat})[1] == ("fixed order holds, shuffled does not hold here")
        said, verdict = claim_checks.loss_rises({FIXED: one, SHUFFLED: one})
        assert verdict == UNCLEAR, "an end is never below its least"
        assert "never below it, by construction" in said
        assert claim_checks.loss_rises({FIXED: flat, SHUFFLED: flat})[1] == FAILS

    def test_one_seed_is_said_with_the_verdict(self) -> None:
        def facts(seeds: int, lead: float) -> dict[str, Any]:
            ends = {"FedAvg": 0.7, "NaiveGSP": 0.7 + lead, FIXED: 0.7, SHUFFLED: 0.7, "FedGSP": 0.7}
            return {"m": {"rounds": 9, "seeds": seeds, "methods": {n: {"accuracy": [a] * seeds} for n, a in ends.items()}}}

        check = claim_checks.gap("NaiveGSP", "FedAvg", 0.05)
        assert [v.verdict for v in check(facts(1, 0.05))] == ["holds (one seed, so noise is not ruled out)"]
        assert [v.verdict for v in check(facts(3, 0.05))] == [HOLDS]

    def test_moderate_means_inside_the_grid(self) -> None:
        grid = [[a, b, 1.0] for a in (1, 2, 3) for b in (5, 10, 20)]
        best = {"alpha": 2, "beta": 10, "loss": 0.5, "grid": grid, "alpha_inside": True, "beta_inside": True}
        facts = {"model": "m", "rounds": 4, "seeds": 2, "functions": {"Log": best, "Exp": {**best, "beta_inside": False}}}
        assert [v.verdict for v in claim_checks.moderate(facts)] == [HOLDS, FAILS]
        small = {**best, "grid": grid[:2]}
        assert [v.verdict for v in claim_checks.moderate({**facts, "functions": {"Log": small}})] == [UNCLEAR]

    def test_less_than_fedavg(self) -> None:
        row = {
            "fedavg": "tuned", "fedgsp": "tuned", "evaluated_on": "test", "end": [0.7, 0.7],
            "reached": [{"rounds": 10, "serial_steps": 500, "bytes": 1e6}, {"rounds": 10, "serial_steps": 500, "bytes": 1e6}],
            "ours": {"rounds": 10, "serial_steps": 500, "bytes": 1e6},
            "theirs": {"rounds": 100, "serial_steps": 400, "bytes": 2e6},
        }  # fmt: skip
        (found,) = cost_checks.to_fedavgs_end({"fedavg_end": [row]})
        assert found.verdict == "not less in serial steps"
        assert found.ours == "10 rounds against 100, 500 serial steps against 400, 1.0 MB against 2.0 MB"
        nowhere = {**row, "ours": {"rounds": None, "serial_steps": None, "bytes": None}, "reached": [None]}
        assert cost_checks.to_fedavgs_end({"fedavg_end": [nowhere]})[0].verdict == FAILS

    def test_leafs_cnn(self) -> None:
        assert "6,603,710 parameters = 6.30 * 2^20, 25.2 MiB" in claim_checks.parameters({})[0].ours
        assert claim_checks.flops({})[0].ours == "103 M"


class TestReport:
    def test_what_is_there_has_a_verdict_and_what_is_not_is_said(self, tmp_path: Path) -> None:
        leave(tmp_path, "cpd", CPD)
        (tmp_path / "remarks.toml").write_text('cpd-82 = "Clients differ far more than groups do here."\n')
        assert [file.name for file in write_report(tmp_path)] == ["README.md", "claims.md"]
        verdicts = (tmp_path / "claims.md").read_text()
        assert "## cpd-41" in verdicts
        assert "- reading 'label', 10 groups: **holds**: 42 %" in verdicts
        assert "Clients differ far more" in verdicts
        assert "- **not measured yet**" in verdicts
        assert "Not run yet: curves, growth, kappa, table, cost-to-target." in verdicts
        page = (tmp_path / "README.md").read_text()
        assert all(claim.text in page for claim in CLAIMS)
        assert "`fedgsp study cpd`" in page
        assert "fingerprint `abababababababab`" in page

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="there is no finished study in"):
            write_report(tmp_path)

    def test_remarks_on_nothing(self, tmp_path: Path) -> None:
        leave(tmp_path, "cpd", CPD)
        (tmp_path / "remarks.toml").write_text('cpd-28 = "?"\n')
        with pytest.raises(InputError, match="which is no claim: did you mean 'cpd-82'"):
            write_report(tmp_path)
        (tmp_path / "remarks.toml").write_text("cpd-82 = 3\n")
        with pytest.raises(InputError, match="must be a text"):
            write_report(tmp_path)

    def test_facts_of_another_make(self, tmp_path: Path) -> None:
        leave(tmp_path, "cpd", {"icg": {}})
        with pytest.raises(InputError, match="lack what the claim 'icg-time' needs"):
            write_report(tmp_path)
