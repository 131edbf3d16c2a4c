"""`fedgsp new` writes a project that works as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedgsp
from fedgsp.run.config import read_config

COMMAND = [sys.executable, "-c", "from fedgsp.cli.main import main; main()"]


def in_project(place: Path, *words: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_written_and_that_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = fedgsp.new(tmp_path / "my idea")
    names = {file.name for file in place.iterdir()}
    assert names == {"config.toml", "model.py", "rule.py", "test_project.py", "README.md", "afternoon.ipynb"}
    assert not any("@" in (place / name).read_text().replace("@dataclass", "") for name in names)
    monkeypatch.syspath_prepend(str(place))
    config = read_config(place / "config.toml", trust=True)
    assert config.method.name == "my-idea"
    assert type(config.method.local).__name__ == "Clipped"
    with pytest.raises(fedgsp.InputError, match="is not empty"):
        fedgsp.new(place)
    with pytest.raises(fedgsp.InputError, match="did you mean 'method'"):
        fedgsp.new(tmp_path / "other", kind="methd")  # type: ignore[arg-type]
    assert {file.name for file in fedgsp.new(tmp_path / "rule", "method").iterdir()} == {
        "rule.py", "model.py", "test_project.py",
    }  # fmt: skip
    sys.modules.pop("rule", None)


@pytest.mark.slow
def test_a_project_of_the_command_line_passes_its_test_runs_and_compares(tmp_path: Path) -> None:
    told = in_project(tmp_path, *COMMAND, "new", "mine")
    place = tmp_path / "mine"
    assert "afternoon.ipynb" in told
    assert "2 passed" in in_project(place, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    small = ("--workers", "0", "--rounds", "1")
    in_project(place, *COMMAND, "run", "config.toml", "--trust", *small, "--out", "runs/first", "--quiet")
    data = ("--data", "glyphs:clients=12", "--model", "model:network", "--seeds", "1")
    table = in_project(
        place, *COMMAND, "compare", "fedavg", "config.toml", "rule:METHOD", "--trust", *data, *small, "--quiet", "--json"
    )
    assert '"fedavg"' in table
    assert '"mine"' in table


@pytest.mark.slow
def test_a_deployment_can_be_written(tmp_path: Path) -> None:
    place = fedgsp.new(tmp_path / "sites", "deployment")
    assert (place / "README.md").is_file()
    assert len(list((place / "sites").iterdir())) == 3
