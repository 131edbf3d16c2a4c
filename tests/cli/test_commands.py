from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedgsp.client import SGD
from fedgsp.core import __version__
from fedgsp.methods import METHODS, decode_method, named
from fedgsp.plan import ICG, Constant, Exp, Fixed, Grouped, Linear, Log, OfLength, Proportional, Singletons
from fedgsp.run.config import read_config
from tests.support import tiny

RUN = ("run", "--data", "tiny.npz", "--workers", "0", "--quiet")


class TestQuickStart:
    """Nobody should wait for torch to read a help text."""

    @staticmethod
    def imports_torch(code: str) -> bool:
        probe = f"import sys\n{code}\nprint('torch' in sys.modules or 'numpy' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=600, check=True)
        return done.stdout.split()[-1] == "True"

    def test_the_package_alone(self) -> None:
        assert not self.imports_torch("import fedgsp; fedgsp.__version__")

    @pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
    def test_help(self, arguments: list[str]) -> None:
        code = f"from fedgsp.cli.main import main\nsys.argv = ['fedgsp', *{arguments}]\ntry: main()\nexcept SystemExit: pass"
        assert not self.imports_torch(code)

    def test_the_probe_can_tell(self) -> None:
        assert self.imports_torch("import fedgsp; fedgsp.load")


def test_version(cli: Any) -> None:
    outcome = cli("--version")
    assert (outcome.code, outcome.out) == (0, f"fedgsp {__version__}\n")


def test_help_names_every_command(cli: Any) -> None:
    outcome = cli("--help")
    assert outcome.code == 0
    for command in ("run", "resume", "replay", "evaluate", "methods"):
        assert f" {command} " in outcome.out


class TestMethods:
    def test_json_can_be_read_back(self, cli: Any) -> None:
        outcome = cli("methods", "--json")
        table = json.loads(outcome.out)
        assert list(table) == list(METHODS)
        for name, row in table.items():
            assert row.pop("summary") == METHODS[name].summary
            assert row.pop("yields") == named(name).yields
            assert decode_method(row) == named(name)

    def test_a_person_sees_names_and_parts(self, cli: Any) -> None:
        out = cli("methods").out
        assert "planner     grouped(log(alpha=2, beta=10), icg(tau=10, distance=squared), kappa=0.3, order=shuffled)" in out
        assert all(f"{name}\n" in out for name in METHODS)

    def test_methods_without_one_global_model_say_so(self, cli: Any) -> None:
        rows = cli("methods").out.split("\n    planner")
        labelled = [row for row in rows if "    yields" in row]
        assert len(labelled) == sum(named(name).yields != "one" for name in METHODS)
        assert any("cfl\n" in row and "yields      several models" in row for row in labelled)


class TestDryRun:
    def test_on_one_fleet(self, cli: Any, here: Path, tiny: str) -> None:
        said = cli("run", "--data", tiny, "--rounds", "2", "--dry-run", "--fleet", "phone-wifi").unwrapped
        assert "fleet phone-wifi:" in said
        assert "fleet paper" not in said
        assert "T_comm" in said
        refused = cli("run", "--data", tiny, "--dry-run", "--fleet", "phone-wify")
        assert (refused.code, "did you mean 'phone-wifi'" in refused.err) == (2, True)
        refused = cli("run", "--data", tiny, "--fleet", "paper")
        assert (refused.code, "--fleet needs --dry-run" in refused.err) == (2, True)

    def test_json(self, cli: Any, here: Path, tiny: str) -> None:
        outcome = cli("run", "--data", tiny, "--method", "fedavg", "--rounds", "4", "--dry-run", "--json")
        assert outcome.code == 0
        told = json.loads(outcome.out)
        assert told["steps"] == 4 * 3 * 2  # floor(0.3 * 12) clients a round, 9 samples in batches of 5
        assert told["bytes"] == 4 * 3 * 2 * told["model_bytes"]
        assert [row["groups"] for row in told["schedule"]] == [12]
        assert {"memory", "seconds", "step_ms", "workers"} <= set(told)
        assert list(told["cost"]) == ["paper", "phone-4g", "phone-wifi", "hospital-fibre"]
        assert told["cost"]["paper"]["traffic"] == told["bytes"]
        assert told["paper"]["traffic"] == pytest.approx(2 * 0.3 * 12 * 25.2e6 * 4)
        assert [path.name for path in here.iterdir()] == ["tiny.npz"]

    def test_more_groups_than_clients_are_capped_and_told(self, cli: Any, tiny: str) -> None:
        outcome = cli("run", "--data", tiny, "--rounds", "2", "--dry-run")
        assert outcome.code == 0
        assert "note: no two clients ever train in a chain, and this is FedAvg: the growth function asks for 10 groups" in (
            outcome.unwrapped
        )
        for word in ("Schedule", "traffic", "memory", "time"):
            assert word in outcome.out

    def test_the_note_stays_away_where_nothing_is_capped(self, cli: Any, tiny: str) -> None:
        assert "note:" not in cli("run", "--data", tiny, "--rounds", "1", "--growth", "length", "--dry-run").out


class TestOptions:
    @staticmethod
    def recorded(cli: Any, *options: str) -> Any:
        outcome = cli(*RUN, "--rounds", "1", "--out", "new", *options)
        assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
        return read_config(Path("new/config.toml"))

    @pytest.mark.parametrize(
        ("options", "growth"),
        [
            (["--growth", "log"], Log(2.0, 10)),
            (["--growth", "length"], OfLength(4)),
            (["--growth", "proportional", "--beta", "5"], Proportional(Log(2.0, 5))),
            (["--growth", "log", "--alpha", "3", "--beta", "4"], Log(3.0, 4)),
            (["--growth", "linear", "--alpha", "0.5"], Linear(0.5, 10)),
            (["--growth", "exp", "--alpha", "0.1", "--beta", "2"], Exp(0.1, 2)),
            (["--growth", "constant"], Constant(10)),
            (["--growth", "constant", "--beta", "3"], Constant(3)),
            (["--growth", "singletons"], Singletons()),
            (["--alpha", "1.5"], Log(1.5, 10)),
            (["--beta", "4"], Log(2.0, 4)),
            (["--method", "naive-gsp-icg", "--beta", "4"], Constant(4)),
        ],
    )
    def test_growth(self, cli: Any, tiny: str, options: list[str], growth: Any) -> None:
        assert self.recorded(cli, *options).method.planner.growth == growth

    def test_everything_that_has_an_option(self, cli: Any, here: Path, tiny: str) -> None:
        config = self.recorded(
            cli, "--method", "naive-gsp-icg", "--kappa", "0.5", "--order", "fixed", "--lr", "0.05", "--batch-size", "3",
            "--epochs", "2", "--momentum", "0.5", "--weight-decay", "0.001", "--seed", "7", "--data-seed", "8",
            "--clients", "11", "--eval-every", "2", "--target-accuracy", "0.5", "--stop-at-target", "--holdout-clients", "1",
            "--validation", "0.2",
        )  # fmt: skip
        assert config.method.planner == Grouped(Constant(10), Fixed(ICG()), 0.5, "fixed")
        assert config.method.local == SGD(lr=0.05, batch_size=3, epochs=2, momentum=0.5, weight_decay=0.001)
        assert config.method.name == "naive-gsp-icg"
        run, data = config.run, config.data
        assert (run.rounds, run.seed, run.workers, run.eval_every, run.target_accuracy) == (1, 7, 0, 2, 0.5)
        assert (run.stop_at_target, run.holdout_clients) == (True, 1)
        assert (data.seed, data.clients, data.validation) == (8, 11, 0.2)
        assert data.source == f"npz:{here / tiny}"

    def test_set_reaches_everything_else(self, cli: Any, here: Path, tiny: str) -> None:
        config = self.recorded(
            cli, "--set", "method.planner.grouper.tau=3", "--set", 'method.server.weights="uniform"',
            "--set", "method.local.schedule={kind = 'cosine', rounds = 9}", "--set", "data.source=tiny.npz:test=0.3",
        )  # fmt: skip
        assert config.method.planner.grouper == ICG(tau=3)
        assert config.method.server.weights == "uniform"
        assert config.method.local.schedule.rounds == 9
        assert config.data.source == f"npz:{here / tiny}:test=0.3"

    def test_a_file_with_options_on_top(self, cli: Any, here: Path, tiny: str) -> None:
        (here / "my.toml").write_text('run = {seed = 3, eval_every = 5}\nmethod = {name = "fedavg"}\n')
        config = self.recorded(cli, "my.toml", "--seed", "4")
        assert (config.run.seed, config.run.eval_every, config.method.name) == (4, 5, "fedavg")

    def test_a_recorded_configuration_repeats_its_run(self, cli: Any, tiny: str) -> None:
        self.recorded(cli, "--method", "fedavg", "--lr", "0.1")
        again = cli("run", "new/config.toml", "--out", "again", "--json")
        first = json.loads(Path("new/result.json").read_text())
        assert json.loads(again.out)["state"] == first["state"]

    def test_a_model_of_the_users_own(self, cli: Any, here: Path, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
        (here / "my_cli_nets.py").write_text(
            "from torch import nn\ndef net(classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
        )
        monkeypatch.syspath_prepend(here)
        assert self.recorded(cli, "--model", "my_cli_nets:net").model.name == "my_cli_nets:net"


class TestARun:
    @pytest.fixture
    def run(self, cli: Any, tiny: str) -> Any:
        return cli(
            "run", "--data", tiny, "--method", "fedavg", "--lr", "0.1", "--rounds", "3", "--workers", "0", "--out", "new"
        )

    def test_lines_and_a_summary(self, run: Any) -> None:
        assert run.code == 0
        assert [line.split("  ")[0] for line in run.out.splitlines() if line.startswith("round")] == [
            "round", "round", "round",
        ]  # fmt: skip
        assert "finished after 3 rounds" in run.unwrapped
        assert "next: fedgsp resume new" in run.unwrapped

    def test_its_files(self, run: Any) -> None:
        names = {path.name for path in Path("new").iterdir() if not path.name.startswith(".")}
        assert names == {
            "config.toml", "journal.jsonl", "plans.jsonl", "events.jsonl", "checkpoint", "result.json", "model.safetensors",
            "clients.safetensors", "scores.jsonl",
        }  # fmt: skip

    def test_its_model_loads_into_plain_pytorch(self, run: Any) -> None:
        from safetensors.torch import load_file

        from fedgsp.models import small_cnn

        assert small_cnn((8, 8), 3).load_state_dict(load_file("new/model.safetensors"))

    def test_evaluate_agrees_with_the_journal(self, run: Any, cli: Any) -> None:
        last = json.loads(Path("new/journal.jsonl").read_text().splitlines()[-1])
        outcome = cli("evaluate", "new", "--json")
        verdict = json.loads(outcome.out)
        assert outcome.code == 0
        assert (verdict["method"], verdict["round"], verdict["part"]) == ("fedavg", 3, "test")
        for name in ("accuracy", "loss", "accuracy_plain", "loss_plain"):
            assert verdict[name] == last[name]
        assert [client["samples"] for client in verdict["per_client"]] == [1] * 12

    @pytest.mark.parametrize(("part", "samples"), [("train", 108), ("all", 120)])
    def test_evaluate_on_other_parts(self, run: Any, cli: Any, part: str, samples: int) -> None:
        assert json.loads(cli("evaluate", "new", "--part", part, "--json").out)["samples"] == samples

    def test_evaluate_on_other_data(self, run: Any, cli: Any, tiny: str) -> None:
        verdict = json.loads(cli("evaluate", "new", "--data", f"{tiny}:test=0.5", "--json").out)
        assert verdict["samples"] == 60

    def test_evaluate_for_a_person(self, run: Any, cli: Any) -> None:
        out = cli("evaluate", "new").unwrapped
        assert "fedavg after 3 rounds" in out
        assert "worst" in out

    def test_evaluate_where_there_is_nothing(self, run: Any, cli: Any) -> None:
        outcome = cli("evaluate", "new", "--part", "validation")
        assert outcome.code == 2
        assert "has no validation samples to evaluate on." in outcome.err

    def test_evaluate_on_data_that_does_not_fit(self, run: Any, cli: Any, here: Path) -> None:
        import numpy as np

        np.savez(here / "wide.npz", features=np.zeros((4, 9, 9)), labels=np.arange(4) % 2, client_index=np.zeros(4, dtype=int))
        outcome = cli("evaluate", "new", "--data", "wide.npz")
        assert outcome.code == 2
        assert "wide.npz has samples of shape (9, 9) in 2 classes; the model was trained on (8, 8) in 3." in outcome.err

    def test_quiet_says_nothing_and_json_only_json(self, cli: Any, tiny: str) -> None:
        quiet = cli(*RUN, "--rounds", "1", "--out", "quiet")
        assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
        facts = json.loads(cli("run", "--data", tiny, "--rounds", "1", "--workers", "0", "--out", "js", "--json").out)
        assert (facts["status"], facts["rounds"], facts["directory"]) == ("finished", 1, "js")

    def test_a_run_finds_a_place_of_its_own(self, cli: Any, here: Path, tiny: str) -> None:
        cli(*RUN, "--rounds", "1", "--method", "fedavg")
        cli(*RUN, "--rounds", "1", "--method", "fedavg")
        places = sorted(path.name for path in (here / "runs").iterdir())
        assert len(places) == 2
        assert all(place.startswith("fedavg-") for place in places)


def test_a_model_in_the_working_folder_is_found(tmp_path: Path) -> None:
    code = "from torch import nn\ndef net(shape, classes): return nn.Linear(shape[0], classes)\n"
    (tmp_path / "my_net.py").write_text(code)
    tiny.write_npz(tmp_path / "data.npz")
    program = Path(sys.executable).with_name("fedgsp")
    if not program.exists():
        pytest.skip("the console script is not installed beside this Python")
    done = subprocess.run(
        [program, "run", "--data", "data.npz", "--model", "my_net:net", "--rounds", "1", "--workers", "1", "--out", "run"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=6000,
        env={**tiny.environment(), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
