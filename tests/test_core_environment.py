"""The package with nothing but what it needs: a real environment of its own, which is kept between runs.

Every command works there or names the extra that it takes; there is no compiler, or no home that can be written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv" / "core-only"
NOWHERE = "/proc/self/nowhere"
"""A folder that not even root can make."""
MUCH = {"pyarrow", "matplotlib", "ray", "flwr", "pandas", "polars", "h5py", "pillow", "scikit-learn", "numba"}

DRIVER = """
import json, os, sys, tempfile
import fedgsp.api, fedgsp.run.run
from fedgsp.cli.main import main

told = []
for words in json.loads(sys.argv[1]):  # each in a process of its own, forked where torch is there already
    with tempfile.TemporaryFile("w+") as out:
        child = os.fork()
        if child == 0:
            for number in (1, 2):
                os.dup2(out.fileno(), number)
            sys.argv = ["fedgsp", *words]
            code = 70
            try:
                main()
            except SystemExit as ended:
                code = int(ended.code or 0)
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        told.append([code, out.read()])
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def core() -> Path:
    """Its folder of programs."""
    FOLDER.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, ROOT / ".ci" / "install.py", "core", FOLDER], check=True, cwd=ROOT)
    return FOLDER / "bin"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working folder with data in it."""
    tiny.write_npz(tmp_path / "data.npz")
    (tmp_path / "home").mkdir()
    return tmp_path


def bare(home: str | Path, path: str | Path) -> dict[str, str]:
    """An environment that has nothing of ours."""
    return {"HOME": str(home), "PATH": str(path), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def called(core: Path, place: Path, commands: list[list[str]], environment: dict[str, str]) -> list[tuple[int, str]]:
    """How commands ended and what they said."""
    asked: list[Any] = [core / "python", "-c", DRIVER, json.dumps(commands)]
    done = subprocess.run(asked, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in json.loads(done.stdout.splitlines()[-1])]


RUN = ["run", "--data", "npz:data.npz", "--model", "linear", "--rounds", "2", "--workers", "0"]
WORK = [
    ["--help"],
    ["methods"],
    ["models"],
    ["data", "inspect", "npz:data.npz"],
    ["data", "export", "npz:data.npz", "--to", "leaf", "--out", "exported"],
    ["group", "npz:data.npz", "--groups", "2"],
    [*RUN, "--out", "one", "--report"],
    [*RUN, "--out", "two", "--method", "fedavg", "--quiet"],
    ["resume", "one", "--rounds", "3", "--workers", "0", "--quiet"],
    ["replay", "one", "--workers", "0", "--quiet"],
    ["evaluate", "one"],
    ["cost", "one"],
    ["report", "one", "two", "--out", "page.html"],
    ["compare", "one", "two", "--out", "compared"],
    ["study", "curves", "--preset", "smoke", "--estimate"],
    ["advise", "--data", "npz:data.npz", "--model", "linear", "--quiet"],
    ["new", "mine"],
]
EXTRA = {
    "plot": ["data", "inspect", "npz:data.npz", "--plot", "picture.png"],
    "ray": [*RUN[:-1], "2", "--engine", "ray", "--out", "on-ray"],
    "tensorboard": [*RUN, "--tensorboard", "logs", "--out", "logged"],
    "mlflow": [*RUN, "--mlflow", "auto", "--out", "tracked"],
    "flower": ["deploy", "local", "federation"],
    "parquet": ["data", "inspect", "parquet:data.parquet:label=y,client=c"],
    "hdf5": ["data", "inspect", "hdf5:data.h5"],
}


def test_it_has_only_what_it_needs(core: Path) -> None:
    listed: list[Any] = [core / "python", "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
    names = {row["name"].lower() for row in json.loads(subprocess.run(listed, capture_output=True, check=True).stdout)}
    assert not names & MUCH
    assert len(names) < 40


def test_every_command_works_or_names_its_extra(core: Path, place: Path) -> None:
    (place / "data.parquet").touch()
    (place / "data.h5").touch()
    told = called(core, place, [*WORK, *EXTRA.values()], bare(place / "home", f"{core}:{os.environ['PATH']}"))
    failed = [(words, said) for words, (code, said) in zip(WORK, told, strict=False) if code]
    assert failed == []
    unnamed = {
        extra: (code, said) for extra, (code, said) in zip(EXTRA, told[len(WORK) :], strict=True)
        if (code, f"pip install 'fedgsp[{extra}]'" in said) != (2, True)
    }  # fmt: skip
    assert unnamed == {}
    assert (place / "page.html").exists()


def test_without_a_compiler_the_first_line_says_so_and_runs_are_whole(core: Path, place: Path) -> None:
    """The programs of the environment are all that there is."""
    command: list[Any] = [core / "fedgsp", *RUN[:-1], "2", "--out", "plain"]
    done = subprocess.run(command, cwd=place, env=bare(place / "home", core), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compiler" in done.stdout
    assert json.loads((place / "plain" / "result.json").read_text())["rounds"] == 2


def test_a_home_that_cannot_be_written(core: Path, place: Path) -> None:
    there = {**bare(NOWHERE, f"{core}:{os.environ['PATH']}"), "TMPDIR": str(place)}
    commands = [
        ["methods"],
        ["data", "inspect", "npz:data.npz"],
        [*RUN, "--out", "one", "--quiet"],
        ["resume", "one", "--rounds", "3"],
    ]
    told = called(core, place, commands, there)
    assert [code for code, _ in told] == [0] * len(commands), told
    assert json.loads((place / "one" / "result.json").read_text())["rounds"] == 3
