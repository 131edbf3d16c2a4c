"""The studies on a tiny federation: all of them run, reuse what is there, estimate themselves, and leave whole findings."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData, load
from fedgsp.data.federated import Split
from fedgsp.methods import METHODS, named
from fedgsp.plan import Exp, Linear, Log
from fedgsp.run import lifecycle
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import read_config
from fedgsp.study.findings import Findings, read_findings, write_findings
from fedgsp.study.paper.ablation import WHOLE, forms_of, long_chains, pieces_of
from fedgsp.study.paper.adaptive import KEPT, PRINTED, WARM
from fedgsp.study.paper.catalog import STUDIES, studies_named
from fedgsp.study.paper.curves import methods as ablation
from fedgsp.study.paper.dealing import OWN, Dealing
from fedgsp.study.paper.dry_runner import DryRunner, PlannedUnit
from fedgsp.study.paper.growth import rates
from fedgsp.study.paper.long_words import long_words
from fedgsp.study.paper.ours import ENTRANTS, method_of
from fedgsp.study.paper.presets import PRESETS, preset_named, with_model, with_rounds
from fedgsp.study.paper.rows import CURVES, RIVALS
from fedgsp.study.paper.runner import PaperRunner, check_data
from fedgsp.study.paper.skew import rows as skew_rows
from fedgsp.study.paper.table import _gaps, _paper_figures, all_methods
from fedgsp.study.records import Arm, DataFacts
from fedgsp.study.store import UnitStore
from tests.support.small_federations import images

SHORT = Arm("small_cnn", 2, 1)
LONGER = Arm("small_cnn", 3, 1, only=("fedavg", "fedgsp", "chains-then-adam"))
ALONE = Arm("small_cnn", 5, 1, only=("FedGSP",))
SMOKE = replace(
    PRESETS["smoke"], curves=(replace(SHORT, seeds=2), replace(LONGER, only=("FedAvg", "FedGSP")), ALONE),
    table_long=LONGER,
    growth=SHORT, kappa=SHORT, table=SHORT, rivals=SHORT, cost=SHORT,
    ours=replace(SHORT, seeds=2, first_seed=3), tune_rounds=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = images(clients=10, each=20)
    file = tmp_path_factory.mktemp("data") / "tiny.npz"
    np.savez(file, features=made.features, labels=made.labels, client_index=np.repeat(np.arange(10), 20))
    return f"npz:{file}"


@pytest.fixture(scope="module")
def data(source: str) -> FederatedData:
    return load(source)


SOME = {"rivals": ("fedavg", "feddc", "fedgsp", "cwt"), "fleets": ("fedavg", "fedgsp", "chains-then-adam")}
"""The methods of studies that would take all."""


def made(kind: type[PaperRunner], name: str, data: FederatedData, source: str, out: Path) -> PaperRunner:
    """A runner, dry or not, for a study."""
    return kind(SMOKE, data, DataFacts.of(data, source), out, methods=SOME.get(name, ()), store=UnitStore(out))


def planned_for(data: FederatedData, source: str, out: Path) -> dict[str, PlannedUnit]:
    """Every unit of every study."""
    planned: dict[str, PlannedUnit] = {}
    for name, study in STUDIES.items():
        dry_runner = made(DryRunner, name, data, source, out)
        study.gather(dry_runner)
        assert isinstance(dry_runner, DryRunner)
        planned |= dry_runner.planned
    return planned


class Everything:
    """All studies, run once."""

    def __init__(self, data: FederatedData, source: str, out: Path) -> None:
        self.out = out
        self.planned = planned_for(data, source, out)
        self.found: dict[str, Findings] = {}
        self.runners: dict[str, PaperRunner] = {}
        for name, study in STUDIES.items():
            runner = made(PaperRunner, name, data, source, out)
            assert runner.store is not None
            self.found[name], self.runners[name] = study.show(runner, study.gather(runner)), runner
            runner.store.save()
            write_findings(self.found[name], runner.origin(f"fedgsp study {name}", "smoke"), out / name)


@pytest.fixture(scope="module")
def everything(data: FederatedData, source: str, tmp_path_factory: pytest.TempPathFactory) -> Everything:
    return Everything(data, source, tmp_path_factory.mktemp("studies"))


class TestWhatIsLeft:
    def test_tables_figures_and_json_with_their_origin(self, everything: Everything, data: FederatedData) -> None:
        for name, found in everything.found.items():
            folder = everything.out / name
            told = json.loads((folder / f"{name}.json").read_text())
            assert told["data"]["fingerprint"] == data.fingerprint
            assert told["command"] == f"fedgsp study {name}"
            assert {"fedgsp", "torch", "numpy", "python"} <= set(told["versions"])
            assert told["seeds"] == {
                "cpd": [0, 1, 2, 3, 4],
                "curves": [0, 1],
                "cost-to-target": [0, 1],
                "ours": told["seeds"],
            }.get(name, [0])
            page = (folder / "README.md").read_text()
            assert data.fingerprint in page
            for table in found.tables:
                if table.kept:
                    rows = list(csv.reader((folder / f"{table.name}.csv").open()))
                    assert len(rows) == len(table.rows) + 1
                assert (folder / f"{table.name}.csv").exists() == table.kept
                assert table.title in page
            for picture in found.pictures:
                assert (folder / f"{picture.name}.png").read_bytes()[:4] == b"\x89PNG"
            assert read_findings(everything.out, name) == told

    def test_git_is_asked_to_leave_the_runs_out_which_the_store_has(self, everything: Everything) -> None:
        assert (everything.out / "units" / ".gitignore").read_text() == "*\n"

    def test_findings_of_another_version(self, tmp_path: Path) -> None:
        assert read_findings(tmp_path, "cpd") is None
        (tmp_path / "cpd").mkdir()
        (tmp_path / "cpd" / "cpd.json").write_text('{"schema": 99}')
        with pytest.raises(InputError, match="is of another version of fedgsp; run the study again"):
            read_findings(tmp_path, "cpd")
        (tmp_path / "cpd" / "cpd.json").write_text("{")
        with pytest.raises(InputError, match="cannot be read"):
            read_findings(tmp_path, "cpd")


class TestRivals:
    def test_methods_of_one_kind_stand_together_and_nobody_else(self, everything: Everything) -> None:
        rows = {table.name: [row[0] for row in table.rows] for table in everything.found["rivals"].tables}
        assert rows == {"rivals-one": ["fedavg", "fedgsp", "cwt"], "rivals-several": ["feddc"]}

    def test_budgets_are_those_of_the_thriftiest(self, everything: Everything) -> None:
        facts, store = everything.found["rivals"].facts, UnitStore(everything.out)
        ends = [store.trace(unit).history[SHORT.rounds - 1] for unit, told in everything.runners["rivals"].used.items()
                if not told["method"].startswith(("feddc", "tuning"))]  # fmt: skip
        assert facts["budgets"]["round"] == SHORT.rounds
        assert facts["budgets"]["serial_steps_total"] == min(end["serial_steps_total"] for end in ends)
        assert facts["budgets"]["bytes_total"] == min(end["bytes_total"] for end in ends)

    def test_a_method_whose_first_round_is_longer_than_the_budget_has_no_figure(self, everything: Everything) -> None:
        facts = everything.found["rivals"].facts
        rounds, steps, _ = facts["paper"]["cwt"]
        assert steps is None, "one chain through all clients"
        assert rounds is not None
        assert None not in facts["paper"]["fedavg"]
        assert "| cwt |" in (everything.out / "rivals" / "README.md").read_text()


def told_by(everything: Everything) -> dict[str, Any]:
    """The findings as the pages' writers get them."""
    return {name: {"facts": found.facts} for name, found in everything.found.items()}


class TestReuse:
    def test_a_second_call_trains_nothing(
        self, everything: Everything, data: FederatedData, source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lifecycle, "start", None)
        monkeypatch.setattr(lifecycle, "resume", None)
        for name, study in STUDIES.items():
            runner = made(PaperRunner, name, data, source, everything.out)
            assert study.show(runner, study.gather(runner)).facts == everything.found[name].facts

    def test_the_dry_runner_foresaw_every_unit(self, everything: Everything, data: FederatedData, source: str) -> None:
        assert all(unit.done for unit in planned_for(data, source, everything.out).values())
        runs = [unit for unit in everything.planned.values() if unit.steps]
        trained = [f for f in (everything.out / "units").glob("*/config.toml") if "tuning-" not in str(f)]
        tuned = [f for f in (everything.out / "units").glob("*/config.toml") if "tuning-" in str(f)]
        beyond = [f for f in tuned if re.search(r"lr=(0\.001|1)-", str(f))]
        assert beyond, "the grid is 0.01 and 0.1; only figures can tell that more is wanted"
        # a tuned value may be the one that was run already, so there may be fewer: FedGSP as tuned and in its best form are
        # points of grids, and rows of `ablation`
        assert 0 <= sum(unit.name.startswith("tuning") for unit in runs) - (len(tuned) - len(beyond)) <= 2
        assert len(trained) <= sum(not unit.name.startswith("tuning") for unit in runs)

    def test_the_same_run_is_shared_by_the_studies_that_want_it(self, everything: Everything) -> None:
        by_study = {name: set(runner.used) for name, runner in everything.runners.items()}
        assert by_study["curves"] & by_study["kappa"], "kappa 0.3"
        assert by_study["curves"] & by_study["growth"], "Log(2, beta)"
        assert by_study["curves"] & by_study["table"], "fedavg and fedgsp"

    def test_other_data_is_another_unit(self, data: FederatedData, source: str, tmp_path: Path) -> None:
        arm = Arm("small_cnn", 1, 1)
        runners = [
            PaperRunner(SMOKE, one, DataFacts.of(one, source), tmp_path) for one in (data, images(clients=10, each=20, seed=5))
        ]
        first, second = (runner.folder("fedavg", runner.config(runner.method("fedavg"), arm, 0)) for runner in runners)
        assert first != second


def test_data_without_classes_or_test_samples(data: FederatedData) -> None:
    check_data(data)
    with pytest.raises(InputError, match="are about classes"):
        check_data(replace(data, classes=0))
    with pytest.raises(InputError, match="no client has a test sample"):
        check_data(replace(data, test=Split.empty(len(data))))


class TestSettings:
    def test_the_papers(self, data: FederatedData, source: str, tmp_path: Path) -> None:
        preset = preset_named("paper")
        runner = PaperRunner(preset, data, DataFacts.of(data, source), tmp_path)
        made = runner.config(runner.method("fedgsp"), preset.table, 0).as_dict()
        assert made["model"]["name"] == "leaf_cnn"
        assert made["run"]["rounds"] == 500
        assert (made["method"]["local"]["lr"], made["method"]["local"]["batch_size"]) == (0.01, 5)
        planner = made["method"]["planner"]
        assert (planner["kappa"], planner["growth"]) == (0.3, {"kind": "log", "alpha": 2.0, "beta": 10})
        assert preset.target == 0.8
        assert preset.kappas == (0.1, 0.2, 0.3, 0.5, 1.0)

    def test_the_laptops(self) -> None:
        preset = preset_named("laptop")
        longer, papers = preset.curves[2:]
        assert preset.curves[:2] == (Arm("leaf_cnn", 100, 1), Arm("small_cnn", 100, 3))
        assert (papers.label, papers.only) == ("leaf_cnn, 250 rounds", ("FedAvg", "FedGSP"))
        assert (longer.label, longer.only) == ("small_cnn, 500 rounds", CURVES)
        assert preset.target is None
        only = with_model(preset, "small_cnn")
        assert only.curves == (Arm("small_cnn", 100, 3), longer)
        assert with_model(preset, "mine:net").growth.model == "mine:net"
        shorter = with_rounds(preset, 8)
        assert shorter.curves == (Arm("leaf_cnn", 8, 1), Arm("small_cnn", 8, 3))
        assert (shorter.table.rounds, shorter.tune_rounds) == (8, 8)
        assert shorter.table_long is None, "it is there for its rounds"
        assert with_rounds(PRESETS["paper"], 50).target is None

    @pytest.mark.parametrize("name", [name for name in METHODS if named(name).preparation is None])
    def test_every_method_can_be_run_with_the_presets_values(
        self, name: str, data: FederatedData, source: str, tmp_path: Path
    ) -> None:
        runner = PaperRunner(SMOKE, data, DataFacts.of(data, source), tmp_path)
        RunBuilder(data=data).build(runner.config(runner.method(name), SHORT, 0))

    def test_the_ablation_has_both_orders(self, data: FederatedData, source: str, tmp_path: Path) -> None:
        made = ablation(PaperRunner(SMOKE, data, DataFacts.of(data, source), tmp_path))
        orders = {name: method.planner.order for name, method in made.items()}  # type: ignore[attr-defined]
        assert orders["NaiveGSP+ICG, fixed order"] == "fixed"
        assert orders["NaiveGSP+ICG, shuffled"] == orders["FedGSP"] == "shuffled"
        assert tuple(made) == CURVES

    def test_unknown_names(self) -> None:
        with pytest.raises(InputError, match="did you mean 'kappa'"):
            studies_named(["kapa"])
        with pytest.raises(InputError, match="did you mean 'laptop'"):
            preset_named("labtop")
        assert studies_named(["kappa", "cpd", "kappa"]) == ["kappa", "cpd"]
        assert studies_named(["all"]) == ["cpd", "curves", "growth", "kappa", "table", "cost-to-target"]
        assert studies_named(["rivals", "all"])[0] == "rivals"

    def test_long_runs_come_to_a_whole_end_on_the_way(
        self, data: FederatedData, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner = PaperRunner(SMOKE, data, DataFacts.of(data, source), tmp_path)
        config = runner.config(runner.method("fedavg"), Arm("small_cnn", 100, 1), 0)
        assert runner.stops(config) == []
        monkeypatch.setattr(PaperRunner, "steps", lambda self, config: 100_000)
        monkeypatch.setattr(PaperRunner, "step_seconds", lambda self, config: 0.06)  # 100 minutes in one process
        assert runner.stops(config) == [33, 67]


def test_growth_rates_end_with_as_many_groups() -> None:
    """Log(2) grows to 2 ln 500 + 1 = 13.43 times its start; so must the others, to the two digits of their rates."""
    linear, log, exp = (rates(name, (2.0,), 500)[0] for name in ("Linear", "Log", "Exp"))
    assert (linear, log, exp) == (0.025, 2.0, 0.0052)
    assert [f.wanted(500) for f in (Linear(linear, 10), Log(log, 10), Exp(exp, 10))] == [130, 130, 130]


def test_the_papers_average_gaps() -> None:
    """On paper: 3.69 points to the mean of the seven, 0.123, 84.3 % fewer rounds than the six that got there, 5.3 to FedAvg."""
    gaps = _gaps(_paper_figures())
    assert len(RIVALS) == 7
    assert 100 * gaps["accuracy"] == pytest.approx(3.69, abs=0.005)
    assert gaps["loss"] == pytest.approx(-0.123, abs=0.001)
    assert 100 * gaps["fewer_rounds"] == pytest.approx(84.3, abs=0.05)
    assert gaps["arrived"] == 6
    assert 100 * gaps["fedavg"] == pytest.approx(5.3)


def test_every_method_of_one_model_can_be_in_the_table() -> None:
    assert {"fedavg", "fedgsp", *RIVALS, "naive-gsp"} <= set(all_methods())


class TestFindings:
    def test_cpd_has_both_readings_and_four_boxes(self, everything: Everything) -> None:
        (picture,) = everything.found["cpd"].pictures
        assert len(picture.rows) == 2
        names = [name for name, _ in picture.rows[0][0].boxes]  # type: ignore[union-attr]
        assert names == ["FedAvg (clients)", "NaiveGSP", "NaiveGSP+ICG", "Balanced"]
        rows = everything.found["cpd"].tables[0].rows
        assert {row[0] for row in rows} == {"label", "point"}
        pairs = {(row[1], row[2]): row[3] for row in rows}
        assert (pairs[4, "FedAvg (clients)"], pairs[4, "NaiveGSP"]) == (45, 6)  # 10 clients, 4 groups

    def test_cpd_of_the_clients_is_that_of_numpy(self, everything: Everything, data: FederatedData) -> None:
        counts = data.profiles().counts
        p = counts / counts.sum(axis=1, keepdims=True)
        pairs = [(1 - np.exp(-1)) * ((p[i] - p[j]) ** 2).sum() for i in range(10) for j in range(i)]
        row = next(r for r in everything.found["cpd"].tables[0].rows if r[0] == "label" and r[2] == "FedAvg (clients)")
        assert (row[4], row[5]) == (pytest.approx(np.median(pairs)), pytest.approx(np.mean(pairs)))

    def test_kappa_is_normalised(self, everything: Everything) -> None:
        facts = everything.found["kappa"].facts
        assert facts["comm"] == pytest.approx({"0.1": 0.1, "0.2": 0.2, "0.3": 0.3, "0.5": 0.5, "1": 1.0})
        assert facts["comp_spread"] < 0.02
        assert max(facts["real_comm"].values()) == 1.0

    def test_curves_have_two_figures_against_five_costs(self, everything: Everything) -> None:
        picture, longer = everything.found["curves"].pictures  # none of a method alone
        assert [len(row) for row in picture.rows] == [5, 5]
        assert [panel.x for panel in picture.rows[0]][-2:] == [
            "simulated seconds (phone-4g fleet)",
            "simulated seconds (hospital-fibre fleet)",
        ]
        assert len(picture.rows[0][0].lines) == 5  # type: ignore[union-attr]
        assert [line.label for line in longer.rows[0][0].lines] == ["FedAvg", "FedGSP"]  # type: ignore[union-attr]

    def test_a_longer_series_says_what_was_cut(self, everything: Everything) -> None:
        facts = everything.found["curves"].facts["small_cnn, 3 rounds"]
        assert facts["cut"] == ["NaiveGSP", "NaiveGSP+ICG, fixed order", "NaiveGSP+ICG, shuffled"]
        assert "Cut for time: NaiveGSP; " in everything.found["curves"].tables[1].note
        _, longer, _, _ = everything.found["table"].tables
        assert sorted(row[0] for row in longer.rows) == ["chains-then-adam", "fedavg", "fedgsp"]
        assert "Cut for time: fedprox, fedmmd, " in longer.note
        told = everything.found["table"].facts["long"]
        assert (told["rounds"], told["seeds"], len(told["cut"])) == (3, 1, 12)
        assert told["gaps_long"]["cut"] == ["accuracy", "loss", "fewer_rounds"], "a mean over other rivals is another figure"
        assert "small_cnn, 3 rounds" in everything.found["cost-to-target"].facts["target"]
        (words,) = (line for line in long_words(told_by(everything)) if "After 5 rounds" in line)
        assert "rounds to 80 %" not in words, "FedAvg's end is the target, and it was cut here"
        assert re.search(
            r"FedGSP ends at [\d.]+ % \(the paper after 500: 85.4 %\); FedAvg, cut for time, has [\d.]+ % after 3 rounds", words
        )
        assert "All in order" not in words

    def test_a_method_that_diverged_was_not_cut(self) -> None:
        one = {"model": "m", "rounds": 9, "seeds": 1, "cut": [], "longer": True, "methods": {"FedGSP": {"accuracy": [0.5]}}}
        (words,) = long_words({"curves": {"facts": {"m, 9 rounds": one}}})
        assert words.endswith("FedGSP ends at 50.0 % (the paper after 500: 85.4 %); FedAvg diverged.")
        several = {name: {"accuracy": [share]} for name, share in (("FedAvg", 0.1), ("NaiveGSP", 0.3), ("FedGSP", 0.2))}
        (words,) = long_words({"curves": {"facts": {"m, 9 rounds": {**one, "methods": several}}}})
        assert "All in order: NaiveGSP 30.0 %; FedGSP 20.0 %; FedAvg 10.0 %." in words

    def test_other_forms_are_named_or_refused(self, data: FederatedData, source: str, tmp_path: Path) -> None:
        runner = PaperRunner(SMOKE, data, DataFacts.of(data, source), tmp_path)
        assert not any("," in name for name in ENTRANTS), "--methods splits at commas"
        with pytest.raises(InputError, match=r"unknown form 'kappa=0\.7' of fedgsp: "):
            method_of(runner, "fedgsp@kappa=0.7")
        with pytest.raises(InputError, match="only methods with FedGSP's growth"):
            method_of(runner, "chains-then-adam@kappa=0.1")

    def test_ours_with_a_larger_model_has_the_values_of_the_smaller(self, everything: Everything) -> None:
        facts = everything.found["ours"].facts
        assert list(facts["final"]["own clients, small_cnn, test samples"]) == ["fedgsp", "fedgsp-capped"]
        ends = {row[:2]: row[3] for row in everything.found["ours"].tables[-1].rows}
        assert ends["own clients, small_cnn, held-out clients", "fedgsp"] == "1 of 1"
        assert ends["own clients, held-out clients", "fedgsp"] == "2 of 2"
        skewed = next(place for place in facts["final"] if place.startswith("Dirichlet(0.1)")).removesuffix(", test samples")
        assert ends[f"{skewed}, small_cnn, test samples", "fedgsp-capped"] == "1 of 1"
        note = everything.found["ours"].tables[-1].note
        assert f"With small_cnn, {skewed}: 3 rounds, 1 seed(s); cut for time: fedgsp@kappa=0.1, " in note
        assert note.endswith("The learning rates are those that were chosen with small_cnn.")

    def test_each_piece_is_taken_away_alone(self, everything: Everything) -> None:
        whole = named("long-chains-then-adam")
        methods = {name: named(name) for name in ("long-chains-then-adam", "fedgsp-capped", "fedgsp")}
        assert long_chains(whole) == whole, "so that other forms differ from it in what they say only"
        for name, rows in {**pieces_of(methods), **forms_of(methods, 10)}.items():
            assert rows.pop(WHOLE) == methods[name]
            assert all(method != methods[name] for method in rows.values())
            assert len({str(method) for method in rows.values()}) == len(rows)
        facts = everything.found["ablation"].facts
        assert {"without chains", "models not averaged"} < facts["pieces"]["long-chains-then-adam"].keys()
        assert len(facts["forms"]["fedgsp"]) == len(facts["forms"]["long-chains-then-adam"]) == 15

    def test_the_table_shows_how_its_methods_were_tuned(self, everything: Everything) -> None:
        tuning = everything.found["table"].tables[-1]
        assert {"fedavg", "fedgsp", "chains-then-adam"} < {row[0] for row in tuning.rows}
        for _, _, points, runs, _, _, where in tuning.rows:
            assert points == runs == 3, "two of the grid, one beyond an edge"
            assert where == "inside" or where.startswith("at an edge: lr")

    def test_growth_has_a_map_for_each_function(self, everything: Everything) -> None:
        (picture,) = everything.found["growth"].pictures
        assert [panel.title for panel in picture.rows[0]] == ["Linear", "Log", "Exp"]
        assert len(everything.found["growth"].tables[0].rows) == 12

    def test_fedavgs_end_is_asked_in_all_settings(self, everything: Everything) -> None:
        facts: list[dict[str, Any]] = everything.found["cost-to-target"].facts["fedavg_end"]
        asked = {(row["fedavg"], row["fedgsp"], row["evaluated_on"]) for row in facts}
        assert len(asked) == 8
        assert {part for *_, part in asked} == {"test", "holdout"}
        held = list((everything.out / "units").glob("*held-out*/config.toml"))
        assert held
        assert all(read_config(c).run.holdout_clients == 2 for c in held)  # 15 % of 10

    def test_tuning_saw_validation_samples_only(self, everything: Everything) -> None:
        tuned = list((everything.out / "units").glob("tuning-*/config.toml"))
        assert tuned
        assert {read_config(file).run.evaluate_on for file in tuned} == {"validation"}
        measured = [file for file in (everything.out / "units").glob("*/config.toml") if file not in tuned]
        assert {read_config(file).run.evaluate_on for file in measured} == {"test"}


class TestSkew:
    def test_the_same_samples_are_in_other_hands(self, everything: Everything, data: FederatedData) -> None:
        dealt = Dealing("Dirichlet(0.1)", 5).of(data)
        assert (len(dealt), dealt.samples) == (5, data.samples)
        assert sorted(dealt.labels[np.concatenate([dealt.train.rows, dealt.test.rows])]) == sorted(data.labels)
        assert Dealing(OWN, 10).of(data) is data
        assert len(Dealing(OWN, 4).of(data)) == 4
        told = everything.found["skew"].facts["dealings"]
        assert told["own clients, 10"]["fingerprint"] == data.fingerprint
        assert told["Dirichlet(0.1), 10"]["label_skew"] > told["own clients, 10"]["label_skew"]
        with pytest.raises(InputError, match=r"did you mean 'i\.i\.d\.'"):
            Dealing("iid", 4)

    def test_nobody_has_spent_more_than_the_thriftiest(self, everything: Everything) -> None:
        facts, store = everything.found["skew"].facts, UnitStore(everything.out)
        used = everything.runners["skew"].used
        ends = [store.trace(unit, 2).history[-1] for unit, told in used.items()
                if not told.get("method", "tuning").startswith("tuning")]  # fmt: skip
        for key in ("serial_steps_total", "bytes_total"):
            assert min(told[key] for told in facts["budgets"].values()) == min(end[key] for end in ends)

    def test_every_row_is_there_and_one_leads(self, everything: Everything) -> None:
        facts = everything.found["skew"].facts
        assert list(facts["accuracy"]["round"]) == list(skew_rows())
        for label, lead in facts["leads"]["round"].items():
            assert facts["accuracy"]["round"][lead][label] == max(row[label] for row in facts["accuracy"]["round"].values())


def test_few_clients_are_chosen_for_on_validation_samples(everything: Everything) -> None:
    runner = everything.runners["few-clients"]
    assert runner.store is not None
    runs = [runner.store.units[unit] for unit, told in runner.used.items() if "method" in told]
    assert {unit["config"]["run"]["evaluate_on"] for unit in runs} == {"validation"}
    assert set(everything.found["few-clients"].facts["chosen"]) == {"6"}


def test_the_moments_of_a_warm_start_are_fresh(everything: Everything) -> None:
    moments = everything.found["adaptive"].facts["moments"]
    printed, warm, kept = (moments[name] for name in (PRINTED, WARM, KEPT))
    assert (warm["v"][0], warm["m"][0]) == (pytest.approx(1e-6), 0.0)
    assert (kept["v"][0], kept["m"][0]) == (printed["v"][0], printed["m"][0]), "the first update is the same"
    assert kept["v"][1] != printed["v"][1], "the second is not: it begins with another model"


def test_the_advice_is_held_against_what_came(everything: Everything) -> None:
    facts = everything.found["advice"].facts
    assert sum(facts["counts"].values()) == facts["cells"]
    assert set(everything.runners["advice"].used) >= set(everything.runners["skew"].used)
