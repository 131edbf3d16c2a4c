"""One run, one number: whoever is asked for a run's accuracy says the same, whatever `eval_every` is."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedgsp
from fedgsp.data import load
from fedgsp.deploy.status import run_status
from fedgsp.plan import Log
from fedgsp.report.build import read_runs
from fedgsp.report.live.feed import LiveRuns
from fedgsp.report.loggers.scalars import final_metrics
from fedgsp.report.payload import payload
from fedgsp.run.config import RunConfig
from fedgsp.study.finished import read_finished
from fedgsp.study.paper import growth
from fedgsp.study.paper.presets import PRESETS
from fedgsp.study.paper.runner import PaperRunner
from fedgsp.study.records import Arm, DataFacts
from fedgsp.study.tables import Table
from tests.support import tiny

ROUNDS = 25
LOG = Log(2.0, 2)
ARM = Arm(tiny.LINEAR, ROUNDS, 1)
PRESET = replace(
    PRESETS["laptop"],
    workers=0,
    lr=0.1,
    batch_size=3,
    kappa_default=0.5,
    growth=ARM,
    log_alphas=(LOG.alpha,),
    betas=(LOG.beta,),
)
Say = Callable[..., str]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Say]:
    """What a command prints."""
    from fedgsp.cli.main import main

    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["fedgsp", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        return " ".join(out.split())

    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Points of classes that overlap, so that the accuracy goes up and down from round to round."""
    made = tiny.arrays(clients=40)
    made["features"] = made["features"] + np.random.default_rng(1).normal(scale=4.0, size=made["features"].shape)
    np.savez(tmp_path / "data.npz", **made)  # type: ignore[arg-type]
    return f"npz:{tmp_path / 'data.npz'}"


def runner(source: str, out: Path, every: int) -> PaperRunner:
    def adjust(config: RunConfig) -> RunConfig:
        return replace(config, run=replace(config.run, eval_every=every))

    data = load(source)
    return PaperRunner(PRESET, data, DataFacts.of(data, source), out, adjust=adjust)


def config_of(made: PaperRunner, rounds: int = ROUNDS) -> RunConfig:
    method = made.method("fedgsp")
    planner = replace(method.planner, growth=LOG)  # type: ignore[type-var]
    return made.config(replace(method, planner=planner), replace(ARM, rounds=rounds), 0)


def evaluated(run: Path) -> dict[int, float]:
    """The accuracy of each evaluated round, as the journal has it."""
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    return {line["round"]: line["accuracy"] for line in lines if "accuracy" in line}


def accuracy_of_log(table: Table) -> float:
    """What the growth study says of the run with Log."""
    (row,) = (row for row in table.rows if row[0] == "Log")
    found: float = row[[column.name for column in table.columns].index("accuracy %")].mean
    return found


def by_hand(run: Path, every: int) -> tuple[float, str]:
    """(the final accuracy of 25 rounds, of which rounds it is the mean): the last 25 // 10 = 2."""
    known = evaluated(run)
    if every == 1:
        return (known[24] + known[25]) / 2, "mean of rounds 24-25"
    assert sorted(known) == [10, 20, 25]
    return known[25], "round 25"


@pytest.mark.parametrize("every", [1, 10])
def test_everybody_says_the_same_accuracy(tmp_path: Path, source: str, say: Say, every: int) -> None:
    file, run = tmp_path / "my.toml", tmp_path / "run"
    study = runner(source, tmp_path / "study", every)
    file.write_text(config_of(study).to_toml())
    printed = say("run", file, "--trust", "--out", run)
    expected, window = by_hand(run, every)
    known = evaluated(run)
    for many in (3, 10):  # what it must not be
        assert sum(list(known.values())[-many:]) / len(list(known.values())[-many:]) != pytest.approx(expected, abs=1e-4)
    top = max(known.values())
    told = (
        f"accuracy {expected:.4f} ({window}), last round {known[25]:.4f}, best {top:.4f} in round "
        f"{min(r for r, value in known.items() if value == top)}"
    )
    same = pytest.approx(expected, rel=1e-12)

    assert told in printed
    result = json.loads((run / "result.json").read_text())
    assert result["final"]["accuracy"] == same
    assert result["final_rounds"] == ([24, 25] if every == 1 else [25])
    assert (result["last"]["round"], result["last"]["accuracy"]) == (25, known[25])
    again = fedgsp.resume(run, workers=0)
    assert again.accuracy == same
    assert json.loads(say("resume", run, "--json"))["final"]["accuracy"] == same
    assert final_metrics(again)["final/accuracy"] == same

    table = say("compare", run, "--out", tmp_path / "compared")
    compared = json.loads((tmp_path / "compared" / "compare.json").read_text())["facts"]
    assert compared["methods"]["fedgsp"]["0"] == same
    assert compared["final"] == window
    assert f" {100 * expected:.1f} | {100 * known[25]:.1f} |" in table
    assert f"Final figures ({window}), the last round's beside them" in table

    for page in (payload(read_runs([run])), LiveRuns([run]).everything()):
        (body,) = page["runs"]
        assert body["final"] == {"value": same, "window": window, "last": {"round": 25, "value": known[25]}}
        assert body["records"][-1][1] == top
        said = " ".join(sentence["text"] for sentence in page["summary"])
        assert f", {window}: fedgsp {100 * expected:.1f}\u00a0%; round 25 had {100 * known[25]:.1f}\u00a0%" in said

    status = run_status(run)
    assert status.value == same
    assert f"accuracy {status.told}" == told

    maps, *_ = growth.show(study, growth.gather(study)).tables
    assert accuracy_of_log(maps) == same
    assert maps.note.startswith(f"Final figures ({window}) on test samples.")


def test_a_run_of_version_0_1_0_is_judged_anew(tmp_path: Path, source: str) -> None:
    run = tmp_path / "run"
    made = fedgsp.train("fedavg", source, tiny.LINEAR, rounds=ROUNDS, workers=0, out=run)
    told = json.loads((run / "result.json").read_text())
    for new in ("final_rounds", "last"):
        del told[new]
    (run / "result.json").write_text(json.dumps({**told, "schema": 1, "final": {"accuracy": 0.123, "loss": 9.0}}))
    again = fedgsp.resume(run, workers=0)
    assert not again.trained_now
    assert again.accuracy == again.facts["final"]["accuracy"] == made.accuracy == pytest.approx(by_hand(run, 1)[0], rel=1e-12)
    assert again.facts["final_rounds"] == [24, 25]
    assert [one.fingerprint for one in read_finished([run])] == [told["data"]["fingerprint"]]


def test_a_longer_run_that_serves_a_study_is_judged_by_the_rounds_asked_for(tmp_path: Path, source: str) -> None:
    made = runner(source, tmp_path / "study", 1)
    made.trace("fedgsp", config_of(made, rounds=40))
    (unit,) = (tmp_path / "study" / "units").glob("fedgsp*")
    table, *_ = growth.show(made, growth.gather(made)).tables
    assert unit.name in made.used, "it was not run again"
    assert max(evaluated(unit)) == 40
    assert accuracy_of_log(table) == pytest.approx(by_hand(unit, 1)[0], rel=1e-12)


@pytest.mark.parametrize("every", [1, 10])
def test_tuning_chooses_by_the_same_figure_of_validation_samples(tmp_path: Path, source: str, say: Say, every: int) -> None:
    file, out = tmp_path / "my.toml", tmp_path / "tune"
    file.write_text(config_of(runner(source, tmp_path, every)).to_toml())
    options = ("--config", file, "--grid", "lr=0.003,0.1", "--validation", "0.3", "--out", out, "--trust")
    told = json.loads(say("tune", *options, "--json"))
    expected: dict[str, Any] = {}
    for point in told["outcomes"]:
        run = out / f"lr={point['values']['lr']:g}" / "seed-0"
        value, window = by_hand(run, every)
        same = pytest.approx(value, rel=1e-12)
        assert point["score"] == same
        assert json.loads((run / "result.json").read_text())["final"]["accuracy"] == same
        (body,) = payload(read_runs([run]))["runs"]
        assert (body["final"]["value"], body["final"]["window"]) == (same, window)
        expected[point["values"]["lr"]] = value
    assert told["best"]["values"]["lr"] == max(expected, key=lambda lr: expected[lr])
    assert told["final_rounds"] == ([24, 25] if every == 1 else [25])
    assert f"validation figures: {window}" in say("tune", *options)
