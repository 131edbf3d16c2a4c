"""Optuna as the driver of tuning: the same trials for the same seed, however often it was stopped, and on validation only."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.run import lifecycle
from fedgsp.study.grid import parse_grid
from fedgsp.study.search import searched
from tests.support.small_federations import images

DATA = images(clients=4)
SPACE = {"lr": fedgsp.Range(0.0001, 0.3, log=True)}


def search(out: Path | None = None, trials: int = 8, data: Any = DATA, space: Any = SPACE, **options: Any) -> fedgsp.Tuning:
    how = fedgsp.Optuna(trials, **options)
    return fedgsp.tune("fedavg", space, driver=how, data=data, rounds=5, out=out, workers=0)


def told(found: fedgsp.Tuning) -> list[tuple[Any, ...]]:
    return [(o.point.label, o.score, o.pruned) for o in found.outcomes]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[fedgsp.Tuning, Path]:
    out = tmp_path_factory.mktemp("search") / "whole"
    return search(out), out


def test_the_best_of_the_trials_and_those_that_fell_behind(whole: tuple[fedgsp.Tuning, Path]) -> None:
    found, out = whole
    assert len(found.outcomes) == 8
    assert all(0.0001 <= o.point.values["lr"] <= 0.3 for o in found.outcomes)
    finished = [o.score for o in found.outcomes if o.score is not None]
    assert found.best.score == max(finished)
    assert found.method.local.lr == found.best.point.values["lr"]
    early = [o for o in found.outcomes if o.pruned]
    assert early
    assert all(o.score is None and 1 < o.pruned < 5 and "others were better" in o.note for o in early)
    written = json.loads((out / "tune.json").read_text())
    assert written["driver"] == {"name": "optuna", "trials": 8, "seed": 0, "prune": True}
    assert written["grid"]["lr"] == {"low": 0.0001, "high": 0.3, "log": True}
    assert written["evaluated_on"] == "validation"
    assert len(repr(found).splitlines()) <= 10
    assert "stopped after round" in found._repr_html_()
    assert found.plot()._repr_png_().startswith(b"\x89PNG")


def test_a_stopped_run_is_whole_and_can_go_on(whole: tuple[fedgsp.Tuning, Path], tmp_path: Path) -> None:
    found, out = whole
    early = next(o for o in found.outcomes if o.pruned)
    place = out / early.point.label / "seed-0"
    assert len((place / "journal.jsonl").read_text().splitlines()) < 5
    assert json.loads((place / "result.json").read_text())["status"] == "paused"


def test_the_same_call_reads_what_is_there_and_a_stopped_search_goes_on(
    whole: tuple[fedgsp.Tuning, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Path] = []
    start = lifecycle.start

    def stopping(run: Any, out: Path, callbacks: Any) -> Any:
        begun.append(out)
        return start(run, out, [*callbacks, *([StopAfter(2)] if len(begun) == 3 else [])])

    monkeypatch.setattr(lifecycle, "start", stopping)
    assert told(search(whole[1])) == told(whole[0])
    assert begun == []
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "t")
    assert told(search(tmp_path / "t")) == told(whole[0])
    assert len(begun) == 8, "two were finished and one resumed, so five are new"
    assert told(search(tmp_path / "t", trials=10))[:8] == told(whole[0])


class StopAfter(fedgsp.Callback):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round_end(self, entry: dict[str, Any]) -> None:
        if entry["round"] == self.rounds:
            raise KeyboardInterrupt


def test_test_samples_have_no_say_and_seeds_do(whole: tuple[fedgsp.Tuning, Path]) -> None:
    spoilt = DATA.labels.copy()
    spoilt[DATA.test.rows] = (spoilt[DATA.test.rows] + 1) % 4
    assert told(search(data=replace(DATA, labels=spoilt))) == told(whole[0])
    other = search(trials=2, seed=1)
    assert [o.point.label for o in other.outcomes] != [o.point.label for o in whole[0].outcomes[:2]]


def test_values_of_every_kind_and_none_that_are_stopped() -> None:
    space = {"lr": [0.01, 0.1], "epochs": fedgsp.Range(1, 2), "weight_decay": fedgsp.Range(0.0, 0.1)}
    found = search(space=space, trials=3, prune=False)
    assert not any(o.pruned for o in found.outcomes)
    assert all(o.point.values["lr"] in (0.01, 0.1) and o.point.values["epochs"] in (1, 2) for o in found.outcomes)
    assert all(isinstance(o.point.values["epochs"], int) for o in found.outcomes)


def test_an_own_sampler_and_pruner() -> None:
    optuna = pytest.importorskip("optuna")
    how = {"sampler": optuna.samplers.RandomSampler(seed=3), "pruner": optuna.pruners.ThresholdPruner(lower=2.0)}
    one, two = search(trials=2, **how, prune=False), search(trials=2, **how, prune=False)
    assert told(one) == told(two)  # a sampler's own state is not used up
    with pytest.raises(InputError, match="every point was stopped or diverged"):
        _ = search(trials=2, **how).best  # an accuracy is never above 2


def test_what_parts_are_tuned_over_becomes_ranges() -> None:
    method = fedgsp.named("fedavg")
    lists: Any = {"lr": [0.003, 0.01, 0.1], "momentum": [0.5, 0.9], "epochs": [1]}
    assert searched(lists, method) == {
        "lr": fedgsp.Range(0.003, 0.1, log=True), "momentum": fedgsp.Range(0.5, 0.9), "epochs": (1,)
    }  # fmt: skip
    (axis,) = parse_grid(["lr=0.001..0.1,log"], method)
    assert axis.within == fedgsp.Range(0.001, 0.1, log=True)


def test_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="not a range; `driver='optuna'` searches ranges"):
        fedgsp.tune("fedavg", SPACE, data=DATA, rounds=1, workers=0)
    with pytest.raises(InputError, match="unknown driver 'optna': did you mean 'optuna'"):
        fedgsp.tune("fedavg", SPACE, data=DATA, driver="optna")
    with pytest.raises(InputError, match="a range goes from a number above 0 to a larger one"):
        fedgsp.Range(0, 1, log=True)
    with pytest.raises(InputError, match="`trials=` must be at least 1"):
        search(trials=0)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"`driver='optuna'` needs the package 'optuna'.*pip install 'fedgsp\[optuna\]'"):
        search(trials=1)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from fedgsp.cli.main import build_app

    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    fedgsp.export(DATA, "npz", tmp_path / "data.npz")
    command = [
        "tune", "--method", "fedavg", "lr=0.001..0.3,log", "--data", str(tmp_path / "data.npz"), "--rounds", "2",
        "--workers", "0", "--out", str(tmp_path / "t"), "--trials", "2",
    ]  # fmt: skip
    told = CliRunner().invoke(build_app(), [*command, "--driver", "optuna"])
    assert told.exit_code == 0, told.output
    assert "best: lr=" in told.output
    as_json = json.loads(CliRunner().invoke(build_app(), [*command, "--driver", "optuna", "--json"]).output)
    assert as_json["driver"]["trials"] == 2
    assert len(as_json["outcomes"]) == 2
    assert "is for `driver='optuna'`" in str(CliRunner().invoke(build_app(), command).exception)
