"""The store: what is in it stays, whatever is run again, stopped or made elsewhere."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from fedgsp.core.errors import InputError
from fedgsp.run import lifecycle
from fedgsp.run.config import DataSection, ModelSection, RunConfig, RunSection
from fedgsp.run.files import write_whole
from fedgsp.study import store as module
from fedgsp.study.records import Arm, DataFacts, Trace
from fedgsp.study.store import MANIFEST, ROWS, UnitStore, require_parquet
from fedgsp.study.study_runner import StudyRunner
from fedgsp.study.units import key_of
from tests.support import tiny

DATA = tiny.federation()
FACTS = DataFacts.of(DATA, "memory")


def config(rounds: int = 2, lr: float = 0.05) -> RunConfig:
    return RunConfig(RunSection(rounds=rounds, workers=0), DataSection("memory"), ModelSection(tiny.LINEAR), tiny.chains(lr))


def record(kernel: str | None = "plain", rounds: int = 2, lr: float = 0.05) -> dict[str, Any]:
    return {"config": config(rounds, lr).as_dict(), "kernel": kernel, "data": asdict(FACTS), "diverged": "", "versions": {}}


def trace(*losses: float, took: float = 1.0) -> Trace:
    history = [{"round": r, "loss": loss, "timings": {"train": took}} for r, loss in enumerate(losses, start=1)]
    seconds = {"paper": [float(r) for r in range(1, len(losses) + 1)]}
    return Trace("", history, seconds, seconds)


KEY = key_of(config(), FACTS.fingerprint)


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    name = store.add_run("fedavg", record(), trace(0.5, 0.25))
    store.save()
    found = UnitStore(tmp_path).find(KEY, 2)
    assert found == replace(trace(0.5, 0.25), unit=name)
    shorter = UnitStore(tmp_path).find(KEY, 1)
    assert shorter is not None
    assert (shorter.history, shorter.seconds) == (trace(0.5).history, {"paper": [1.0]})
    assert UnitStore(tmp_path).find(KEY, 3) is None
    assert UnitStore(tmp_path).find(key_of(config(lr=0.1), FACTS.fingerprint), 1) is None


def test_nothing_stored_is_replaced_by_other_figures(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    store.add_run("fedavg", record(), trace(0.5, 0.25))
    for other in (trace(0.5, 0.26), trace(0.4), trace(0.5, 0.26, 0.1)):
        with pytest.raises(InputError, match="came out with other figures than fedavg-"):
            store.add_run("again", record(), other)
    assert store.find(KEY, 2) is not None


def test_a_run_grows_longer_if_its_first_rounds_are_the_same(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    first = store.add_run("fedavg", record(), trace(0.5, 0.25))
    assert store.add_run("other name", record(rounds=3), trace(0.5, 0.25, 0.2, took=2.0)) == first, "times may differ"
    assert store.add_run("shorter", record(rounds=1), trace(0.5)) == first
    assert store.units[first]["rounds"] == 3
    assert list(store.units) == [first]


def test_another_kernel_is_another_run_beside_it(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    plain, compiled = (
        store.add_run("a", record("plain"), trace(0.5)),
        store.add_run("a", record("compiled"), trace(0.4, 0.3)),
    )
    assert plain != compiled
    shorter, longer = store.find(KEY, 1), store.find(KEY, 2)
    assert shorter is not None
    assert longer is not None
    assert (shorter.unit, longer.unit) == (plain, compiled), "what a study had does not change when a longer run comes along"


def test_a_run_that_diverged_has_no_figures_and_is_not_run_again(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    name = store.add_run("wild", {**record(), "diverged": "ran away"}, trace(0.5))
    found = store.find(KEY, 9)
    assert found == Trace(name, [], {}, {}, "ran away")
    assert len(store.lines(name)[0]) == 1, "what was measured is kept"


def test_two_processes_keep_what_the_other_has_put_there(tmp_path: Path) -> None:
    one, two = UnitStore(tmp_path), UnitStore(tmp_path)
    one.add_run("a", record(), trace(0.5))
    two.add_run("b", record(lr=0.1), trace(0.4))
    two.add_study("kappa", {"preset": "smoke"})
    one.save()
    two.save()
    there = UnitStore(tmp_path)
    assert len(there.units) == 2
    assert there.has(KEY, 1)
    assert list(there.studies) == ["kappa"]


def test_the_store_of_another_folder_is_taken_in(tmp_path: Path) -> None:
    mine, theirs = UnitStore(tmp_path / "a"), UnitStore(tmp_path / "b")
    mine.add_run("a", record(), trace(0.5, 0.4))
    mine.add_study("kappa", {"preset": "laptop"})
    longer = theirs.add_run("a", record(), trace(0.5, 0.4, 0.3, took=9.0))
    other = theirs.add_run("b", record(lr=0.1), trace(0.4))
    theirs.add_study("kappa", {"preset": "smoke"})
    theirs.add_study("skew", {"preset": "smoke"})
    theirs.save()
    assert sorted(mine.merge(UnitStore(tmp_path / "b"))) == sorted([longer, other])
    mine.save()
    there = UnitStore(tmp_path / "a")
    assert (there.has(KEY, 3), len(there.units)) == (True, 2)
    assert there.studies == {"kappa": {"preset": "laptop"}, "skew": {"preset": "smoke"}}, "ours stay"


def test_a_store_with_other_figures_is_not_taken_in(tmp_path: Path) -> None:
    mine, theirs = UnitStore(tmp_path / "a"), UnitStore(tmp_path / "b")
    mine.add_run("a", record(), trace(0.5, 0.4))
    theirs.add_run("a", record(), trace(0.5, 0.39, 0.3))
    with pytest.raises(InputError, match="one of them is wrong"):
        mine.merge(theirs)


def test_a_crash_between_the_two_files_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = UnitStore(tmp_path)
    store.add_run("a", record(), trace(0.5))
    store.save()
    store.add_run("a", record(), trace(0.5, 0.4))
    store.add_run("b", record(lr=0.1), trace(0.4))

    def crash(path: Path, content: bytes) -> None:
        if path.name == MANIFEST:
            raise KeyboardInterrupt
        real(path, content)

    real = write_whole
    monkeypatch.setattr(module, "write_whole", crash)
    with pytest.raises(KeyboardInterrupt):
        store.save()
    monkeypatch.setattr(module, "write_whole", real)
    after = UnitStore(tmp_path)
    found = after.find(KEY, 1)
    assert found is not None
    assert found.history == trace(0.5).history
    after.add_run("b", record(lr=0.1), trace(0.4))
    after.save()
    assert len(UnitStore(tmp_path).rows()) == 2


def test_computing(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    store.add_result("cpd-1", {"computing": "cpd"}, {"median": [0.1, None]})
    store.save()
    assert UnitStore(tmp_path).result("cpd-1") == {"median": [0.1, None]}


def test_files_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    store = UnitStore(tmp_path)
    store.add_run("a", record(), trace(0.5))
    store.save()
    (tmp_path / ROWS).write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"units\.parquet cannot be read"):
        UnitStore(tmp_path).find(KEY, 1)
    (tmp_path / MANIFEST).write_text('{"schema": 99}')
    with pytest.raises(InputError, match="is of another version of fedgsp"):
        UnitStore(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(InputError, match=r"units\.json cannot be read"):
        UnitStore(tmp_path)


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    with pytest.raises(InputError, match=r"keeping a study's runs needs .*pip install 'fedgsp\[parquet\]'"):
        require_parquet()


class TestRuns:
    """A runner with a store."""

    ARM = Arm(tiny.LINEAR, 2, 1)

    def runner(self, out: Path, data: bool = True) -> StudyRunner:
        return StudyRunner(DATA if data else None, FACTS, out, store=UnitStore(out), workers=0)

    def test_a_finished_run_is_taken_in_after_a_crash(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (first,) = self.runner(tmp_path).traces("a", tiny.chains(0.05), self.ARM)  # never saved
        assert not (tmp_path / MANIFEST).exists()
        monkeypatch.setattr(lifecycle, "start", None)
        again = self.runner(tmp_path)
        assert again.traces("a", tiny.chains(0.05), self.ARM) == [first]
        assert again.store is not None
        again.store.save()
        told = json.loads((tmp_path / MANIFEST).read_text())["units"][first.unit]
        assert told["kernel"]
        assert told["config"]["run"]["rounds"] == 2
        assert (told["status"], told["rounds"]) == ("finished", 2)

    def test_the_store_is_enough(self, tmp_path: Path) -> None:
        made = self.runner(tmp_path / "a")
        traces = made.traces("a", tiny.chains(0.05), self.ARM)
        assert made.store is not None
        made.store.save()
        (tmp_path / "b").mkdir()
        for name in (ROWS, MANIFEST):
            (tmp_path / "b" / name).write_bytes((tmp_path / "a" / name).read_bytes())
        there = self.runner(tmp_path / "b", data=False)
        assert there.traces("a", tiny.chains(0.05), self.ARM) == traces
        with pytest.raises(InputError, match=r"lacks what its studies need \(a, .*, seed 0, 3 rounds\)"):
            there.traces("a", tiny.chains(0.05), replace(self.ARM, rounds=3))
