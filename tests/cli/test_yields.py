"""Methods that yield several models say so wherever their figures stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedgsp
from fedgsp.cli.display import show_summary
from fedgsp.methods import METHODS, named
from tests.support import tiny

SEVERAL = "several models, each client judged on the one it belongs to"
APART = "not comparable with methods of one global model"


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(tiny.write_npz(tmp_path / "data.npz", clients=6))


def test_which_methods_do() -> None:
    assert {name for name in METHODS if named(name).yields == "several"} == {"cfl", "feddc"}
    assert named("fedseq-inter").yields == "one"


@pytest.mark.parametrize(("name", "said"), [("feddc", True), ("fedavg", False)])
def test_the_summary_after_a_run_and_result_json(
    name: str, said: bool, source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = fedgsp.train(name, source, tiny.LINEAR, rounds=2, workers=0, out=tmp_path / "run")
    show_summary(result)
    printed = " ".join(capsys.readouterr().out.split())
    assert (f"yields {SEVERAL}: {APART}" in printed) is said
    facts = json.loads((tmp_path / "run" / "result.json").read_text())
    assert facts["yields"] == ("several" if said else "one")
    assert sorted(facts["model"]) == (["global", *(f"live-{i}" for i in range(6))] if said else ["global"])


def test_evaluate(source: str, tmp_path: Path, cli: Any) -> None:
    fedgsp.train("feddc", source, tiny.LINEAR, rounds=1, workers=0, out=tmp_path / "run")
    printed = " ".join(cli("evaluate", str(tmp_path / "run")).out.split())
    assert f"yields {SEVERAL}: {APART}" in printed
    told = json.loads(cli("evaluate", str(tmp_path / "run"), "--json").out)
    history = json.loads((tmp_path / "run" / "journal.jsonl").read_text().splitlines()[-1])
    assert told["yields"] == "several"
    assert told["accuracy"] == history["accuracy"]


def test_evaluate_judges_whom_the_run_judged(tmp_path: Path, cli: Any) -> None:
    """Clients that were set aside for shared data are no clients any more."""
    source = str(tiny.write_npz(tmp_path / "data.npz", clients=8))
    method = ["--method", "data-sharing", "--set", "method.preparation.donors=0.3", "--set", "method.preparation.beta=0.3"]
    common = ["--data", source, "--model", tiny.LINEAR, "--rounds", "1", "--workers", "0", "--quiet"]
    assert cli("run", *method, *common, "--out", str(tmp_path / "run")).code == 0
    told = json.loads(cli("evaluate", str(tmp_path / "run"), "--json").out)
    history = json.loads((tmp_path / "run" / "journal.jsonl").read_text())
    assert told["clients"] == history["test_clients"] < 8
    assert np.isclose(told["loss"], history["loss"])


def test_tune(source: str, tmp_path: Path, cli: Any) -> None:
    arguments = [
        "--method",
        "feddc",
        "--grid",
        "lr=0.01,0.1",
        "--data",
        source,
        "--model",
        tiny.LINEAR,
        "--rounds",
        "1",
    ]
    more = ["--workers", "0", "--validation", "0.4", "--out", str(tmp_path / "t"), "--quiet"]
    printed = " ".join(cli("tune", *arguments, *more).out.split())
    assert f"Tuning ({SEVERAL})" in printed
    assert json.loads((tmp_path / "t" / "tune.json").read_text())["yields"] == "several"
