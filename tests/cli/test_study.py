"""`fedgsp study` and `fedgsp compare` as a person meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedgsp.study.paper.catalog import studies_named
from tests.support import tiny as tiny_data


class TestStudy:
    def test_one_study(self, cli: Any, here: Path, tiny: str) -> None:
        done = cli("study", "cpd", "--data", tiny, "--seeds", "2", "--out", "s")
        assert done.code == 0
        assert "| label | 4 | NaiveGSP+ICG |" in done.out
        assert "files in s/cpd" in done.out
        told = json.loads((here / "s" / "cpd" / "cpd.json").read_text())
        assert told["command"] == f"fedgsp study cpd --preset smoke --data {tiny} --seeds 2 --out s"
        again = cli("study", "cpd", "--data", tiny, "--seeds", "2", "--out", "s", "--json")
        assert json.loads(again.out)["cpd"] == told["facts"]
        report = cli("study", "report", "--out", "s")
        assert (report.code, report.out) == (0, "wrote s/cpd/README.md\nwrote s/README.md\nwrote s/claims.md\n")

    def test_progress_names_the_units(self, cli: Any, here: Path, tiny: str) -> None:
        done = cli("study", "kappa", "--data", tiny, "--out", "s", "--set", "run.eval_every=2")
        assert done.code == 0
        assert "[1/5] fedgsp kappa=0.1, small_cnn, seed 0: 4 rounds" in done.err
        assert "[5/5] fedgsp kappa=1, small_cnn, seed 0: 4 rounds" in done.err
        config = next((here / "s" / "units").glob("*/config.toml")).read_text()
        assert "eval_every = 2" in config
        assert f'source = "{tiny}"' in config, "as it was typed: results can be committed"
        assert cli("study", "kappa", "--data", tiny, "--out", "s", "--set", "run.eval_every=2").err == ""

    def test_an_estimate_runs_nothing(self, cli: Any, here: Path, tiny: str) -> None:
        told = json.loads(cli("study", "curves", "--data", tiny, "--out", "s", "--estimate", "--json").out)
        assert [unit["rounds"] for unit in told["curves"]] == [6] * 10
        # FedAvg: floor(0.3 * 12) clients a round, nine samples in one batch of ten, six rounds
        assert told["curves"][0]["steps"] == 6 * 3
        assert not (here / "s").exists()
        shown = cli("study", "all", "--data", tiny, "--out", "s", "--estimate").unwrapped
        assert "cost-to-target" in shown
        assert "of one core" in shown

    def test_an_interrupt_says_how_to_go_on(self, cli: Any, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from fedgsp.run import lifecycle

        def stopped(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(lifecycle, "start", stopped)
        done = cli("study", "kappa", "--data", tiny, "--out", "s")
        assert (done.code, "Give the same command again to go on" in done.err) == (130, True)

    def test_without_pyarrow_the_extra_is_named(self, cli: Any, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
        refused = cli("study", "cpd", "--data", tiny, "--out", "s")
        assert refused.code == 2
        assert "pip install 'fedgsp[parquet]'" in refused.err

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("kapa",), "unknown study 'kapa': did you mean 'kappa'"),
            (("cpd", "--preset", "huge"), "unknown preset 'huge'"),
            (("cpd", "--seeds", "0"), "--seeds must be at least 1, not 0"),
            (("cpd", "--data", "npz:none.npz"), "none.npz"),
            (("table", "--methods", "fedavgg"), "did you mean 'fedavg'"),
            (("kappa", "--set", "nonsense"), "--set wants PATH=VALUE"),
            (("kappa", "--set", "run.rounds=2"), "--set cannot change run.rounds in a study; use --rounds"),
            (("kappa", "--rounds", "1"), "a study needs at least 2 rounds, not 1"),
            (("report", "--out", "nowhere"), "there is no finished study in nowhere"),
        ],
    )
    def test_bad_input_is_one_sentence(self, cli: Any, arguments: tuple[str, ...], words: str) -> None:
        refused = cli("study", *arguments)
        assert refused.code == 2
        assert words in refused.err
        assert refused.err.count("\n") == 1


class TestCompare:
    def test_methods(self, cli: Any, here: Path, tiny: str) -> None:
        arguments = ("--data", tiny, "--rounds", "2", "--seeds", "2", "--workers", "0", "--out", "c")
        done = cli("compare", "fedavg", "fedgsp", *arguments)
        assert done.code == 0
        assert "| fedavg |" in done.out
        assert "paired over 2 seeds" in done.out
        assert {"README.md", "compare.json", "compare.csv", "compare.png", "compare.svg", "units"} == {
            path.name for path in (here / "c").iterdir()
        }
        told = json.loads(cli("compare", "fedavg", "fedgsp", *arguments, "--json").out)
        assert set(told["methods"]) == {"fedavg", "fedgsp"}

    def test_tables_do_without_matplotlib(self, cli: Any, here: Path, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        done = cli("compare", "fedavg", "--data", tiny, "--rounds", "1", "--seeds", "1", "--workers", "0", "--out", "c")
        assert done.code == 0
        assert "| fedavg |" in done.out
        assert "figures need matplotlib: pip install 'fedgsp[plot]'" in done.out
        assert not list((here / "c").glob("*.png"))
        assert "![" not in (here / "c" / "README.md").read_text()
        study = cli("study", "cpd", "--data", tiny, "--seeds", "1", "--out", "s")
        assert study.code == 0
        assert (here / "s" / "cpd" / "cpd.csv").exists()

    def test_finished_runs(self, cli: Any, here: Path, tiny: str) -> None:
        for method in ("fedavg", "fedgsp"):
            cli(
                "run",
                "--data",
                tiny,
                "--method",
                method,
                "--rounds",
                "2",
                "--workers",
                "0",
                "--quiet",
                "--out",
                f"runs/{method}",
            )
        done = cli("compare", "runs/fedavg", "runs/fedgsp", "--out", "c")
        assert done.code == 0
        assert "| fedgsp |" in done.out
        assert "With one seed it cannot be said" in done.out
        assert json.loads((here / "c" / "compare.json").read_text())["command"] == "fedgsp compare runs/fedavg runs/fedgsp"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "there is nothing to compare"),
            (("fedavg", "fedgs"), "did you mean 'fedgsp'"),
            (("fedavg", "./somewhere"), "there is no run directory"),
            (("./somewhere",), "there is no run directory somewhere"),
            (("fedavg", "--fleet", "phone"), "unknown fleet 'phone'"),
            (("fedavg", "--seeds", "0"), "--seeds must be at least 1"),
        ],
    )
    def test_bad_input_is_one_sentence(self, cli: Any, tiny: str, arguments: tuple[str, ...], words: str) -> None:
        refused = cli("compare", *arguments, *(("--data", tiny) if arguments else ()))
        assert refused.code == 2
        assert words in refused.err
        assert refused.err.count("\n") == 1


@pytest.mark.slow
def test_everything_from_nothing_killed_on_the_way(tmp_path: Path) -> None:
    """`study all --preset smoke`, killed in the middle of its runs; the same command goes on and leaves everything."""
    out = tmp_path / "out"
    code = "from fedgsp.cli.main import main; main()"
    cheap = ["--preset", "smoke", "--model", "linear", "--rounds", "2"]
    command = [sys.executable, "-c", code, "study", "all", *cheap, "--out", str(out), "--quiet"]
    first = subprocess.Popen(command, env=tiny_data.environment())
    deadline = time.monotonic() + 900
    while len(list(out.glob("units/*/result.json"))) < 4 and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.1)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    finished = {file: file.read_bytes() for file in out.glob("units/*/result.json")}
    assert len(finished) >= 4
    assert not (out / "cost-to-target").exists()
    again = subprocess.run(command, env=tiny_data.environment(), timeout=1800, check=False)
    assert again.returncode == 0
    assert all(file.read_bytes() == before for file, before in finished.items()), "what was finished is only read"
    for name in studies_named(["all"]):
        assert json.loads((out / name / f"{name}.json").read_text())["preset"] == "smoke"
    report = subprocess.run(
        [sys.executable, "-c", code, "study", "report", "--out", str(out)],
        env=tiny_data.environment(),
        timeout=600,
        check=False,
    )
    assert report.returncode == 0
    assert "not measured yet" not in (out / "claims.md").read_text()
