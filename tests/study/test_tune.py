"""Tuning: validation only, resumable, the same however often it was stopped, and a table that names the best."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedgsp
from fedgsp.core.errors import InputError
from fedgsp.data import FederatedData
from fedgsp.data.federated import Split
from fedgsp.methods import named
from fedgsp.run import lifecycle
from fedgsp.run.build import RunBuilder
from fedgsp.run.config import DataSection, RunConfig, RunSection
from fedgsp.study.tune import Tuning, tune
from tests.support.small_federations import images

DATA = images(clients=6)
GRID = ["lr=0.001,0.1"]


def config(rounds: int = 3, **data: Any) -> RunConfig:
    method = named("fedavg")
    return RunConfig(
        run=RunSection(rounds=rounds, workers=0, eval_every=1),
        data=DataSection(source="memory", **data),
        method=replace(method, planner=replace(method.planner, kappa=1.0)),  # type: ignore[type-var]
    )


def sweep(out: Path, grid: list[str] = GRID, data: FederatedData = DATA, **options: Any) -> Tuning:
    return tune(config(options.pop("rounds", 3)), grid, out, builder=RunBuilder(data=data), **options)


def test_the_best_on_validation_wins_and_ends_of_the_grid_are_pointed_out(tmp_path: Path) -> None:
    found = sweep(tmp_path / "t", rounds=6)
    losses = [outcome.loss for outcome in found.outcomes]
    assert losses[1] < losses[0]  # type: ignore[operator]
    assert found.best.point.values == {"lr": 0.1}
    assert found.advice == ("the best lr is the largest tried (0.1): widen the grid there.",)
    written = json.loads((tmp_path / "t" / "tune.json").read_text())
    assert written["best"]["values"] == {"lr": 0.1}
    assert written["evaluated_on"] == "validation"
    assert "test" not in json.dumps(written)


def test_test_samples_have_no_say(tmp_path: Path) -> None:
    """With every test label wrong nothing changes, and no journal has a figure of theirs."""
    spoilt = DATA.labels.copy()
    spoilt[DATA.test.rows] = (spoilt[DATA.test.rows] + 1) % 4
    other = replace(DATA, labels=spoilt)
    one, two = sweep(tmp_path / "a"), sweep(tmp_path / "b", data=other)
    assert [o.score for o in one.outcomes] == [o.score for o in two.outcomes]
    history = (tmp_path / "a" / "lr=0.1" / "seed-0" / "journal.jsonl").read_text()
    assert "validation_samples" in history
    assert "test_samples" not in history


def test_validation_samples_are_not_trained_on(tmp_path: Path) -> None:
    sweep(tmp_path / "t")
    entry = json.loads((tmp_path / "t" / "lr=0.1" / "seed-0" / "journal.jsonl").read_text().splitlines()[0])
    carved = DATA.with_validation(0.1, 0)
    assert entry["samples"] == len(carved.train.rows)
    assert entry["validation_samples"] == len(carved.validation.rows) > 0


def test_finished_units_are_used_and_a_stopped_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sweep(tmp_path / "whole", seeds=(0, 1))
    started, stop_at = [], 2
    real = lifecycle.start

    def stopping(setup: Any, out: Path, callbacks: Any) -> Any:
        started.append(out)
        if len(started) == stop_at:
            callbacks = [*callbacks, StopAfter(1)]
        return real(setup, out, callbacks)

    monkeypatch.setattr(lifecycle, "start", stopping)
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "t", seeds=(0, 1))
    assert len(started) == 2
    stop_at = 0
    again = sweep(tmp_path / "t", seeds=(0, 1))
    assert len(started) == 4, "one was finished and one resumed, so two are new"
    assert [(o.score, o.loss) for o in again.outcomes] == [(o.score, o.loss) for o in whole.outcomes]
    sweep(tmp_path / "t", seeds=(0, 1))
    assert len(started) == 4


class StopAfter(fedgsp.Callback):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round_end(self, entry: dict[str, Any]) -> None:
        if entry["round"] == self.rounds:
            raise KeyboardInterrupt


def test_more_rounds_go_on_from_the_ones_there_are(tmp_path: Path) -> None:
    sweep(tmp_path / "t", rounds=2)
    longer, fresh = sweep(tmp_path / "t", rounds=4), sweep(tmp_path / "fresh", rounds=4)
    assert [o.score for o in longer.outcomes] == [o.score for o in fresh.outcomes]


def test_another_configuration_in_the_same_place_is_refused(tmp_path: Path) -> None:
    sweep(tmp_path / "t")
    with pytest.raises(InputError, match=r"was run with another configuration \(its \[data\] differs\); choose another place"):
        tune(config(validation=0.3), GRID, tmp_path / "t", builder=RunBuilder(data=DATA))


def test_a_point_that_diverges_is_last_not_the_end(tmp_path: Path) -> None:
    found = sweep(tmp_path / "t", grid=["lr=0.1,1e9"])
    assert found.outcomes[1].score is None
    assert "smaller learning rate" in found.outcomes[1].note
    assert found.best.point.values == {"lr": 0.1}
    assert sweep(tmp_path / "t", grid=["lr=0.1,1e9"]).outcomes[1].note == found.outcomes[1].note
    with pytest.raises(InputError, match="every point of the grid diverged"):
        sweep(tmp_path / "t", grid=["lr=1e9"])


def test_data_that_leaves_nothing_to_evaluate_on(tmp_path: Path) -> None:
    bare = replace(DATA, train=Split.of([rows[:1] for rows in DATA.train]))
    with pytest.raises(InputError, match="no client has a validation sample"):
        sweep(tmp_path / "t", data=bare)


def test_evaluation_on_validation_needs_that_part() -> None:
    with pytest.raises(InputError, match="needs a validation part"):
        RunConfig(run=RunSection(evaluate_on="validation"))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from fedgsp.cli.main import build_app

    app = build_app()
    source = tmp_path / "data.npz"
    np.savez(source, features=DATA.features, labels=DATA.labels, client_index=np.repeat(np.arange(6), 20))
    monkeypatch.setenv("FEDGSP_CACHE", str(tmp_path / "cache"))
    command = [
        "tune", "--method", "fedadam", "--grid", "lr=0.01,0.1", "server_lr=0.003,0.03", "--data", str(source),
        "--rounds", "2", "--workers", "0", "--out", str(tmp_path / "t"),
    ]  # fmt: skip
    told = CliRunner().invoke(app, [*command, "--plot"])
    assert told.exit_code == 0, told.output
    assert "validation accuracy" in told.output
    assert "test" not in told.output.replace(str(tmp_path), "")
    assert (tmp_path / "t" / "tune.png").stat().st_size > 1000
    as_json = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert len(as_json["outcomes"]) == 4
    assert as_json["seeds"] == [0]
    two, one = (
        json.loads(CliRunner().invoke(app, [*command, "--json", *how]).output) for how in (["--seeds", "2"], ["--seed", "7"])
    )
    assert (two["seeds"], one["seeds"]) == ([0, 1], [7])
    for how, words in ((["--seeds", "2", "--seed", "7"], "give one of them"), (["--seeds", "0"], "must be at least 1")):
        assert words in str(CliRunner().invoke(app, [*command, *how]).exception)


def test_a_plot_without_matplotlib_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgsp.report.plotting import require_plotting

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"drawing a picture needs .*pip install 'fedgsp\[plot\]'"):
        require_plotting()
