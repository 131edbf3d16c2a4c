"""Comparing methods and finished runs: one table, one sentence on the noise; what cannot be compared is said in a sentence."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.methods import named
from fedgsp.study.compare import CompareOptions, Entrant, compared, from_runs, run_methods
from fedgsp.study.finished import read_finished
from fedgsp.study.noise import Estimate
from fedgsp.study.records import Arm, DataFacts, Trace
from fedgsp.study.study_runner import StudyRunner
from tests.support import tiny


def trace(values: list[float], worst: float = 0.2) -> Trace:
    history: list[dict[str, Any]] = [
        {"round": r, "serial_steps_total": 10 * r, "bytes_total": 10**6 * r, "accuracy": value, "loss": 1 - value,
         "quantiles": {"loss": {"0.9": 2.0}, "accuracy": {"0.1": worst}}}
        for r, value in enumerate(values, start=1)
    ]  # fmt: skip
    seconds = {"paper": [7.0 * r for r in range(1, len(values) + 1)]}
    return Trace("u", history, seconds, seconds)


def entrant(name: str, *ends: float, yields: str = "one") -> Entrant:
    return Entrant(name, {seed: trace([0.1, end, end, end]) for seed, end in enumerate(ends)}, yields)


class TestTable:
    def test_by_hand(self) -> None:
        found = compared([entrant("good", 0.60, 0.62, 0.61), entrant("bad", 0.401, 0.421, 0.411)], CompareOptions())
        (table,) = found.tables
        good, bad = table.rows
        assert good[0] == "good"
        assert good[1] == Estimate.of([0.60, 0.62, 0.61])
        assert good[2] == Estimate.of([0.60, 0.62, 0.61]), "of four rounds the last one is final"
        assert good[3].mean == pytest.approx(0.2)
        assert table.columns[5].name == "rounds to 41 %"  # the weakest has 41.1 % at its end
        assert good[5:] == (2, 20, 2_000_000, 14.0, 3)
        assert bad[5:] == (None, None, None, None, 3), "one seed ends at 40.1 %"
        assert "good over bad by 19.9 ± " in found.notes[-1]
        assert found.facts["differences"][0]["clear"]

    def test_a_target_of_ones_own(self) -> None:
        (table,) = compared([entrant("a", 0.6), entrant("b", 0.5)], CompareOptions(target=0.55)).tables
        assert [row[5] for row in table.rows] == [2, None]
        assert table.columns[5].name == "rounds to 55 %"

    def test_one_seed_cannot_say(self) -> None:
        assert "With one seed it cannot be said" in compared([entrant("a", 0.6), entrant("b", 0.5)], CompareOptions()).notes[-1]

    def test_methods_that_do_not_yield_one_model_have_a_table_of_their_own(self) -> None:
        found = compared([entrant("a", 0.6), entrant("clusters", 0.9, yields="several")], CompareOptions())
        assert [table.name for table in found.tables] == ["compare", "compare-others"]
        assert [row[0] for row in found.tables[0].rows] == ["a"]
        assert found.tables[1].rows[0][:2] == ("clusters", "several")
        assert "clusters" not in found.facts["methods"]
        assert "nothing to be compared with" in found.notes[-1]

    def test_a_method_that_diverged_is_shown_as_such(self) -> None:
        wild = Entrant("wild", {0: Trace("u", [], {}, {}, "ran away")})
        found = compared([entrant("a", 0.6), wild], CompareOptions())
        assert found.tables[0].rows[1][:2] == ("wild", "diverged")
        assert len(found.tables[0].rows[1]) == len(found.tables[0].columns)
        with pytest.raises(InputError, match="no run has an evaluation"):
            compared([wild], CompareOptions())


def test_methods_are_run_on_the_users_data(tmp_path: Path) -> None:
    data = tiny.federation()
    runner = StudyRunner(data, DataFacts.of(data, "memory"), tmp_path, seeds=2, workers=0)
    arm = Arm(tiny.LINEAR, 2, 2)
    entrants = run_methods(runner, ["fedavg", "fedgsp"], arm, lr=0.3)
    assert [(e.name, sorted(e.traces), e.yields) for e in entrants] == [("fedavg", [0, 1], "one"), ("fedgsp", [0, 1], "one")]
    assert {unit["seed"] for unit in runner.used.values()} == {0, 1}
    found = compared(entrants, CompareOptions(fleet="phone-4g"))
    assert found.facts["metric"] == "accuracy"
    assert "lr = 0.3" in next(tmp_path.glob("units/fedavg*/config.toml")).read_text()
    with pytest.raises(InputError, match="'fedavg' is named twice"):
        run_methods(runner, ["fedavg", "fedavg"], arm)
    with pytest.raises(InputError, match="did you mean 'fedprox'"):
        run_methods(runner, ["fedavg", "fedprx"], arm)


def test_without_a_score_the_loss_is_compared() -> None:
    entrants = [Entrant("a", {0: replace_metric(trace([0.5, 0.6]))}), Entrant("b", {0: replace_metric(trace([0.2, 0.3]))})]
    found = compared(entrants, CompareOptions())
    assert found.facts["metric"] == "loss"
    assert found.tables[0].columns[1].name == "loss"
    assert found.facts["target"] == pytest.approx(0.7)
    assert len(found.pictures[0].rows) == 1


def replace_metric(one: Trace) -> Trace:
    for entry in one.history:
        del entry["accuracy"]
        entry["absolute_error"] = 0.5
        entry["quantiles"] = {"loss": {"0.9": 2.0}, "absolute_error": {"0.9": 1.0}}
    return one


class TestFinishedRuns:
    @pytest.fixture
    def source(self, tmp_path: Path) -> str:
        return str(tiny.write_npz(tmp_path / "data.npz"))

    def run(self, place: Path, source: str, method: str = "fedavg", **options: Any) -> Path:
        made = replace(named(method), local=replace(named(method).local, lr=options.pop("lr", 0.01)))
        fedgsp.train(made, source, tiny.LINEAR, workers=0, out=place, **{"rounds": 2, **options})
        return place

    def test_seeds_are_put_together_and_settings_told_apart(self, tmp_path: Path, source: str) -> None:
        places = [self.run(tmp_path / f"a{s}", source, seed=s) for s in (0, 1)]
        places += [self.run(tmp_path / f"b{s}", source, seed=s, lr=0.2) for s in (0, 1)]
        places.append(self.run(tmp_path / "c", source, "fedgsp", rounds=3))
        entrants, notes = from_runs(read_finished(places))
        assert [(e.name, sorted(e.traces)) for e in entrants] == [
            ("fedavg (lr=0.01)", [0, 1]), ("fedavg (lr=0.2)", [0, 1]), ("fedgsp", [0]),
        ]  # fmt: skip
        assert notes == ["The runs have different numbers of rounds: the first 2 of each are compared."]
        assert len(entrants[2].traces[0].history) == 2
        assert len(compared(entrants, CompareOptions()).tables[0].rows) == 3

    def test_the_same_run_twice(self, tmp_path: Path, source: str) -> None:
        one, two = self.run(tmp_path / "a", source), self.run(tmp_path / "b", source)
        with pytest.raises(InputError, match="repeats another of the runs"):
            from_runs(read_finished([one, two]))
        with pytest.raises(InputError, match="is named twice"):
            read_finished([one, one])

    def test_no_runs(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="there are no runs to compare"):
            read_finished([])
        with pytest.raises(InputError, match="there is no run directory"):
            read_finished([tmp_path / "none"])
        with pytest.raises(InputError, match=r"is not a run directory: it has no config\.toml"):
            read_finished([tmp_path])

    def test_mixed_data(self, tmp_path: Path, source: str) -> None:
        other = str(tiny.write_npz(tmp_path / "other.npz", seed=4))
        places = [self.run(tmp_path / "a", source), self.run(tmp_path / "b", other)]
        with pytest.raises(InputError, match="were run on different data"):
            read_finished(places)

    def test_evaluated_on_different_samples(self, tmp_path: Path, source: str) -> None:
        places = [self.run(tmp_path / "a", source), self.run(tmp_path / "b", source, holdout_clients=2)]
        with pytest.raises(InputError, match="not evaluated on the same samples"):
            read_finished(places)

    def test_an_incomplete_run(self, tmp_path: Path, source: str) -> None:
        place = self.run(tmp_path / "a", source)
        told = json.loads((place / "result.json").read_text())
        (place / "result.json").write_text(json.dumps({**told, "status": "interrupted", "rounds": 1}))
        with pytest.raises(InputError, match="is incomplete: it was interrupted after round 1 of 2; fedgsp resume"):
            read_finished([place])
        (place / "result.json").unlink()
        with pytest.raises(InputError, match=r"is incomplete: it has no result\.json"):
            read_finished([place])

    def test_a_run_of_another_version(self, tmp_path: Path, source: str) -> None:
        place = self.run(tmp_path / "a", source)
        told = json.loads((place / "result.json").read_text())
        (place / "result.json").write_text(json.dumps({**told, "schema": 7}))
        with pytest.raises(InputError, match="has schema 7; this version of fedgsp reads 1 and 2"):
            read_finished([place])
        (place / "result.json").write_text("{")
        with pytest.raises(InputError, match="cannot be read"):
            read_finished([place])
        config = (place / "config.toml").read_text()
        (place / "config.toml").write_text(config.replace("schema = 1", "schema = 2"))
        with pytest.raises(InputError, match="has schema 2"):
            read_finished([place])

    def test_a_run_that_is_still_running(self, tmp_path: Path, source: str) -> None:
        place = self.run(tmp_path / "a", source)
        descriptor = os.open(place / ".lock", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with pytest.raises(InputError, match=rf"is still running \(process {os.getpid()}\)"):
                read_finished([place])
        finally:
            os.close(descriptor)
        assert len(read_finished([place])) == 1
